// Minimum bytes and FLOPs of a stage that is called alone.
#pragma once

#include "bench/cases.hpp"

namespace moe::bench {

struct Work {
    double bytes;
    double flops;
};

// weight_bytes are the packed weights that the stage must read. Activations are bfloat16, each read
// or written once, because rows between the stages are in device memory.
Work work_of_stage(moe_stage stage, const Model& model, int64_t n_tokens, double weight_bytes);
}  // namespace moe::bench
