// What a stage must move and multiply when it is called alone.
#pragma once

#include "bench/cases.hpp"

namespace moe::bench {

struct Work {
    double bytes;
    double flops;
};

// weight_bytes: of the weights that the stage must read, as they are packed. Activations are
// bfloat16, each read or written once: rows between the stages lie in device memory.
Work work_of_stage(moe_stage stage, const Model& model, int64_t n_tokens, double weight_bytes);
}  // namespace moe::bench
