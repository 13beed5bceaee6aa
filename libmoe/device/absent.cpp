// The interface of devices in a build without CUDA: it has none.
#include "libmoe/device/device.hpp"

namespace moe::device {
namespace {

[[noreturn]] void fail_absent(const char* what) {
    fail(MOE_ERROR_NOT_BUILT, "{}: the CUDA backend is not built into this library", what);
}

}  // namespace

UseDevice::UseDevice(int32_t) {
    fail_absent("MOE_DEVICE_CUDA");
}

UseDevice::UseDevice(int32_t, std::nothrow_t) noexcept {}

UseDevice::~UseDevice() = default;

void* current_context() {
    fail_absent("MOE_DEVICE_CUDA");
}

UseContext::UseContext(void*) {
    fail_absent("MOE_DEVICE_CUDA");
}

UseContext::~UseContext() = default;

bool is_forked() noexcept {
    return false;
}

void* allocate(moe_space space, uint64_t) {
    fail_absent(space == MOE_SPACE_PINNED ? "MOE_SPACE_PINNED" : "MOE_SPACE_DEVICE");
}

void release(moe_space, void*) noexcept {}

void upload(void*, const void*, uint64_t, void*) {
    fail_absent("upload");
}

void download(void*, const void*, uint64_t, void*) {
    fail_absent("download");
}

void fill_zero(void*, uint64_t, void*) {
    fail_absent("fill_zero");
}

void synchronize(void*) {
    fail_absent("synchronize");
}

void copy(void*, const void*, uint64_t, void*) {
    fail_absent("copy");
}

void* make_stream() {
    fail_absent("make_stream");
}

void destroy_stream(void*) {
    fail_absent("destroy_stream");
}

}  // namespace moe::device
