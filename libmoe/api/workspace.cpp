// moe_workspace_*.
#include "libmoe/api/workspace.hpp"

#include "libmoe/base/arena.hpp"

#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

// Of CUDA's allocations, and of what a caller gives instead.
constexpr uint64_t device_alignment = 256;

void choose_device(moe_workspace& workspace, const moe_workspace_desc& desc) {
    require(desc.device == MOE_DEVICE_AUTO || desc.device == MOE_DEVICE_CPU ||
                desc.device == MOE_DEVICE_CUDA,
            "device is {}, not a moe_device_kind", static_cast<int32_t>(desc.device));
    workspace.device = desc.device                         ? desc.device
                       : desc.plan && desc.plan->is_cuda() ? MOE_DEVICE_CUDA
                                                           : MOE_DEVICE_CPU;
    const bool of_plan = desc.device == MOE_DEVICE_AUTO && desc.plan != nullptr;
    workspace.device_index = of_plan ? desc.plan->device_index : desc.device_index;
    if (!desc.plan) return;
    require(
        desc.plan->device == workspace.device && desc.plan->device_index == workspace.device_index,
        "device is {} and device_index {}, the plan is for device {} and index {}",
        static_cast<int32_t>(workspace.device), workspace.device_index,
        static_cast<int32_t>(desc.plan->device), desc.plan->device_index);
}

void check_host_only(const moe_workspace_desc& desc) {
    require(desc.device_index == 0, "device_index is {}, there is one CPU device",
            desc.device_index);
    require(desc.device_bytes == 0 && desc.device_memory == nullptr,
            "device_bytes is {}: a CPU workspace has host memory only", desc.device_bytes);
}

void give_host_memory(moe_workspace& workspace, const moe_workspace_desc& desc) {
    check_host_only(desc);
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

void make_header(moe_workspace& workspace, void* stream) {
    workspace.header =
        cuda::DeviceMemory(workspace.runtime->memory, MOE_SPACE_PINNED, sizeof(cuda::FaultWords),
                           alignof(cuda::FaultWords), workspace.device_index, stream);
    workspace.fault_words = new (workspace.header.data()) cuda::FaultWords{};
}

// Host memory that is given is not needed and not used.
void give_device_memory(moe_workspace& workspace, const moe_workspace_desc& desc) {
    const cuda::UseDevice use(workspace.device_index);
    uint64_t bytes = desc.device_bytes;
    if (bytes == 0 && desc.plan)
        bytes = desc.plan->workspace_need(desc.plan->max_tokens).device_bytes;
    require(bytes > 0, "device_bytes is 0 and there is no plan to size the workspace by");
    const auto address = reinterpret_cast<uintptr_t>(desc.device_memory);
    require(address % device_alignment == 0, "device_memory is at {:#x}, needs a multiple of {}",
            address, device_alignment);
    make_header(workspace, desc.stream);
    workspace.bytes = bytes;
    if (desc.device_memory) {
        workspace.memory = static_cast<std::byte*>(desc.device_memory);
        return;
    }
    workspace.device_memory =
        cuda::DeviceMemory(workspace.runtime->memory, MOE_SPACE_DEVICE, bytes, device_alignment,
                           workspace.device_index, desc.stream);
    workspace.memory = workspace.device_memory.data();
}

void give_memory(moe_workspace& workspace, const moe_workspace_desc& desc) {
    choose_device(workspace, desc);
    if (workspace.device == MOE_DEVICE_CUDA)
        give_device_memory(workspace, desc);
    else
        give_host_memory(workspace, desc);
}

// Tells and then forgets what was told, no more: a device may add to it meanwhile.
template <class Bits, class Skipped>
void tell_faults(Bits& bits, Skipped& n_skipped, moe_workspace_faults* out) {
    moe_workspace_faults faults{};
    faults.struct_size = sizeof faults;
    faults.faults = bits.load();
    faults.n_skipped = static_cast<int64_t>(n_skipped.load());
    write_struct(out, faults, "moe_workspace_faults");
    bits.fetch_and(~faults.faults);
    n_skipped.fetch_sub(faults.n_skipped);
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
        if (cuda::FaultWords* words = workspace->fault_words) {
            std::atomic_ref bits(words->bits);
            std::atomic_ref n_skipped(words->n_skipped);
            return tell_faults(bits, n_skipped, out_faults);
        }
        tell_faults(workspace->faults.bits, workspace->faults.n_skipped, out_faults);
    });
}
