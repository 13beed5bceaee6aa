// The named lists of cases of moe-bench-cpu.
#pragma once

#include <string>
#include <vector>

#include "bench/cpu/layer.hpp"

namespace moe::bench {

// A model of bench/cases.cpp, or one of them with fewer experts: gpt-oss-20b, and dsv3-e32, whose
// weights fit the memory of small machines. Throws for an unknown name.
Model cpu_model(const std::string& name);

// full: four models, every format that fits them, T = 1, 4, 16, 64, 512, on 1, 2 and 16 threads.
// short: qwen3-30b in every format, T = 1, 16, 512, and one format of each other model at T = 1 and
// 16, on as many of these threads as there are. n_processors: more threads than that are left out.
// Cases of one model and format stand together. Throws for an unknown name.
std::vector<CpuCase> cpu_list(const std::string& name, int32_t n_processors);

// Those whose kernels are calibrated: of the list full, and others that models have.
std::vector<std::string> calibrated_formats();

}  // namespace moe::bench
