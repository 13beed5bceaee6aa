// fill.hpp - makes the matrices of a recipe and writes them, on several threads; memory is one
// matrix per thread.
#pragma once

#include <cstdint>

#include "checkpoint_files.hpp"
#include "progress.hpp"

namespace moe::cli {

// n_threads 0: one per core.
void fill_files(const Recipe& recipe, OutputFiles& files, int32_t n_threads, Progress& progress);

}  // namespace moe::cli
