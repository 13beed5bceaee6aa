// measure.hpp - what a timed call was: its kernels, the weights it touched, the middle of its
// times.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layer_call.hpp"

namespace moe::cli {

// Experts that at least one token chose.
int64_t experts_hit(const CallResult& result);
// Bytes of weights that the call had to read: the experts hit, and all that is not an expert's.
uint64_t touched_bytes(const moe_memory_report& report, int64_t n_hit);
double median(std::vector<double> values);
// (stage, kernel), in the order of the stages.
std::vector<std::pair<std::string, std::string>> kernels_of(const moe_plan* plan, int64_t n_tokens);
moe_memory_report memory_of(const moe_weights* weights);

}  // namespace moe::cli
