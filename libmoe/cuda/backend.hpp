// The door between the library and its CUDA backend. A build without CUDA links absent.cpp instead,
// whose functions answer MOE_ERROR_NOT_BUILT. No function but these makes a CUDA call, and none of
// them is called before somebody asks for a CUDA device.
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

// What the clocks of a device say of its memory and of its products of bfloat16; 0: not told.
struct NominalRates {
    double bytes_per_us;
    double flops_per_us;
};
NominalRates nominal_rates(const DeviceFacts& device);

// Makes the caller's current context fit for a device: keeps a current context of that device,
// makes the device's primary context current for its life when there is none, fails with
// MOE_ERROR_INVALID_ARGUMENT when the current one belongs to another device. Restores what was
// current. Fails with MOE_ERROR_FORKED in a child of the process that first used CUDA.
class UseDevice {
  public:
    explicit UseDevice(int32_t index);
    ~UseDevice();
    UseDevice(const UseDevice&) = delete;
    UseDevice& operator=(const UseDevice&) = delete;

  private:
    bool pushed_ = false;
};

// Memory of a device, and of the host that it reads and writes; MOE_ERROR_OUT_OF_MEMORY.
// Memory::allocate_in comes here when the caller's allocator does not serve the space.
void* allocate(moe_space space, uint64_t bytes);
void release(moe_space space, void* memory) noexcept;

// Ordered on stream; `synchronize` waits for it. The host memory of upload must stay until then.
void upload(void* to, const void* from, uint64_t bytes, void* stream);
void download(void* to, const void* from, uint64_t bytes, void* stream);
void fill_zero(void* to, uint64_t bytes, void* stream);
void synchronize(void* stream);
// Each side may be host, pinned or device memory: the driver knows which by the address.
void copy(void* to, const void* from, uint64_t bytes, void* stream);

// A stream of the current context that does not wait for the default stream.
void* make_stream();
void destroy_stream(void* stream);

// Looks for the optional library where the setup can use it; path is
// moe_runtime_desc.cublaslt_path.
void choose_library(Setup& setup, const char* path, Memory& memory);

// Loads the kernels that the launch plan names and sets their attributes; fills in their functions.
void prepare(const Setup& setup, LaunchPlan& launch);

// Can the family read weights of the type?
bool grouped_supports(PackedType type);
bool gemv_supports(PackedType type);

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
void experts(const Call& call, const moe_experts_args& args);
void combine(const Call& call, const moe_combine_args& args);
void finish(const Call& call, const moe_finish_args& args);

}  // namespace moe::cuda
