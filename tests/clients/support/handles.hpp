// The handles of moe.h as std::unique_ptr, and their creation with every failure a failed check.
#pragma once

#include "support/check.hpp"
#include "support/owners.hpp"

namespace clients {

inline Runtime make_runtime(const moe_runtime_desc& desc) {
    moe_runtime* runtime = nullptr;
    CHECK_OK(moe_runtime_create(&desc, &runtime));
    return Runtime(runtime);
}

inline Runtime make_runtime(int32_t n_threads) {
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = n_threads;
    return make_runtime(desc);
}

inline Plan make_plan(moe_runtime* runtime, const moe_plan_desc& desc) {
    moe_plan* plan = nullptr;
    CHECK_OK(moe_plan_create(runtime, &desc, &plan));
    return Plan(plan);
}

inline Weights load_weights(const moe_plan* plan, const moe_weights_desc& desc) {
    moe_weights* weights = nullptr;
    CHECK_OK(moe_weights_load(plan, &desc, &weights));
    return Weights(weights);
}

// Large enough for the plan at its max_tokens.
inline Workspace make_workspace(moe_runtime* runtime, const moe_plan* plan) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    moe_workspace* workspace = nullptr;
    CHECK_OK(moe_workspace_create(runtime, &desc, &workspace));
    return Workspace(workspace);
}

inline Checkpoint open_checkpoint(moe_runtime* runtime, const char* path,
                                  const moe_checkpoint_options* options = nullptr) {
    moe_checkpoint* checkpoint = nullptr;
    CHECK_OK(moe_checkpoint_open(runtime, path, options, &checkpoint));
    return Checkpoint(checkpoint);
}

inline moe_format format_of_name(const char* name) {
    auto format = sized<moe_format>();
    CHECK_OK(moe_format_by_name(name, &format));
    return format;
}

inline moe_memory_report memory_of(const Weights& weights) {
    auto report = sized<moe_memory_report>();
    CHECK_OK(moe_weights_memory(weights.get(), &report));
    return report;
}

inline moe_workspace_faults take_faults(const Workspace& workspace) {
    auto faults = sized<moe_workspace_faults>();
    CHECK_OK(moe_workspace_status(workspace.get(), &faults));
    return faults;
}

}  // namespace clients
