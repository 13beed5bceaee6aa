#include "buffers.hpp"

#include <cstdlib>
#include <cstring>

#include "host.hpp"
#include "loaded_weights.hpp"

namespace moe::ggml {
namespace {

// A cache line, so that rows of activations are aligned for every vector load.
constexpr size_t alignment = 64;

// Bytes of a buffer that change make what was read from them old.
void changed(Buffer* buffer) {
    forget_weights(host.buffer_get_base(buffer), host.buffer_get_size(buffer));
}

char* place(const Tensor* tensor, size_t offset) {
    return static_cast<char*>(tensor->data) + offset;
}

template <class Calls>
void* context_of(Buffer* buffer) {
    struct Layout {
        Calls calls;
        BufferType* type;
        void* context;
    };
    return reinterpret_cast<Layout*>(buffer)->context;
}

void* base(Buffer* buffer) {
    return host.has_row_copies ? context_of<BufferCallsWithRows>(buffer)
                               : context_of<BufferCalls>(buffer);
}

void leave_memory(Buffer* buffer) {
    changed(buffer);
}

void free_memory(Buffer* buffer) {
    changed(buffer);
    std::free(base(buffer));
}

void fill(Buffer* buffer, Tensor* tensor, uint8_t value, size_t offset, size_t bytes) {
    std::memset(place(tensor, offset), value, bytes);
    changed(buffer);
}

void write(Buffer* buffer, Tensor* tensor, const void* data, size_t offset, size_t bytes) {
    std::memcpy(place(tensor, offset), data, bytes);
    changed(buffer);
}

void read(Buffer*, const Tensor* tensor, void* data, size_t offset, size_t bytes) {
    std::memcpy(data, place(tensor, offset), bytes);
}

// From other memory of the host. ggml copies through the host where this says no.
bool copy(Buffer* buffer, const Tensor* from, Tensor* to) {
    if (!from->buffer || !host.buft_is_host(host.buffer_get_type(from->buffer))) return false;
    std::memcpy(to->data, from->data, host.nbytes(from));
    changed(buffer);
    return true;
}

void clear(Buffer* buffer, uint8_t value) {
    std::memset(base(buffer), value, host.buffer_get_size(buffer));
    changed(buffer);
}

template <class Calls>
Buffer* make_buffer(BufferType* type, void* memory, size_t bytes, bool is_owner) {
    Calls calls{};
    calls.release = is_owner ? free_memory : leave_memory;
    calls.base = base;
    calls.fill = fill;
    calls.write = write;
    calls.read = read;
    calls.copy = copy;
    calls.clear = clear;
    using Make = Buffer* (*)(BufferType*, Calls, void* context, size_t bytes);
    return reinterpret_cast<Make>(host.buffer_init)(type, calls, memory, bytes);
}

Buffer* make(BufferType* type, void* memory, size_t bytes, bool is_owner) {
    return host.has_row_copies ? make_buffer<BufferCallsWithRows>(type, memory, bytes, is_owner)
                               : make_buffer<BufferCalls>(type, memory, bytes, is_owner);
}

Buffer* allocate(BufferType* type, size_t bytes) {
    const size_t rounded = (bytes + alignment) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (!memory) return nullptr;
    return make(type, memory, bytes, true);
}

}  // namespace

BufferType buffer_type_for(Device* device) {
    BufferTypeCalls calls{};
    calls.name = [](BufferType*) { return "LIBMOE"; };
    calls.allocate = allocate;
    calls.alignment = [](BufferType*) { return alignment; };
    calls.is_host = [](BufferType*) { return true; };
    return {calls, device, nullptr};
}

Buffer* buffer_at(BufferType* type, void* memory, size_t bytes) {
    return make(type, memory, bytes, false);
}

bool is_in(const Tensor* tensor, const BufferType* type) {
    Buffer* buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    return buffer && host.buffer_get_type(buffer) == type;
}

}  // namespace moe::ggml
