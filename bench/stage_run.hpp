// The stages of a layer, each called alone through moe.h and timed as the whole layer is.
#pragma once

#include <functional>

#include "bench/device.hpp"
#include "bench/stage_work.hpp"

namespace moe::bench {

struct StageResult {
    std::string name;  // of the stage, or "chain"
    Timing time;
    Work work;
};

struct StageInputs {
    Case what;
    const moe_plan* plan;
    moe_workspace* workspace;
    int n_calls;
    // Of the call with that number.
    std::function<const moe_weights*(int)> weights_of;
    std::function<const void*(int)> x_of;
    std::function<int32_t*(int)> ids_of;  // where the router chooses, room for what it chooses
    bool ids_are_given;
    float* slot_weights;  // [T, k], written where there is a router
    void* out;
    // Of the weights that a call must read.
    double router_bytes, experts_bytes, shared_bytes;
};

// In the order of the layer, those that the case has; then "chain", which is all but dispatch, call
// by call in one graph. experts begins at ids and sorts the slots itself, as moe_forward does;
// dispatch is for engines that move rows. A stage alone finds small weights (router, shared expert)
// in the L2, which the chain does not.
std::vector<StageResult> run_stages(const StageInputs& inputs);

}  // namespace moe::bench
