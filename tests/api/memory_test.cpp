// moe_memory_* and moe_stream_* on the CPU: every space is host memory of the runtime's allocator,
// and the only stream is NULL. The same on a device: tests/gpu/memory_cases.cpp.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr moe_device_kind cpu = MOE_DEVICE_CPU;
constexpr moe_space spaces[] = {MOE_SPACE_HOST, MOE_SPACE_PINNED, MOE_SPACE_DEVICE};

Runtime runtime_with(TestAllocator& allocator) {
    const moe_allocator table = allocator.table();
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = 1;
    desc.allocator = &table;
    return make_runtime(desc);
}

TEST(HostMemory, EverySpaceIsTheHosts) {
    for (const moe_space space : spaces) {
        void* memory = nullptr;
        ASSERT_MOE_OK(moe_memory_allocate(nullptr, cpu, 0, space, 1000, &memory));
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
        std::memset(memory, 7, 1000);
        EXPECT_MOE_OK(moe_memory_free(nullptr, cpu, 0, space, 1000, memory));
    }
}

TEST(HostMemory, ComesFromTheAllocatorAndGoesBack) {
    TestAllocator allocator;
    const Runtime runtime = runtime_with(allocator);
    const uint64_t before = allocator.live_bytes();
    for (const moe_space space : spaces) {
        void* memory = nullptr;
        ASSERT_MOE_OK(moe_memory_allocate(runtime.get(), cpu, 0, space, 5000, &memory));
        EXPECT_EQ(allocator.live_bytes(), before + 5000);
        EXPECT_MOE_OK(moe_memory_free(runtime.get(), cpu, 0, space, 5000, memory));
        EXPECT_EQ(allocator.live_bytes(), before);
    }
}

TEST(HostMemory, NoBytesAreNoMemory) {
    TestAllocator allocator;
    const Runtime runtime = runtime_with(allocator);
    const uint64_t before = allocator.live_bytes();
    void* memory = &allocator;
    EXPECT_MOE_OK(moe_memory_allocate(runtime.get(), cpu, 0, MOE_SPACE_HOST, 0, &memory));
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(allocator.live_bytes(), before);
    EXPECT_MOE_OK(moe_memory_free(runtime.get(), cpu, 0, MOE_SPACE_HOST, 0, nullptr));
    EXPECT_MOE_OK(moe_memory_free(nullptr, cpu, 0, MOE_SPACE_HOST, 64, nullptr));
    EXPECT_MOE_OK(moe_memory_copy(cpu, 0, nullptr, nullptr, 0, nullptr));
    EXPECT_MOE_OK(moe_memory_zero(cpu, 0, nullptr, 0, nullptr));
}

TEST(HostMemory, TooMuchIsOutOfMemory) {
    void* memory = &memory;
    const uint64_t bytes = uint64_t{1} << 62;
    EXPECT_MOE_ERROR(moe_memory_allocate(nullptr, cpu, 0, MOE_SPACE_DEVICE, bytes, &memory),
                     MOE_ERROR_OUT_OF_MEMORY, std::to_string(bytes));
    EXPECT_EQ(memory, static_cast<void*>(&memory)) << "nothing is written by a call that fails";
}

TEST(HostMemory, CopyAndZeroAreDoneWhenTheyReturn) {
    const Floats from = {1, 2, 3, 4};
    Floats to(6, 9);
    EXPECT_MOE_OK(moe_memory_copy(cpu, 0, to.data() + 1, from.data(), 16, nullptr));
    EXPECT_EQ(to, (Floats{9, 1, 2, 3, 4, 9}));
    EXPECT_MOE_OK(moe_memory_zero(cpu, 0, to.data() + 2, 8, nullptr));
    EXPECT_EQ(to, (Floats{9, 1, 0, 0, 4, 9}));
}

TEST(HostStream, IsNull) {
    void* stream = &stream;
    EXPECT_MOE_OK(moe_stream_create(cpu, 0, &stream));
    EXPECT_EQ(stream, nullptr);
    EXPECT_MOE_OK(moe_stream_synchronize(cpu, 0, stream));
    EXPECT_MOE_OK(moe_stream_destroy(cpu, 0, stream));
}

