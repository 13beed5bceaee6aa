// moe_memory_*, moe_stream_*.
#include "libmoe/api/device.hpp"
#include "libmoe/api/guard.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/cuda/backend.hpp"

namespace moe {
namespace {

constexpr uint64_t memory_alignment = 256;

// Runs one of two bodies: the second one in the context of the CUDA device.
template <class OnCpu, class OnCuda>
void on_device(moe_device_kind kind, int32_t index, OnCpu&& on_cpu, OnCuda&& on_cuda) {
    check_kind(kind);
    if (kind == MOE_DEVICE_CPU) {
        check_cpu_index(index);
        on_cpu();
        return;
    }
    const cuda::UseDevice use(index);
    on_cuda();
}

void check_no_stream(const void* stream) {
    require(stream == nullptr, "stream is not NULL, the CPU has no other");
}

void check_space(moe_space space) {
    require(space == MOE_SPACE_HOST || space == MOE_SPACE_PINNED || space == MOE_SPACE_DEVICE,
            "space is {}, not a moe_space", static_cast<int32_t>(space));
}

void check_present(const void* memory, uint64_t bytes, const char* name) {
    require(memory != nullptr || bytes == 0, "{} is NULL, bytes is {}", name, bytes);
}

Memory memory_of(moe_runtime* runtime) {
    return runtime ? check_handle(runtime, "runtime").memory : Memory();
}

void* allocate(Memory& memory, moe_space space, uint64_t bytes) {
    return bytes ? memory.allocate_in(space, bytes, memory_alignment, nullptr) : nullptr;
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_memory_allocate(moe_runtime* runtime, moe_device_kind kind, int32_t index,
                               moe_space space, uint64_t bytes, void** out_memory) noexcept {
    return guard([&] {
        void*& out = check_out(out_memory, "out_memory");
        check_space(space);
        Memory memory = memory_of(runtime);
        on_device(
            kind, index, [&] { out = allocate(memory, MOE_SPACE_HOST, bytes); },
            [&] { out = allocate(memory, space, bytes); });
    });
}

moe_status moe_memory_free(moe_runtime* runtime, moe_device_kind kind, int32_t index,
                           moe_space space, uint64_t bytes, void* memory) noexcept {
    return guard([&] {
        check_space(space);
        Memory from = memory_of(runtime);
        require(!memory || bytes != 0, "bytes is 0, memory of no bytes is NULL");
        const auto release = [&](moe_space of) {
            if (memory) from.release_in(of, memory, bytes, memory_alignment, nullptr);
        };
        on_device(
            kind, index, [&] { release(MOE_SPACE_HOST); }, [&] { release(space); });
    });
}

moe_status moe_memory_copy(moe_device_kind kind, int32_t index, void* to, const void* from,
                           uint64_t bytes, void* stream) noexcept {
    return guard([&] {
        check_present(to, bytes, "to");
        check_present(from, bytes, "from");
        const auto on_cpu = [&] {
            check_no_stream(stream);
            if (bytes) std::memcpy(to, from, bytes);
        };
        on_device(kind, index, on_cpu, [&] {
            if (bytes) cuda::copy(to, from, bytes, stream);
        });
    });
}

moe_status moe_memory_zero(moe_device_kind kind, int32_t index, void* memory, uint64_t bytes,
                           void* stream) noexcept {
    return guard([&] {
        check_present(memory, bytes, "memory");
        const auto on_cpu = [&] {
            check_no_stream(stream);
            if (bytes) std::memset(memory, 0, bytes);
        };
        on_device(kind, index, on_cpu, [&] {
            if (bytes) cuda::fill_zero(memory, bytes, stream);
        });
    });
}

moe_status moe_stream_create(moe_device_kind kind, int32_t index, void** out_stream) noexcept {
    return guard([&] {
        void*& out = check_out(out_stream, "out_stream");
        on_device(
            kind, index, [&] { out = nullptr; }, [&] { out = cuda::make_stream(); });
    });
}

moe_status moe_stream_synchronize(moe_device_kind kind, int32_t index, void* stream) noexcept {
    return guard([&] {
        on_device(
            kind, index, [&] { check_no_stream(stream); }, [&] { cuda::synchronize(stream); });
    });
}

moe_status moe_stream_destroy(moe_device_kind kind, int32_t index, void* stream) noexcept {
    return guard([&] {
        on_device(
            kind, index, [&] { check_no_stream(stream); },
            [&] {
                if (stream) cuda::destroy_stream(stream);
            });
    });
}
