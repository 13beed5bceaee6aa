// The handles of moe.h as std::unique_ptr.
#pragma once

#include <memory>

#include "moe/moe.h"

namespace clients {

template <auto destroy>
struct Destroy {
    template <class Handle>
    void operator()(Handle* handle) const {
        destroy(handle);
    }
};

using Runtime = std::unique_ptr<moe_runtime, Destroy<moe_runtime_destroy>>;
using Plan = std::unique_ptr<moe_plan, Destroy<moe_plan_destroy>>;
using Weights = std::unique_ptr<moe_weights, Destroy<moe_weights_destroy>>;
using Workspace = std::unique_ptr<moe_workspace, Destroy<moe_workspace_destroy>>;
using Checkpoint = std::unique_ptr<moe_checkpoint, Destroy<moe_checkpoint_destroy>>;
using Loading = std::unique_ptr<moe_loading, Destroy<moe_loading_destroy>>;

}  // namespace clients
