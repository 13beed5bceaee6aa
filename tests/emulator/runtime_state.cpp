// Errors and contexts of the emulated runtime, and the guard around its calls. One call runs at a
// time. A launch has ended when the next call other than a launch begins. Nothing is destroyed at
// the end of the process, because calls may still come.
#include <cstdio>
#include <mutex>
#include <new>
#include <utility>

#include "tests/emulator/runtime.hpp"
#include "tests/emulator/runtime_context.hpp"

namespace emulator {
namespace {

std::recursive_mutex& mutex() {
    static auto& kept = *new std::recursive_mutex;
    return kept;
}

cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;

cudaError_t run(Call kind, const std::function<cudaError_t()>& work) {
    if (kind == Call::query) return work();
    if (sticky != cudaSuccess) return sticky;
    need_context();
    if (kind != Call::launch) launches().finish();
    if (kind == Call::unsafe && spoil_captures()) return cudaErrorStreamCaptureUnsupported;
    return work();
}

cudaError_t guarded(Call kind, const std::function<cudaError_t()>& work) {
    try {
        return run(kind, work);
    } catch (const Fault& fault) {
        std::fprintf(stderr, "emulator: %s\n", fault.what());
        return sticky = cudaErrorLaunchFailure;
    } catch (const std::bad_alloc&) {
        return cudaErrorMemoryAllocation;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "emulator: %s\n", error.what());
        return cudaErrorUnknown;
    }
}

}  // namespace

cudaError_t call(Call kind, const std::function<cudaError_t()>& work) {
    const std::lock_guard lock(mutex());
    const cudaError_t error = guarded(kind, work);
    if (error != cudaSuccess) last = error;
    return error;
}

Memory& memory() {
    static auto& kept = *new Memory;
    return kept;
}

int current_device() {
    const auto& stack = contexts();
    return stack.empty() || !stack.back() ? chosen_device() : device_of(stack.back());
}

cudaError_t set_device(int index) {
    if (index < 0 || index >= n_devices()) return cudaErrorInvalidDevice;
    chosen_device() = index;
    auto& stack = contexts();
    if (stack.empty()) stack.emplace_back();
    stack.back() = primary_context(index);
    return cudaSuccess;
}

void need_context() {
    auto& stack = contexts();
    if (stack.empty() || !stack.back()) set_device(chosen_device());
}

}  // namespace emulator

cudaError_t cudaGetLastError() {
    return std::exchange(emulator::last, emulator::sticky);
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define EMULATOR_NAME(name) \
    case name:              \
        return #name;
        EMULATOR_NAME(cudaSuccess)
        EMULATOR_NAME(cudaErrorInvalidValue)
        EMULATOR_NAME(cudaErrorMemoryAllocation)
        EMULATOR_NAME(cudaErrorInvalidConfiguration)
        EMULATOR_NAME(cudaErrorInvalidDeviceFunction)
        EMULATOR_NAME(cudaErrorNoDevice)
        EMULATOR_NAME(cudaErrorInvalidDevice)
        EMULATOR_NAME(cudaErrorNoKernelImageForDevice)
        EMULATOR_NAME(cudaErrorInvalidResourceHandle)
        EMULATOR_NAME(cudaErrorLaunchOutOfResources)
        EMULATOR_NAME(cudaErrorLaunchFailure)
        EMULATOR_NAME(cudaErrorNotSupported)
        EMULATOR_NAME(cudaErrorStreamCaptureUnsupported)
        EMULATOR_NAME(cudaErrorStreamCaptureInvalidated)
        EMULATOR_NAME(cudaErrorIllegalState)
        EMULATOR_NAME(cudaErrorInvalidClusterSize)
        EMULATOR_NAME(cudaErrorUnknown)
#undef EMULATOR_NAME
        default:
            return "unrecognized error code";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorInvalidValue:
            return "invalid argument";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorInvalidDeviceFunction:
            return "invalid device function";
        case cudaErrorNoKernelImageForDevice:
            return "no kernel image is available for execution on the device";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorLaunchFailure:
            return "unspecified launch failure (the emulator has said why)";
        case cudaErrorStreamCaptureUnsupported:
            return "operation not permitted when stream is capturing";
        case cudaErrorStreamCaptureInvalidated:
            return "operation failed due to a previous error during capture";
        default:
            return cudaGetErrorName(error);
    }
}
