// ggml loads a registry with one device of the kind accelerator, whose buffers take the
// weights of experts. llama.cpp asks accelerators first where weights that are not on a GPU shall
// lie.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "backend.hpp"
#include "buffers.hpp"
#include "claims.hpp"
#include "host.hpp"
#include "interface.hpp"
#include "moe/moe.h"
#include "moe_ggml.h"

namespace moe::ggml {
namespace {

Device device{};
Registry registry{};
BufferType buffer_type{};

const char* name_of_device(Device*) {
    return "LIBMOE";
}

const char* description(Device*) {
    static const std::string text =
        std::string("libmoe ") + moe_version_string() + ", experts on the CPU";
    return text.c_str();
}

// None of its own: it uses the host's.
void memory(Device*, size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = *total_bytes = 0;
}

int kind(Device*) {
    return device_kind_accelerator;
}

void properties(Device* self, DeviceProperties* out) {
    *out = {};
    out->name = name_of_device(self);
    out->description = description(self);
    out->kind = device_kind_accelerator;
    out->capabilities.buffer_from_host_ptr = true;
    out->capabilities.mmap_support = true;
}

Buffer* buffer_from_host_ptr(Device*, void* memory, size_t bytes, size_t) {
    return buffer_at(&buffer_type, memory, bytes);
}

// Values that the CPU computes are read where they lie.
bool supports_buffer_type(Device*, BufferType* type) {
    return type == &buffer_type || host.buft_is_host(type);
}

DeviceCalls device_calls() {
    DeviceCalls calls{};
    calls.name = name_of_device;
    calls.description = description;
    calls.memory = memory;
    calls.kind = kind;
    calls.properties = properties;
    calls.start = [](Device* self, const char*) { return start_backend(self); };
    calls.buffer_type = [](Device*) { return &buffer_type; };
    calls.buffer_from_host_ptr = buffer_from_host_ptr;
    calls.supports_op = [](Device*, const Tensor* op) { return claims(op, &buffer_type); };
    calls.supports_buffer_type = supports_buffer_type;
    return calls;
}

// Functions beyond the interface that ggml's users look for by name.
void* function(Registry*, const char* name) {
    if (std::strcmp(name, "ggml_backend_set_n_threads") == 0)
        return reinterpret_cast<void*>(set_n_threads);
    if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0)
        return reinterpret_cast<void*>(set_abort_callback);
    return nullptr;
}

Registry* registry_for(const Host& found) {
    host = found;
    device.calls = device_calls();
    device.registry = &registry;
    buffer_type = buffer_type_for(&device);
    registry.interface_version = backend_interface;
    registry.calls.name = [](Registry*) { return "LIBMOE"; };
    registry.calls.device_count = [](Registry*) -> size_t { return 1; };
    registry.calls.device = [](Registry*, size_t) { return &device; };
    registry.calls.function = function;
    return &registry;
}

// Null, with the reason on standard error, when this ggml cannot be served.
template <class FindHost>
Registry* try_registry(FindHost find_host) {
    try {
        if (moe_abi_version() != MOE_ABI_VERSION) {
            std::fprintf(stderr,
                         "libmoe: libmoe.so %s is not the one that this backend was made for\n",
                         moe_version_string());
            return nullptr;
        }
        return registry_for(find_host());
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "libmoe: experts stay with ggml: %s\n", reason.what());
        return nullptr;
    }
}

}  // namespace
}  // namespace moe::ggml

extern "C" MOE_GGML_API moe::ggml::Registry* ggml_backend_init() {
    const void* caller = __builtin_return_address(0);
    return moe::ggml::try_registry([=] { return moe::ggml::host_of_process(caller); });
}

int moe_ggml_register(const moe_ggml_function* functions, size_t n_functions) {
    using namespace moe::ggml;
    Registry* made = try_registry([=] { return host_of_list(functions, n_functions); });
    if (!made) return -1;
    host.backend_register(made);
    return 0;
}
