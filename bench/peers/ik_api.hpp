// ik_llama.cpp's fork of ggml, one library with the CPU backend in it: what it has of ggml's API,
// and functions of its own, found by name as those of ggml.
#pragma once

#include <memory>
#include <string>

#include "bench/peers/ggml_api.hpp"

namespace moe::bench::ik {

// Numbers of ik's ggml_unary_op, which it has a look-up of names for.
constexpr int unary_silu = 10, unary_swiglu_oai = 14;

// The members have ik's names without the prefixes ggml_, ggml_backend_ and ggml_backend_cpu_.
struct Api : ggml::SharedApi {
    const char* (*unary_op_name)(int op);
    // act(gate x) * (up x) of the experts of each slot. Biases may be null.
    ggml::Tensor* (*moe_up_gate_ext)(ggml::Context*, ggml::Tensor* up, ggml::Tensor* gate,
                                     ggml::Tensor* x, ggml::Tensor* ids, ggml::Tensor* up_bias,
                                     ggml::Tensor* gate_bias, int op);
    // The sum of a token's slots, each times its weight.
    ggml::Tensor* (*mul_multi_add)(ggml::Context*, ggml::Tensor* slots, ggml::Tensor* weights);
    void (*tensor_alloc)(ggml::Buffer*, ggml::Tensor*, void* address);
    ggml::Backend* (*init_cpu)();  // ggml_backend_cpu_init
    ggml::BufferType* (*buffer_type)();
    ggml::Buffer* (*buffer_from_ptr)(void* memory, size_t bytes);
    // iqk_repack_tensor: interleaves rows of a weight where it lies, if its type has such a form.
    void (*repack_tensor)(ggml::Tensor*);
    // iqk_repacked_type: the type that this makes of it, its own where it has no such form.
    int (*repacked_type)(const ggml::Tensor*);
    // omp_pause_resource_all: ends the threads of OpenMP until the next graph. Null where it is
    // built without, and starts its threads for each graph.
    int (*pause_threads)(int kind);
};

// The library stays loaded until the program ends. Not thread-safe.
class Library {
  public:
    // Opens libggml.so of the folder. Throws std::runtime_error that names the file or function
    // that is missing, and for a build without AVX2, which has none of ik's kernels.
    explicit Library(const std::string& folder);

    const Api& api() const { return api_; }
    ggml::Backend* backend() const { return backend_.get(); }
    // The last of the extensions that it is compiled for and that its kernels use: "avx2",
    // "avx512_vnni", "avx512_bf16".
    const std::string& variant() const { return variant_; }

  private:
    Api api_{};
    std::shared_ptr<ggml::Backend> backend_;
    std::string variant_;
};

}  // namespace moe::bench::ik
