// The CUDA backend as plan/ and api/ see it: what a device is, preparation of a plan's kernels, and
// the stages. Memory and streams are in device/. A build without CUDA links absent.cpp, whose
// functions answer MOE_ERROR_NOT_BUILT. Only these functions and those of device/ make CUDA calls,
// and none is called before a caller names a CUDA device.
#pragma once

#include "libmoe/base/memory.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/setup.hpp"

namespace moe::cuda {

bool is_built();
// Architectures of the machine code in this build: "sm_90a", "sm_80 sm_86 ..."; "" without CUDA.
const char* architectures();

// Fail with MOE_ERROR_NOT_BUILT, or MOE_ERROR_NO_DEVICE with the driver's own text.
int32_t device_count();
moe_device_info device_info(int32_t index);
DeviceFacts device_facts(int32_t index);
// The same where nothing stands in the way; false, and no error, without a driver or a device.
bool find_device(int32_t index, DeviceFacts& facts);

// Rates of memory and of bfloat16 GEMMs at the clocks that a device names; 0: unknown.
struct NominalRates {
    double bytes_per_us;
    double flops_per_us;
};
NominalRates nominal_rates(const DeviceFacts& device);

// Looks for the optional library where the setup can use it; path is
// moe_runtime_desc.cublaslt_path.
void choose_library(Setup& setup, const char* path, Memory& memory);

// Loads the kernels that the launch plan names and sets their attributes; fills in their functions.
void prepare(const Setup& setup, LaunchPlan& launch);

struct Call {
    const Setup& setup;
    const DeviceWeights& weights;
    FaultWords* faults;  // as the device sees it
    std::byte* scratch;  // scratch_bytes(setup, n_tokens) at least
    uint64_t scratch_size;
    void* stream;
};

uint64_t scratch_bytes(const Setup& setup, int64_t n_tokens);

// Arguments have been checked and their defaults filled in (api/arguments.hpp).
void forward(const Call& call, const moe_forward_args& args);
void route(const Call& call, const moe_route_args& args);
void dispatch_rows(const Call& call, const moe_dispatch_args& args);
void gather(const Call& call, const moe_gather_args& args);
void experts(const Call& call, const moe_experts_args& args);
void combine(const Call& call, const moe_combine_args& args);
void finish(const Call& call, const moe_finish_args& args);

}  // namespace moe::cuda
