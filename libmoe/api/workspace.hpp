// The workspace handle: scratch memory, the meeting place of SPMD threads, and what went wrong at
// run time.
#pragma once

#include "libmoe/base/handle.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/base/team.hpp"
#include "libmoe/cpu/setup.hpp"

struct moe_workspace : moe::Tagged<0x4D4F45776F726B73> {
    explicit moe_workspace(moe_runtime* shared_runtime) : runtime(shared_runtime) {}

    moe::RuntimeRef runtime;
    moe::Block owned;
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    moe::Rendezvous rendezvous;
    moe::cpu::Faults faults;
    std::atomic<bool> busy{false};
};
