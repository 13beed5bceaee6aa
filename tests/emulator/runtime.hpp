// Declarations that the files of the emulated CUDA runtime share: the emulated machine, its memory
// and kernels, errors, and the rules of every call.
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
    int multiprocessors;  // of the real GPU; MOE_EMULATOR_MULTIPROCESSORS sets the reported number
    int threads, blocks;  // maximum resident on an SM
    int shared_kb;        // per SM
    int shared_optin_kb;  // maximum of a block, after cudaFuncSetAttribute
    int memory_gb, l2_mb;
    int bus_bits, memory_mhz, clock_mhz;
};

// The environment sets these and is read once. A value that is not possible ends the process.
const Machine& machine();
int multiprocessors();
int host_threads();  // threads that split a launch
int n_devices();

Memory& memory();
Program& program();
// Version of the PTX that the kernels come from: 80 for sm_80, 90 for sm_90a.
int ptx_version();

// The current device of this thread. The first call that needs a context makes one current.
int current_device();
cudaError_t set_device(int index);
void need_context();

// Requirements of a call besides its own work. A fault of a kernel stays: every later call but a
// query returns it.
enum class Call {
    query,      // works after a fault, too
    on_device,  // needs a context and ended launches
    launch,     // needs a context
    unsafe,     // likewise; refused while a capture is under way that it would disturb
};
cudaError_t call(Call kind, const std::function<cudaError_t()>& work);

// Runs `work` now, after launches have ended, or adds it to the graph that `stream` is captured
// into. A launch may begin early.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
cudaError_t enqueue_launch(cudaStream_t stream, bool begins_early, LaunchChain::Body body);
// The launches of all streams that may not have ended.
LaunchChain& launches();
bool is_capturing(cudaStream_t stream);
// Ends the captures that a call of this thread would violate; false if there are none.
bool spoil_captures();

// Tells whether `bytes` from `address` on are device or pinned memory.
bool is_ours(const void* address, size_t bytes);

}  // namespace emulator
