// Device memory is host memory that kernels may access. Allocations are aligned to 256 bytes, have
// guard pages on both sides, and are filled with bytes that are NaN in every float type.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/emulator/runtime.hpp"

namespace emulator {
namespace {

constexpr size_t guard = size_t{64} << 10;
constexpr int poison = 0xff;

struct Allocation {
    size_t bytes;
    bool is_pinned;
};

std::map<void*, Allocation>& allocations() {
    static auto& kept = *new std::map<void*, Allocation>;
    return kept;
}

size_t used_bytes = 0;

size_t mapped(size_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
}

// Host allocations are checked, too: missing memory would show only at the first access.
size_t free_bytes() {
    const size_t there =
        static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t total = static_cast<size_t>(machine().memory_gb) << 30;
    return std::min(total - std::min(total, used_bytes), there / 4 * 3);
}

cudaError_t allocate(void** out, size_t bytes, bool is_pinned) {
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > free_bytes()) return cudaErrorMemoryAllocation;
    void* whole = mmap(nullptr, mapped(bytes) + 2 * guard, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) return cudaErrorMemoryAllocation;
    void* begin = static_cast<std::byte*>(whole) + guard;
    if (mprotect(begin, mapped(bytes), PROT_READ | PROT_WRITE) != 0) {
        munmap(whole, mapped(bytes) + 2 * guard);
        return cudaErrorMemoryAllocation;
    }
    std::memset(begin, poison, bytes);
    allocations()[begin] = {bytes, is_pinned};
    used_bytes += bytes;
    memory().add(begin, bytes);
    *out = begin;
    return cudaSuccess;
}

cudaError_t release(void* begin, bool is_pinned) {
    if (!begin) return cudaSuccess;
    const auto found = allocations().find(begin);
    if (found == allocations().end() || found->second.is_pinned != is_pinned)
        return cudaErrorInvalidValue;
    const size_t bytes = found->second.bytes;
    memory().remove(begin);
    used_bytes -= bytes;
    allocations().erase(found);
    munmap(static_cast<std::byte*>(begin) - guard, mapped(bytes) + 2 * guard);
    return cudaSuccess;
}

// The device side of a copy must be in device memory; the host checks its own side.
bool may_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const bool to_ours = is_ours(to, bytes), from_ours = is_ours(from, bytes);
    switch (kind) {
        case cudaMemcpyHostToDevice:
            return to_ours;
        case cudaMemcpyDeviceToHost:
            return from_ours;
        case cudaMemcpyDeviceToDevice:
            return to_ours && from_ours;
        default:
            return true;
    }
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    if (!may_copy(to, from, bytes, kind)) return cudaErrorInvalidValue;
    return enqueue(stream, [=] { std::memmove(to, from, bytes); });
}

}  // namespace

bool is_ours(const void* address, size_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    uintptr_t begin = 0;
    const uintptr_t end = memory().end_of(at, &begin);
    return end != 0 && bytes <= end - at;
}

}  // namespace emulator

using emulator::Call;

cudaError_t cudaMalloc(void** out, size_t bytes) {
    return emulator::call(Call::unsafe, [&] { return emulator::allocate(out, bytes, false); });
}

cudaError_t cudaMallocHost(void** out, size_t bytes) {
    return emulator::call(Call::unsafe, [&] { return emulator::allocate(out, bytes, true); });
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned int) {
    return emulator::call(Call::unsafe, [&] { return emulator::allocate(out, bytes, true); });
}

cudaError_t cudaFree(void* begin) {
    return emulator::call(Call::unsafe, [&] { return emulator::release(begin, false); });
}

cudaError_t cudaFreeHost(void* begin) {
    return emulator::call(Call::unsafe, [&] { return emulator::release(begin, true); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return emulator::call(Call::unsafe,
                          [&] { return emulator::copy(to, from, bytes, kind, nullptr); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return emulator::call(Call::on_device,
                          [&] { return emulator::copy(to, from, bytes, kind, stream); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    return emulator::call(Call::on_device, [&] {
        if (bytes == 0) return cudaSuccess;
        if (!emulator::is_ours(to, bytes)) return cudaErrorInvalidValue;
        return emulator::enqueue(stream, [=] { std::memset(to, value, bytes); });
    });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    return emulator::call(Call::on_device, [&] {
        *free = emulator::free_bytes();
        *total = static_cast<size_t>(emulator::machine().memory_gb) << 30;
        return cudaSuccess;
    });
}
