// moe_workspace_*.
#include "libmoe/api/workspace.hpp"

#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/base/arena.hpp"
#include "libmoe/base/pages.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

// Of CUDA's allocations, and of what a caller gives instead.
constexpr uint64_t workspace_alignment = 256;

void choose_device(moe_workspace& workspace, const moe_workspace_desc& desc) {
    require(desc.device == MOE_DEVICE_AUTO || desc.device == MOE_DEVICE_CPU ||
                desc.device == MOE_DEVICE_CUDA,
            "device is {}, not a moe_device_kind", static_cast<int32_t>(desc.device));
    workspace.device = desc.device                         ? desc.device
                       : desc.plan && desc.plan->is_cuda() ? MOE_DEVICE_CUDA
                                                           : MOE_DEVICE_CPU;
    if (workspace.device == MOE_DEVICE_CUDA && !cuda::is_built())
        fail(MOE_ERROR_NOT_BUILT,
             "device is MOE_DEVICE_CUDA: the CUDA backend is not built into this library");
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
    advise_huge_pages(workspace.memory, bytes);
}

void make_fault_words(moe_workspace& workspace, void* stream) {
    Memory& memory = workspace.runtime->memory;
    const int32_t device = workspace.device_index;
    workspace.shown_memory = device::DeviceMemory(memory, MOE_SPACE_PINNED, sizeof(cuda::FaultSums),
                                                  alignof(cuda::FaultSums), device, stream);
    workspace.fault_memory = device::DeviceMemory(
        memory, MOE_SPACE_DEVICE, sizeof(cuda::FaultWords), workspace_alignment, device, stream);
    cuda::FaultWords words{};
    words.shown = new (workspace.shown_memory.data()) cuda::FaultSums{};
    device::upload(workspace.fault_memory.data(), &words, sizeof words, stream);
    device::synchronize(stream);
}

// Host memory that is given is not needed and not used.
void give_device_memory(moe_workspace& workspace, const moe_workspace_desc& desc) {
    const device::UseDevice use(workspace.device_index);
    uint64_t bytes = desc.device_bytes;
    if (bytes == 0 && desc.plan)
        bytes = desc.plan->workspace_need(desc.plan->max_tokens).device_bytes;
    require(bytes > 0, "device_bytes is 0 and there is no plan to size the workspace by");
    const auto address = reinterpret_cast<uintptr_t>(desc.device_memory);
    require(address % workspace_alignment == 0, "device_memory is at {:#x}, needs a multiple of {}",
            address, workspace_alignment);
    make_fault_words(workspace, desc.stream);
    workspace.bytes = bytes;
    if (desc.device_memory) {
        workspace.memory = static_cast<std::byte*>(desc.device_memory);
        return;
    }
    workspace.device_memory =
        device::DeviceMemory(workspace.runtime->memory, MOE_SPACE_DEVICE, bytes,
                             workspace_alignment, workspace.device_index, desc.stream);
    workspace.memory = workspace.device_memory.data();
}

void give_memory(moe_workspace& workspace, const moe_workspace_desc& desc) {
    choose_device(workspace, desc);
    if (workspace.device == MOE_DEVICE_CUDA)
        give_device_memory(workspace, desc);
    else
        give_host_memory(workspace, desc);
}

// Both tell and then forget what was told, no more: a running call may add to it meanwhile.
void tell_host_faults(cpu::Faults& found, moe_workspace_faults* out) {
    moe_workspace_faults faults{};
    faults.struct_size = sizeof faults;
    faults.faults = found.bits.load();
    faults.n_skipped = static_cast<int64_t>(found.n_skipped.load());
    write_struct(out, faults, "moe_workspace_faults");
    found.bits.fetch_and(~faults.faults);
    found.n_skipped.fetch_sub(faults.n_skipped);
}

void tell_device_faults(moe_workspace& workspace, moe_workspace_faults* out) {
    const std::lock_guard lock(workspace.telling);
    const auto load = [](unsigned long long& word) { return std::atomic_ref(word).load(); };
    cuda::FaultSums& shown = *workspace.shown_faults();
    cuda::FaultSums now{};
    moe_workspace_faults faults{};
    faults.struct_size = sizeof faults;
    for (int kind = 0; kind < cuda::n_fault_kinds; ++kind) {
        now.reports[kind] = load(shown.reports[kind]);
        if (now.reports[kind] != workspace.told.reports[kind]) faults.faults |= 1u << kind;
    }
    now.n_skipped = load(shown.n_skipped);
    faults.n_skipped = static_cast<int64_t>(now.n_skipped - workspace.told.n_skipped);
    write_struct(out, faults, "moe_workspace_faults");
    workspace.told = now;
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
        if (workspace->device == MOE_DEVICE_CUDA)
            tell_device_faults(*workspace, out_faults);
        else
            tell_host_faults(workspace->faults, out_faults);
    });
}
