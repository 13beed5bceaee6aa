// The ggml of this process: its functions, found by name, and its version.
#pragma once

#include <cstddef>
#include <string>

#include "interface.hpp"
#include "moe_ggml.h"

namespace moe::ggml {

// Functions of ggml's CPU backend, which is a library of its own in many programs.
struct HostCompute {
    ComputePlan (*plan)(const Graph*, int n_threads, ThreadPool*);
    Status (*compute)(Graph*, ComputePlan*);
    ThreadPool* (*pool_new)(void* params);
    void (*pool_free)(ThreadPool*);
};

// Members have ggml's names without the prefix.
struct Host {
    const char* (*version)();
    size_t (*tensor_overhead)();
    size_t (*nbytes)(const Tensor*);
    const char* (*op_name)(int);
    const char* (*unary_op_name)(int);
    const char* (*glu_op_name)(int);
    const char* (*type_name)(int);
    int (*graph_n_nodes)(Graph*);
    Tensor* (*graph_node)(Graph*, int);
    BufferType* (*buffer_get_type)(Buffer*);
    void* (*buffer_get_base)(Buffer*);
    size_t (*buffer_get_size)(Buffer*);
    int (*buffer_get_usage)(Buffer*);
    bool (*buft_is_host)(BufferType*);
    // Takes the struct of calls by value: BufferCalls or BufferCallsWithRows.
    void (*buffer_init)();
    // Programs that call moe_ggml_register have it; null otherwise.
    void (*backend_register)(Registry*);
    // For threads.hpp; all of them, or all null.
    Registry* (*reg_by_name)(const char*);
    ContextMemory* (*context_new)(ContextParams);
    void (*context_free)(ContextMemory*);
    Tensor* (*custom_4d)(ContextMemory*, int type, int64_t, int64_t, int64_t, int64_t, Tensor**,
                         int n_args, CustomNode, int n_tasks, void* data);
    size_t (*graph_overhead)();
    Graph* (*graph_new)(ContextMemory*);
    void (*graph_expand)(Graph*, Tensor*);
    void (*pool_params)(void* params, int n_threads);
    HostCompute compute;  // null until find_compute, unless the program's list has them

    bool has_row_copies;  // the layouts of 0.10 and later
    bool
        has_compute_flag;  // nodes without flag_compute are in the graph but are not to be computed
};

// Throws std::runtime_error with the reason when this ggml cannot be served. `caller` is an address
// inside the code that asks, which is ggml's or the program's.
Host host_of_process(const void* caller);
Host host_of_list(const moe_ggml_function* functions, size_t n_functions);

// Completes compute from the library that has this address; false: something is missing.
bool find_compute(Host& found, void* address);

// Whether a version is served, or the reason why not: too old, too new, of an unknown form.
std::string refusal_of(const std::string& version);

// The one that was taken. Set once, before ggml gets to know the device.
extern Host host;

}  // namespace moe::ggml
