// The functions of ggml's public C API that a benchmark of its backends calls, found by name in
// shared libraries of a folder. No header of ggml is needed: every object is opaque, and no struct
// of ggml is read or written but the three values that ggml_init takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/peers/shared_library.hpp"

namespace moe::bench::ggml {

struct Context;
struct Tensor;
struct Graph;
struct Backend;
struct BufferType;
struct Buffer;
struct Device;
struct Registry;
struct Allocator;
struct Threadpool;

// Memory of a context: bytes, where they lie or null, and whether tensors get none of it.
struct InitParams {
    size_t bytes;
    void* memory;
    bool has_no_data;
};

// ggml's ids that the API takes. They have never moved: files of weights hold those of types, and
// the others are the first of their enums.
constexpr int type_f32 = 0, type_i32 = 26;
enum class DeviceKind : int { cpu = 0, gpu = 1 };
constexpr int status_success = 0;

// The members have ggml's names without the prefixes ggml_ and ggml_backend_. Forks of ggml have
// these, too:
struct SharedApi {
    const char* (*type_name)(int type);
    size_t (*tensor_overhead)();
    size_t (*graph_overhead_custom)(size_t n_nodes, bool has_gradients);
    Context* (*init)(InitParams params);
    void (*free)(Context* context);
    Tensor* (*new_tensor_2d)(Context*, int type, int64_t, int64_t);
    Tensor* (*new_tensor_3d)(Context*, int type, int64_t, int64_t, int64_t);
    Tensor* (*mul_mat_id)(Context*, Tensor* experts, Tensor* x, Tensor* ids);
    Tensor* (*add_id)(Context*, Tensor* x, Tensor* bias, Tensor* ids);
    Tensor* (*add)(Context*, Tensor*, Tensor*);
    size_t (*nbytes)(const Tensor*);
    void (*set_input)(Tensor*);
    void (*set_output)(Tensor*);
    Graph* (*new_graph_custom)(Context*, size_t n_nodes, bool has_gradients);
    void (*build_forward_expand)(Graph*, Tensor*);
    Allocator* (*gallocr_new)(BufferType*);
    bool (*gallocr_alloc_graph)(Allocator*, Graph*);
    void (*gallocr_free)(Allocator*);
    void (*tensor_set)(Tensor*, const void* data, size_t offset, size_t bytes);
    void (*tensor_get)(const Tensor*, void* data, size_t offset, size_t bytes);
    void (*buffer_free)(Buffer*);
    void (*backend_free)(Backend*);
    int (*backend_graph_compute)(Backend*, Graph*);
    // null with a GPU
    void (*set_n_threads)(Backend*, int n);

    // The last is not set: it is of another library than the rest.
    void load(const SharedLibrary& base);
};

// Those of ggml itself. Of libggml-base:
struct Api : SharedApi {
    const char* (*version)();
    void (*log_set)(void (*)(int level, const char* text, void* user), void* user);
    Tensor* (*swiglu_split)(Context*, Tensor* gate, Tensor* up);
    Tensor* (*swiglu_oai)(Context*, Tensor* gate, Tensor* up, float alpha, float limit);
    Tensor* (*mul)(Context*, Tensor*, Tensor*);
    Tensor* (*view_2d)(Context*, Tensor*, int64_t, int64_t, size_t row_bytes, size_t offset);
    Tensor* (*reshape_3d)(Context*, Tensor*, int64_t, int64_t, int64_t);
    Tensor* (*repeat_4d)(Context*, Tensor*, int64_t, int64_t, int64_t, int64_t);
    Tensor* (*get_rows)(Context*, Tensor*, Tensor* ids);
    int (*tensor_alloc)(Buffer*, Tensor*, void* address);
    Buffer* (*alloc_ctx_tensors_from_buft)(Context*, BufferType*);
    void* (*buffer_get_base)(Buffer*);
    size_t (*buffer_get_size)(Buffer*);
    const char* (*buft_name)(BufferType*);
    BufferType* (*dev_buffer_type)(Device*);
    Buffer* (*dev_buffer_from_host_ptr)(Device*, void* memory, size_t bytes, size_t largest);
    bool (*dev_supports_op)(Device*, const Tensor*);
    Backend* (*dev_init)(Device*, const char* params);
    Registry* (*dev_backend_reg)(Device*);
    void* (*reg_get_proc_address)(Registry*, const char* name);
    // Of libggml, which chooses the library of this processor:
    void (*load_all_from_path)(const char* folder);
    Device* (*dev_by_type)(int type);
    // These are of the library of this processor, null with a GPU. extra_bufts: a list that ends
    // with null.
    BufferType** (*dev_get_extra_bufts)(Device*);
    void (*set_threadpool)(Backend*, Threadpool*);
    void (*threadpool_params_init)(void* params, int n_threads);
    Threadpool* (*threadpool_new)(void* params);
    void (*threadpool_free)(Threadpool*);
    void (*threadpool_pause)(Threadpool*);
    void (*threadpool_resume)(Threadpool*);
};

// The libraries stay loaded until the program ends. Not thread-safe.
class Library {
  public:
    // Opens libggml-base and libggml of the folder and lets them choose a backend of the CPU, or of
    // the first GPU. Throws std::runtime_error that names the file or function that is missing, and
    // a version whose functions are not known to be these.
    explicit Library(const std::string& folder, DeviceKind kind = DeviceKind::cpu);

    const Api& api() const { return api_; }
    Device* device() const { return device_; }
    Backend* backend() const { return backend_.get(); }
    const std::string& version() const { return version_; }
    // The library of this processor without prefix and suffix, such as "zen4"; of a GPU nothing.
    const std::string& variant() const { return variant_; }

  private:
    void load_base(const SharedLibrary& base);
    void load_cpu(const std::string& path);

    Api api_{};
    Device* device_ = nullptr;
    std::shared_ptr<Backend> backend_;
    std::string version_, variant_;
};

}  // namespace moe::bench::ggml
