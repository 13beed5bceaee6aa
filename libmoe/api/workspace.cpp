// moe_workspace_*.
#include "libmoe/api/workspace.hpp"

#include "libmoe/base/arena.hpp"

#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

void check_device(const moe_workspace_desc& desc) {
    if (desc.device == MOE_DEVICE_CUDA)
        fail(MOE_ERROR_NOT_BUILT,
             "device is MOE_DEVICE_CUDA: the CUDA backend is not built into this library");
    require(desc.device == MOE_DEVICE_AUTO || desc.device == MOE_DEVICE_CPU,
            "device is {}, not a moe_device_kind", static_cast<int32_t>(desc.device));
    require(desc.device_index == 0, "device_index is {}, there is one CPU device",
            desc.device_index);
    require(desc.device_bytes == 0 && desc.device_memory == nullptr,
            "device_bytes is {}: a CPU workspace has host memory only", desc.device_bytes);
}

void give_memory(moe_workspace& workspace, const moe_workspace_desc& desc) {
    uint64_t bytes = desc.host_bytes;
    if (bytes == 0 && desc.plan)
        bytes = desc.plan->workspace_need(desc.plan->max_tokens).host_bytes;
    require(bytes > 0, "host_bytes is 0 and there is no plan to size the workspace by");
    const auto address = reinterpret_cast<uintptr_t>(desc.host_memory);
    require(address % Arena::alignment == 0, "host_memory is at {:#x}, needs a multiple of {}",
            address, Arena::alignment);
    workspace.bytes = bytes;
    if (desc.host_memory) {
        workspace.memory = static_cast<std::byte*>(desc.host_memory);
        return;
    }
    workspace.owned = Block(workspace.runtime->memory, bytes, Arena::alignment);
    workspace.memory = workspace.owned.data();
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_workspace_create(moe_runtime* runtime, const moe_workspace_desc* given,
                                moe_workspace** out_workspace) noexcept {
    return guard([&] {
        check_out(out_workspace, "out_workspace");
        if (runtime) check_handle(runtime, "runtime");
        const moe_workspace_desc desc = read_struct(given, "moe_workspace_desc");
        if (desc.plan) check_handle(desc.plan, "plan");
        check_device(desc);
        RuntimeRef ref(runtime);
        moe_workspace* workspace = create_in<moe_workspace>(ref->memory, &*ref);
        try {
            give_memory(*workspace, desc);
        } catch (...) {
            destroy_in(ref->memory, workspace);
            throw;
        }
        *out_workspace = workspace;
    });
}

void moe_workspace_destroy(moe_workspace* workspace) noexcept {
    if (!workspace || !is_living(workspace)) return;
    RuntimeRef ref(&*workspace->runtime);
    destroy_in(ref->memory, workspace);
}

moe_status moe_workspace_status(moe_workspace* workspace,
                                moe_workspace_faults* out_faults) noexcept {
    return guard([&] {
        check_handle(workspace, "workspace");
        check_out(out_faults, "out_faults");
        moe_workspace_faults faults{};
        faults.struct_size = sizeof faults;
        faults.faults = workspace->faults.bits.load();
        faults.n_skipped = workspace->faults.n_skipped.load();
        write_struct(out_faults, faults, "moe_workspace_faults");
        // Only what was told is forgotten.
        workspace->faults.bits.fetch_and(~faults.faults);
        workspace->faults.n_skipped.fetch_sub(faults.n_skipped);
    });
}
