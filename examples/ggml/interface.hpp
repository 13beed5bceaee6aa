// The binary interface between ggml and a backend that it loads, in our own words: layouts of
// structs and numbers that cross it, from ggml 0.9.4 to 0.25.1. No header of ggml is needed. Two of
// its structs changed in between (0.10.0 put copies of strided rows in the middle); host.hpp says
// which ones the running ggml has. Ids of operations and types are not here: they move, and
// names.hpp asks for names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe::ggml {

struct BufferType;
struct Buffer;
struct Backend;
struct Device;
struct Registry;
struct Graph;
struct ContextMemory;  // where tensors and graphs are made
struct ThreadPool;

constexpr int max_dims = 4;
constexpr int max_sources = 10;

// A tensor is a value of a graph and the operation that makes it. ne[0] counts the columns, which
// are next to each other; nb are strides in bytes.
struct Tensor {
    int type;
    Buffer* buffer;
    int64_t ne[max_dims];
    size_t nb[max_dims];
    int op;
    int32_t op_params[16];
    int32_t flags;
    Tensor* src[max_sources];
    Tensor* view_src;
    size_t view_offs;
    void* data;
    char name[64];
    void* extra;
    char padding[8];
};

// ggml_tensor_overhead answers this: a tensor and the record of its context in front of it.
constexpr size_t tensor_overhead = sizeof(Tensor) + 32;

constexpr int32_t flag_output = 2;
constexpr int32_t flag_compute = 16;
constexpr int usage_weights = 1;
constexpr int device_kind_accelerator = 3;
constexpr int backend_interface = 2;

enum class Status : int { failed = -1, success = 0, aborted = 1 };

using AbortCallback = bool (*)(void* data);

struct BufferTypeCalls {
    const char* (*name)(BufferType*);
    Buffer* (*allocate)(BufferType*, size_t bytes);
    size_t (*alignment)(BufferType*);
    size_t (*largest)(BufferType*);
    size_t (*tensor_bytes)(BufferType*, const Tensor*);
    bool (*is_host)(BufferType*);
};

struct BufferType {
    BufferTypeCalls calls;
    Device* device;
    void* context;
};

using WriteRows = void (*)(Buffer*, Tensor*, const void* data, size_t offset, size_t bytes,
                           size_t copies, size_t tensor_stride, size_t data_stride);
using ReadRows = void (*)(Buffer*, const Tensor*, void* data, size_t offset, size_t bytes,
                          size_t copies, size_t tensor_stride, size_t data_stride);

// The calls of a buffer as 0.9 has them.
struct BufferCalls {
    void (*release)(Buffer*);
    void* (*base)(Buffer*);
    Status (*prepare)(Buffer*, Tensor*);
    void (*fill)(Buffer*, Tensor*, uint8_t value, size_t offset, size_t bytes);
    void (*write)(Buffer*, Tensor*, const void* data, size_t offset, size_t bytes);
    void (*read)(Buffer*, const Tensor*, void* data, size_t offset, size_t bytes);
    bool (*copy)(Buffer*, const Tensor* from, Tensor* to);
    void (*clear)(Buffer*, uint8_t value);
    void (*reset)(Buffer*);
};

// The same from 0.10 on.
struct BufferCallsWithRows {
    void (*release)(Buffer*);
    void* (*base)(Buffer*);
    Status (*prepare)(Buffer*, Tensor*);
    void (*fill)(Buffer*, Tensor*, uint8_t value, size_t offset, size_t bytes);
    void (*write)(Buffer*, Tensor*, const void* data, size_t offset, size_t bytes);
    void (*read)(Buffer*, const Tensor*, void* data, size_t offset, size_t bytes);
    WriteRows write_rows;
    ReadRows read_rows;
    bool (*copy)(Buffer*, const Tensor* from, Tensor* to);
    void (*clear)(Buffer*, uint8_t value);
    void (*reset)(Buffer*);
};

// The calls of a backend up to the one that computes. All that are not named stay null.
struct BackendCalls {
    const char* (*name)(Backend*);
    void (*release)(Backend*);
    void* transfers[3];
    void (*synchronize)(Backend*);
    void* plans[4];
    Status (*compute)(Backend*, Graph*);
    void* events[2];
    void* optimize;
};

struct BackendCallsWithRows {
    const char* (*name)(Backend*);
    void (*release)(Backend*);
    void* transfers[5];
    void (*synchronize)(Backend*);
    void* plans[4];
    Status (*compute)(Backend*, Graph*);
    void* events[2];
    void* optimize;
};

template <class Calls>
struct BackendOf {
    const uint8_t* guid;
    Calls calls;
    Device* device;
    void* context;
};

struct Capabilities {
    bool async;
    bool host_buffer;
    bool buffer_from_host_ptr;
    bool events;
    bool mmap_support;  // not read before 0.20, whose struct has padding here
};

struct DeviceProperties {
    const char* name;
    const char* description;
    size_t free_bytes;
    size_t total_bytes;
    int kind;
    const char* device_id;
    Capabilities capabilities;
};

struct DeviceCalls {
    const char* (*name)(Device*);
    const char* (*description)(Device*);
    void (*memory)(Device*, size_t* free_bytes, size_t* total_bytes);
    int (*kind)(Device*);
    void (*properties)(Device*, DeviceProperties*);
    Backend* (*start)(Device*, const char* params);
    BufferType* (*buffer_type)(Device*);
    BufferType* (*host_buffer_type)(Device*);
    Buffer* (*buffer_from_host_ptr)(Device*, void* memory, size_t bytes, size_t largest_tensor);
    bool (*supports_op)(Device*, const Tensor*);
    bool (*supports_buffer_type)(Device*, BufferType*);
    bool (*wants_op)(Device*, const Tensor*);
    void* events[3];
};

struct Device {
    DeviceCalls calls;
    Registry* registry;
    void* context;
};

struct RegistryCalls {
    const char* (*name)(Registry*);
    size_t (*device_count)(Registry*);
    Device* (*device)(Registry*, size_t index);
    void* (*function)(Registry*, const char* name);
};

struct Registry {
    int interface_version;
    RegistryCalls calls;
    void* context;
};

// ggml_init takes it by value.
struct ContextParams {
    size_t bytes;
    void* memory;
    bool without_data;
};

// How the CPU backend computes a graph. Later versions have more members behind these.
struct ComputePlan {
    size_t work_bytes;
    uint8_t* work;
    int n_threads;
    ThreadPool* pool;
    uint8_t later[128];
};

using CustomNode = void (*)(Tensor*, int thread, int n_threads, void* data);

static_assert(sizeof(Tensor) == 336 && offsetof(Tensor, op) == 80 && offsetof(Tensor, data) == 248);
static_assert(sizeof(DeviceProperties) == 56 && sizeof(Registry) == 48 && sizeof(Device) == 136);

}  // namespace moe::ggml
