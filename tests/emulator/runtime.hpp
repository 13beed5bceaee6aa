// What the files of the emulated CUDA runtime share: the machine that it says it is, its memory and
// kernels, errors, and the rules that every call keeps.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "tests/emulator/launch_chain.hpp"
#include "tests/emulator/machine.hpp"

namespace emulator {

struct Machine {
    const char* name;
    int major, minor;
    int multiprocessors;  // of the real one; MOE_EMULATOR_MULTIPROCESSORS is what it says
    int threads, blocks;  // resident on a multiprocessor
    int shared_kb;        // of a multiprocessor
    int shared_optin_kb;  // most of a block, after cudaFuncSetAttribute
    int memory_gb, l2_mb;
    int bus_bits, memory_mhz, clock_mhz;
};

// By the environment, read once. What it says that cannot be ends the process.
const Machine& machine();
int multiprocessors();
int host_threads();  // that share a launch
int n_devices();

Memory& memory();
Program& program();
// Of the PTX that the kernels are read from: 80 of sm_80, 90 of sm_90a.
int ptx_version();

// The current device of this thread; a context of it is made current by the first call that needs
// one.
int current_device();
cudaError_t set_device(int index);
void need_context();

// What a call does besides its own work. A fault of a kernel stays: every later call but a query
// returns it.
enum class Call {
    query,      // asks for nothing that a fault would have taken away
    on_device,  // needs a context, and that launches have ended
    launch,     // needs a context
    unsafe,     // likewise; refused while a capture is under way that it would disturb
};
cudaError_t call(Call kind, const std::function<cudaError_t()>& work);

// Runs `work` now, when launches have ended, or keeps it in the graph that `stream` is captured
// into. A launch may begin early.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
cudaError_t enqueue_launch(cudaStream_t stream, bool begins_early, LaunchChain::Body body);
// The launches that may not have ended, of all streams.
LaunchChain& launches();
bool is_capturing(cudaStream_t stream);
// Ends the captures that a call of this thread must not be made under; false if there are none.
bool spoil_captures();

// Memory of the device or pinned, `bytes` of it from `address` on.
bool is_ours(const void* address, size_t bytes);

}  // namespace emulator
