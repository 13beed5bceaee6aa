// The workspace handle: scratch memory, the meeting place of SPMD threads, and what went wrong at
// run time.
#pragma once

#include <mutex>

#include "libmoe/base/handle.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/base/team.hpp"
#include "libmoe/cpu/setup.hpp"
#include "libmoe/cuda/backend.hpp"
#include "libmoe/device/device_memory.hpp"

struct moe_workspace : moe::Tagged<0x4D4F45776F726B73> {
    explicit moe_workspace(moe_runtime* shared_runtime) : runtime(shared_runtime) {}

    moe::RuntimeRef runtime;
    moe_device_kind device = MOE_DEVICE_CPU;
    moe::Block owned;
    std::byte* memory = nullptr;  // of the device
    uint64_t bytes = 0;
    moe::Rendezvous rendezvous;
    moe::cpu::Faults faults;
    std::atomic<bool> busy{false};

    // A CUDA workspace's.
    int32_t device_index = 0;
    moe::device::DeviceMemory device_memory;  // unless the caller gave it
    moe::device::DeviceMemory fault_memory;   // of the device: FaultWords
    moe::device::DeviceMemory shown_memory;   // pinned: FaultSums
    std::mutex telling;
    moe::cuda::FaultSums told{};

    moe::cuda::FaultWords* fault_words() const {
        return reinterpret_cast<moe::cuda::FaultWords*>(fault_memory.data());
    }
    moe::cuda::FaultSums* shown_faults() const {
        return reinterpret_cast<moe::cuda::FaultSums*>(shown_memory.data());
    }
};