// Every call that names a device refuses one that is not there by the argument's name.
TEST(DeviceMemory, DevicesAreNamed) {
    Floats a(4), b(4);
    void* out = nullptr;
    const auto refused = [&](moe_device_kind kind, int32_t index, const std::string& words) {
        const moe_status wanted = MOE_ERROR_INVALID_ARGUMENT;
        EXPECT_MOE_ERROR(moe_memory_allocate(nullptr, kind, index, MOE_SPACE_HOST, 16, &out),
                         wanted, words);
        EXPECT_MOE_ERROR(moe_memory_free(nullptr, kind, index, MOE_SPACE_HOST, 16, a.data()),
                         wanted, words);
        EXPECT_MOE_ERROR(moe_memory_copy(kind, index, a.data(), b.data(), 16, nullptr), wanted,
                         words);
        EXPECT_MOE_ERROR(moe_memory_zero(kind, index, a.data(), 16, nullptr), wanted, words);
        EXPECT_MOE_ERROR(moe_stream_create(kind, index, &out), wanted, words);
        EXPECT_MOE_ERROR(moe_stream_synchronize(kind, index, nullptr), wanted, words);
        EXPECT_MOE_ERROR(moe_stream_destroy(kind, index, nullptr), wanted, words);
    };
    refused(cpu, 1, "index is 1");
    refused(MOE_DEVICE_AUTO, 0, "kind is 0");
    refused(static_cast<moe_device_kind>(9), 0, "kind is 9");
}

TEST(DeviceMemory, ArgumentsAreNamed) {
    Floats a(4);
    void* out = nullptr;
    const moe_status wanted = MOE_ERROR_INVALID_ARGUMENT;
    const auto space = static_cast<moe_space>(3);
    EXPECT_MOE_ERROR(moe_memory_allocate(nullptr, cpu, 0, space, 16, &out), wanted, "space is 3");
    EXPECT_MOE_ERROR(moe_memory_free(nullptr, cpu, 0, space, 16, a.data()), wanted, "space is 3");
    EXPECT_MOE_ERROR(moe_memory_allocate(nullptr, cpu, 0, MOE_SPACE_HOST, 16, nullptr), wanted,
                     "out_memory");
    EXPECT_MOE_ERROR(moe_memory_free(nullptr, cpu, 0, MOE_SPACE_HOST, 0, a.data()), wanted,
                     "bytes is 0");
    EXPECT_MOE_ERROR(moe_memory_copy(cpu, 0, nullptr, a.data(), 16, nullptr), wanted, "to is NULL");
    EXPECT_MOE_ERROR(moe_memory_copy(cpu, 0, a.data(), nullptr, 16, nullptr), wanted,
                     "from is NULL");
    EXPECT_MOE_ERROR(moe_memory_zero(cpu, 0, nullptr, 16, nullptr), wanted, "memory is NULL");
    EXPECT_MOE_ERROR(moe_stream_create(cpu, 0, nullptr), wanted, "out_stream");
}

TEST(HostStream, AnotherIsRefused) {
    Floats a(4), b(4, 1);
    const moe_status wanted = MOE_ERROR_INVALID_ARGUMENT;
    EXPECT_MOE_ERROR(moe_memory_copy(cpu, 0, a.data(), b.data(), 16, &a), wanted, "stream");
    EXPECT_MOE_ERROR(moe_memory_zero(cpu, 0, b.data(), 16, &a), wanted, "stream");
    EXPECT_MOE_ERROR(moe_stream_synchronize(cpu, 0, &a), wanted, "stream");
    EXPECT_MOE_ERROR(moe_stream_destroy(cpu, 0, &a), wanted, "stream");
    EXPECT_EQ(a, Floats(4)) << "copied all the same";
    EXPECT_EQ(b, Floats(4, 1)) << "zeroed all the same";
}

TEST(DeviceMemory, AStaleRuntimeIsRefused) {
    alignas(16) std::byte no_runtime[256] = {};
    auto* runtime = reinterpret_cast<moe_runtime*>(no_runtime);
    void* out = nullptr;
    EXPECT_MOE_ERROR(moe_memory_allocate(runtime, cpu, 0, MOE_SPACE_HOST, 16, &out),
                     MOE_ERROR_INVALID_ARGUMENT, "runtime");
    EXPECT_MOE_ERROR(moe_memory_free(runtime, cpu, 0, MOE_SPACE_HOST, 16, &out),
                     MOE_ERROR_INVALID_ARGUMENT, "runtime");
}

}  // namespace
}  // namespace moe_test
