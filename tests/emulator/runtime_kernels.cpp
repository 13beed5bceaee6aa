// Kernels from the host's side: nvcc's code registers them, cudaFuncSetAttribute raises their
// shared memory limits, and <<<>>> or cudaLaunchKernelExC launches them.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/emulator/runtime.hpp"
#include "tests/emulator/runtime_program.hpp"

namespace emulator {
namespace {

constexpr uint32_t default_shared_limit = 48 << 10;
constexpr uint32_t reserved_shared = 1 << 10;  // reserved per block besides its request

// State of a kernel on one device. The first use loads its code, which a capture does not allow.
struct OnDevice {
    bool is_loaded = false;
    int dynamic_shared = -1;  // set by cudaFuncSetAttribute
};

struct Kernel {
    std::string registered;
    std::string name;  // in the PTX; empty before it is looked for
    std::map<int, OnDevice> on;
};

std::map<const void*, std::unique_ptr<Kernel>>& kernels() {
    static auto& kept = *new std::map<const void*, std::unique_ptr<Kernel>>;
    return kept;
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

thread_local std::vector<Configuration> configurations;

Kernel* kernel_of(const void* function) {
    const auto found = kernels().find(function);
    return found == kernels().end() ? nullptr : found->second.get();
}

// Tells whether the PTX has a kernel for this machine.
bool is_found(Kernel& kernel) {
    if (kernel.name.empty()) kernel.name = name_in_ptx(kernel.registered);
    return !kernel.name.empty();
}

uint32_t most_shared() {
    return static_cast<uint32_t>(machine().shared_optin_kb) << 10;
}

uint32_t most_dynamic(const OnDevice& on, uint32_t static_bytes) {
    if (on.dynamic_shared >= 0) return static_cast<uint32_t>(on.dynamic_shared);
    return default_shared_limit - std::min(default_shared_limit, static_bytes);
}

cudaError_t attributes_of(cudaFuncAttributes& out, const void* function) {
    Kernel* kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (!is_found(*kernel)) return cudaErrorNoKernelImageForDevice;
    const KernelFacts facts = program().facts(kernel->name);
    OnDevice& on = kernel->on[current_device()];
    on.is_loaded = true;
    out = {};
    out.sharedSizeBytes = facts.static_shared_bytes;
    out.maxThreadsPerBlock = static_cast<int>(facts.max_threads);
    out.maxDynamicSharedSizeBytes = static_cast<int>(most_dynamic(on, facts.static_shared_bytes));
    out.ptxVersion = ptx_version();
    out.binaryVersion = 10 * machine().major + machine().minor;
    return cudaSuccess;
}

// The registered name is that of the PTX, but for the hashes of internal names.
cudaError_t name_of(const char** out, const void* function) {
    const Kernel* kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *out = kernel->registered.c_str();
    return cudaSuccess;
}

cudaError_t set_attribute(const void* function, cudaFuncAttribute what, int value) {
    Kernel* kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (!is_found(*kernel)) return cudaErrorNoKernelImageForDevice;
    OnDevice& on = kernel->on[current_device()];
    on.is_loaded = true;
    if (what == cudaFuncAttributePreferredSharedMemoryCarveout)
        return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
    const KernelFacts facts = program().facts(kernel->name);
    if (value < 0 || facts.static_shared_bytes + static_cast<uint32_t>(value) > most_shared())
        return cudaErrorInvalidValue;
    on.dynamic_shared = value;
    return cudaSuccess;
}

cudaError_t read_attributes(const cudaLaunchConfig_t& config, Dim3& cluster, bool& begins_early) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttribute& one = config.attrs[i];
        switch (one.id) {
            case cudaLaunchAttributeIgnore:
                break;
            case cudaLaunchAttributeProgrammaticStreamSerialization:
                if (machine().major < 9) return cudaErrorNotSupported;
                begins_early = one.val.programmaticStreamSerializationAllowed != 0;
                break;
            case cudaLaunchAttributeClusterDimension:
                if (machine().major < 9) return cudaErrorNotSupported;
                cluster = {one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z};
                break;
            default:
                std::fprintf(stderr, "emulator: launch attribute %d is not made\n",
                             static_cast<int>(one.id));
                return cudaErrorNotSupported;
        }
    }
    return cudaSuccess;
}

cudaError_t check_sizes(const Launch& launch, const KernelFacts& facts, const OnDevice& on) {
    const Dim3 &grid = launch.grid, &block = launch.block, &cluster = launch.cluster;
    if (!grid.x || !grid.y || !grid.z || grid.x > 2147483647 || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
    if (threads > facts.max_threads) return cudaErrorInvalidValue;
    if (!cluster.x || !cluster.y || !cluster.z || grid.x % cluster.x || grid.y % cluster.y ||
        grid.z % cluster.z || uint64_t{cluster.x} * cluster.y * cluster.z > 8)
        return cudaErrorInvalidClusterSize;
    if (launch.dynamic_shared_bytes > most_dynamic(on, facts.static_shared_bytes) ||
        facts.static_shared_bytes + launch.dynamic_shared_bytes > most_shared())
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

uint32_t resident_blocks(const Launch& launch, const KernelFacts& facts) {
    const Machine& m = machine();
    const uint32_t threads = (launch.block.x * launch.block.y * launch.block.z + 31) / 32 * 32;
    const uint32_t shared =
        facts.static_shared_bytes + launch.dynamic_shared_bytes + reserved_shared;
    const uint32_t of_one =
        std::min({static_cast<uint32_t>(m.blocks), static_cast<uint32_t>(m.threads) / threads,
                  (static_cast<uint32_t>(m.shared_kb) << 10) / shared});
    return std::max(1u, of_one) * static_cast<uint32_t>(multiprocessors());
}

std::vector<std::byte> parameter_block(const std::string& kernel, uint32_t bytes, void** values) {
    std::vector<std::byte> block(bytes);
    size_t i = 0;
    for (const auto& [offset, size] : program().parameters(kernel))
        std::memcpy(block.data() + offset, values[i++], size);
    return block;
}

void run_kernel(const std::string& name, const Launch& launch, Neighbours& neighbours) {
    static const bool is_traced = std::getenv("MOE_EMULATOR_TRACE") != nullptr;
    const auto begin = std::chrono::steady_clock::now();
    program().run(name, launch, &neighbours);
    if (!is_traced) return;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "emulator: %8.3f s, %ux%ux%u blocks of %ux%ux%u: %s\n", time.count(),
                 launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x, launch.block.y,
                 launch.block.z, name.c_str());
}

cudaError_t launch_kernel(const void* function, const cudaLaunchConfig_t& config, void** values) {
    Kernel* kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (!is_found(*kernel)) return cudaErrorNoKernelImageForDevice;
    OnDevice& on = kernel->on[current_device()];
    if (is_capturing(config.stream) && !on.is_loaded) {
        std::fprintf(stderr, "emulator: %s is first launched under a capture\n",
                     kernel->name.c_str());
        return cudaErrorStreamCaptureUnsupported;
    }
    on.is_loaded = true;
    const KernelFacts facts = program().facts(kernel->name);
    Launch launch;
    launch.grid = {config.gridDim.x, config.gridDim.y, config.gridDim.z};
    launch.block = {config.blockDim.x, config.blockDim.y, config.blockDim.z};
    if (config.dynamicSmemBytes > UINT32_MAX) return cudaErrorInvalidValue;
    launch.dynamic_shared_bytes = static_cast<uint32_t>(config.dynamicSmemBytes);
    bool begins_early = false;
    if (const cudaError_t error = read_attributes(config, launch.cluster, begins_early);
        error != cudaSuccess)
        return error;
    if (const cudaError_t error = check_sizes(launch, facts, on); error != cudaSuccess)
        return error;
    launch.multiprocessors = static_cast<uint32_t>(multiprocessors());
    launch.host_threads = static_cast<uint32_t>(host_threads());
    launch.resident_blocks = resident_blocks(launch, facts);
    launch.parameters = parameter_block(kernel->name, facts.parameter_bytes, values);
    return enqueue_launch(config.stream, begins_early,
                          [name = kernel->name, launch = std::move(launch)](
                              Neighbours& neighbours) { run_kernel(name, launch, neighbours); });
}

}  // namespace
}  // namespace emulator

using emulator::Call;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
    return emulator::call(Call::on_device, [&] { return emulator::attributes_of(*out, function); });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value) {
    return emulator::call(Call::on_device,
                          [&] { return emulator::set_attribute(function, what, value); });
}

cudaError_t cudaFuncGetName(const char** out, const void* function) {
    return emulator::call(Call::query, [&] { return emulator::name_of(out, function); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** values) {
    return emulator::call(Call::launch,
                          [&] { return emulator::launch_kernel(function, *config, values); });
}

// Functions that crt/host_runtime.h calls. A kernel's handle is the address of its host function.
extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
    return new void*(binary);
}

void __cudaRegisterFatBinaryEnd(void**) {}

// Kernels stay registered at the end of the process, because others may still launch.
void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) {
    return 1;
}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
    auto& kernel = emulator::kernels()[function];
    kernel = std::make_unique<emulator::Kernel>();
    kernel->registered = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* function) {
    *out = static_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
    emulator::configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (emulator::configurations.empty()) return cudaErrorInvalidConfiguration;
    const emulator::Configuration last = emulator::configurations.back();
    emulator::configurations.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** values,
                               size_t shared, cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    return cudaLaunchKernelExC(&config, kernel, values);
}

}  // extern "C"
