// The stages of a layer, each called alone through moe.h and timed in the same way as the whole
// layer.
#pragma once

#include <functional>

#include "bench/device.hpp"
#include "bench/stage_work.hpp"

namespace moe::bench {

struct StageResult {
    std::string name;  // stage name, or "chain"
    Timing time;
    Work work;
};

struct StageInputs {
    Case what;
    const moe_plan* plan;
    moe_workspace* workspace;
    int n_calls;
    // These return the inputs of the call with that number.
    std::function<const moe_weights*(int)> weights_of;
    std::function<const void*(int)> x_of;
    std::function<int32_t*(int)> ids_of;  // with a router: the buffer of its choice
    bool ids_are_given;
    float* slot_weights;  // [T, k], written where there is a router
    void* out;
    // Bytes of the weights that a call must read.
    double router_bytes, experts_bytes, shared_bytes;
};

// Returns the stages of the case in the order of the layer, then "chain": all stages but dispatch,
// call by call in one graph. experts begins at ids and sorts the slots itself, the same as
// moe_forward; dispatch is for engines that move rows. A stage alone finds small weights (router,
// shared expert) in L2, but the chain does not.
std::vector<StageResult> run_stages(const StageInputs& inputs);

}  // namespace moe::bench
