// Device queries of the emulated machine. MOE_EMULATOR_CAPABILITY chooses among real GPUs;
// MOE_EMULATOR_MULTIPROCESSORS and MOE_EMULATOR_DEVICES set the numbers of SMs and devices.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulator/runtime.hpp"

namespace emulator {
namespace {

constexpr int default_multiprocessors = 8;
constexpr int default_devices = 2;  // the second one serves refusals only

//  name, capability, SMs; threads, blocks and shared memory per SM, maximum of a block; GB, L2;
//  bus, clocks
constexpr Machine machines[] = {
    {"A100", 8, 0, 108, 2048, 32, 164, 163, 80, 40, 5120, 1593, 1410},
    {"RTX A6000", 8, 6, 84, 1536, 16, 100, 99, 48, 6, 384, 8001, 1800},
    {"L40S", 8, 9, 142, 1536, 24, 100, 99, 48, 96, 384, 9001, 2520},
    {"H200", 9, 0, 132, 2048, 32, 228, 227, 139, 50, 6144, 3201, 1980},
    {"B200", 10, 0, 148, 2048, 32, 228, 227, 179, 126, 8192, 3996, 1965},
    {"RTX PRO 6000 Blackwell", 12, 0, 188, 1536, 24, 100, 99, 95, 128, 512, 14001, 2617},
};

[[noreturn]] void refuse(const char* variable, const char* value) {
    std::fprintf(stderr, "emulator: %s=%s is not possible\n", variable, value);
    std::exit(2);
}

const Machine& find_machine() {
    const char* wanted = std::getenv("MOE_EMULATOR_CAPABILITY");
    if (!wanted || !*wanted) wanted = "9.0";
    for (const Machine& one : machines) {
        char text[16];
        std::snprintf(text, sizeof text, "%d.%d", one.major, one.minor);
        if (std::strcmp(text, wanted) == 0) return one;
    }
    refuse("MOE_EMULATOR_CAPABILITY", wanted);
}

int number(const char* variable, int otherwise, int most) {
    const char* text = std::getenv(variable);
    if (!text || !*text) return otherwise;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end || value < 1 || value > most) refuse(variable, text);
    return static_cast<int>(value);
}

void describe(cudaDeviceProp& out) {
    const Machine& m = machine();
    out = {};
    std::snprintf(out.name, sizeof out.name, "%s, emulated", m.name);
    out.totalGlobalMem = size_t{1} << 30;
    out.totalGlobalMem *= static_cast<size_t>(m.memory_gb);
    out.sharedMemPerBlock = 48 << 10;
    out.sharedMemPerBlockOptin = static_cast<size_t>(m.shared_optin_kb) << 10;
    out.sharedMemPerMultiprocessor = static_cast<size_t>(m.shared_kb) << 10;
    out.reservedSharedMemPerBlock = 1 << 10;
    out.regsPerBlock = out.regsPerMultiprocessor = 65536;
    out.warpSize = 32;
    out.maxThreadsPerBlock = 1024;
    out.maxThreadsDim[0] = out.maxThreadsDim[1] = 1024;
    out.maxThreadsDim[2] = 64;
    out.maxGridSize[0] = 2147483647;
    out.maxGridSize[1] = out.maxGridSize[2] = 65535;
    out.major = m.major;
    out.minor = m.minor;
    out.multiProcessorCount = multiprocessors();
    out.maxThreadsPerMultiProcessor = m.threads;
    out.maxBlocksPerMultiProcessor = m.blocks;
    out.l2CacheSize = m.l2_mb << 20;
    out.memoryBusWidth = m.bus_bits;
    out.unifiedAddressing = 1;
    out.canMapHostMemory = 1;
    out.clusterLaunch = m.major >= 9;
}

bool find_attribute(cudaDeviceAttr what, int& out) {
    const Machine& m = machine();
    switch (what) {
        case cudaDevAttrMultiProcessorCount:
            out = multiprocessors();
            return true;
        case cudaDevAttrGlobalMemoryBusWidth:
            out = m.bus_bits;
            return true;
        case cudaDevAttrMemoryClockRate:
            out = m.memory_mhz * 1000;
            return true;
        case cudaDevAttrClockRate:
            out = m.clock_mhz * 1000;
            return true;
        case cudaDevAttrComputeCapabilityMajor:
            out = m.major;
            return true;
        case cudaDevAttrComputeCapabilityMinor:
            out = m.minor;
            return true;
        case cudaDevAttrL2CacheSize:
            out = m.l2_mb << 20;
            return true;
        default:
            return false;
    }
}

}  // namespace

const Machine& machine() {
#ifdef MOE_EMULATOR_NEEDS_AVX2
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        std::fprintf(stderr, "emulator: built on a machine with AVX2, this one has none\n");
        std::exit(2);
    }
#endif
    static const Machine& found = find_machine();
    return found;
}

int multiprocessors() {
    static const int n = number("MOE_EMULATOR_MULTIPROCESSORS", default_multiprocessors, 1024);
    return n;
}

int host_threads() {
    static const int n = number("MOE_EMULATOR_THREADS", 1, 256);
    return n;
}

int n_devices() {
    static const int n = number("MOE_EMULATOR_DEVICES", default_devices, 8);
    return n;
}

}  // namespace emulator

using emulator::Call;

cudaError_t cudaGetDeviceCount(int* out) {
    return emulator::call(Call::query, [&] {
        *out = emulator::n_devices();
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int* out) {
    return emulator::call(Call::query, [&] {
        *out = emulator::current_device();
        return cudaSuccess;
    });
}

cudaError_t cudaSetDevice(int index) {
    return emulator::call(Call::query, [&] { return emulator::set_device(index); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int index) {
    return emulator::call(Call::query, [&] {
        if (index < 0 || index >= emulator::n_devices()) return cudaErrorInvalidDevice;
        emulator::describe(*out);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr what, int index) {
    return emulator::call(Call::query, [&] {
        if (index < 0 || index >= emulator::n_devices()) return cudaErrorInvalidDevice;
        if (emulator::find_attribute(what, *out)) return cudaSuccess;
        std::fprintf(stderr, "emulator: device attribute %d is not made\n", static_cast<int>(what));
        return cudaErrorNotSupported;
    });
}

cudaError_t cudaDriverGetVersion(int* out) {
    *out = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* out) {
    *out = CUDART_VERSION;
    return cudaSuccess;
}
