// quantize_files.hpp - the two containers that `moe quantize` writes.
#pragma once

#include <filesystem>
#include <vector>

#include "error_table.hpp"
#include "progress.hpp"
#include "quantize_target.hpp"

namespace moe::cli {

struct QuantizeJob {
    const moe_checkpoint* checkpoint;
    std::string source;
    const QuantizeTarget& target;
    std::filesystem::path output;  // an empty folder, or a file that is not there
    int32_t n_threads;
    Progress& progress;
};

struct QuantizeResult {
    std::vector<MatrixError> errors;
    uint64_t source_bytes = 0;
    uint64_t bytes = 0;
    size_t n_copied = 0;
    std::string note;  // what is not in the output, or ""
};

// A folder: the shards of the source with the experts' matrices replaced, its other files, and a
// config.json that says so.
QuantizeResult quantize_to_safetensors(const QuantizeJob& job);
// One file.
QuantizeResult quantize_to_gguf(const QuantizeJob& job);

}  // namespace moe::cli
