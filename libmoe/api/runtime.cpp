// moe_runtime_*, moe_device_*.
#include "libmoe/base/runtime.hpp"

#include <unistd.h>

#include "libmoe/api/device.hpp"
#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/cpu/features.hpp"
#include "libmoe/cuda/backend.hpp"

namespace moe {
namespace {

void copy_name(char* to, size_t capacity, std::string_view text) {
    const size_t n = std::min(text.size(), capacity - 1);
    std::memcpy(to, text.data(), n);
    to[n] = '\0';
}

moe_device_info cpu_info(int32_t index) {
    check_cpu_index(index);
    moe_device_info info{};
    info.struct_size = sizeof info;
    info.kind = MOE_DEVICE_CPU;
    info.n_cores = usable_cores();
    info.memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
    copy_name(info.name, sizeof info.name, cpu::name().text);
    copy_name(info.features, sizeof info.features, cpu::features().text);
    return info;
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_runtime_create(const moe_runtime_desc* given, moe_runtime** out_runtime) noexcept {
    return guard([&] {
        check_out(out_runtime, "out_runtime");
        moe_runtime_desc desc{};
        if (given) desc = read_struct(given, "moe_runtime_desc");
        if (desc.nccl_path)
            fail(MOE_ERROR_UNSUPPORTED,
                 "moe_runtime_desc.nccl_path: this version does not use NCCL");
        moe_allocator allocator{};
        if (desc.allocator) {
            allocator = read_struct(desc.allocator, "moe_allocator");
            require(allocator.allocate && allocator.release,
                    "moe_allocator.allocate and release are required");
            desc.allocator = &allocator;
        }
        Memory memory = desc.allocator ? Memory(allocator) : Memory();
        *out_runtime = create_in<moe_runtime>(memory, desc);
    });
}

void moe_runtime_destroy(moe_runtime* runtime) noexcept {
    if (runtime && is_living(runtime)) runtime->release();
}

moe_status moe_device_count(moe_device_kind kind, int32_t* out_count) noexcept {
    return guard([&] {
        check_out(out_count, "out_count");
        check_kind(kind);
        *out_count = kind == MOE_DEVICE_CUDA ? cuda::device_count() : 1;
    });
}

moe_status moe_device_get_info(moe_device_kind kind, int32_t index,
                               moe_device_info* out_info) noexcept {
    return guard([&] {
        check_out(out_info, "out_info");
        check_kind(kind);
        const moe_device_info info =
            kind == MOE_DEVICE_CUDA ? cuda::device_info(index) : cpu_info(index);
        write_struct(out_info, info, "moe_device_info");
    });
}
