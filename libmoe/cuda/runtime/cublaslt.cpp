// cuBLASLt behind dlopen: C [n, m] = B [n, k] A [m, k]^T with a float32 accumulator.
//
// It declares the functions and constants of cublasLt.h that a plain GEMM needs, so the build does
// not require that header.
//   1. load: dlopen, look up the functions, make a handle and one GEMM descriptor
//   2. find: query the heuristic for an algorithm for the given sizes and workspace
//   3. run: issue the GEMM with that algorithm on a stream
#include "libmoe/cuda/runtime/cublaslt.hpp"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace moe::cuda {
namespace {

using Status = int;
using Opaque = void*;

// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t.
struct Algorithm {
    uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace_bytes;
    Status state;
    float waves;
    int reserved[4];
};

// cublasLtMatrixLayoutOpaque_t.
struct Layout {
    uint64_t data[8];
};

constexpr int compute_f32 = 68;    // CUBLAS_COMPUTE_32F
constexpr int data_f32 = 0;        // CUDA_R_32F
constexpr int data_f16 = 2;        // CUDA_R_16F
constexpr int data_bf16 = 14;      // CUDA_R_16BF
constexpr int transpose_a = 3;     // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int operation_t = 1;     // CUBLAS_OP_T
constexpr int max_workspace = 1;   // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int alignment_of_a = 5;  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; B, C, D follow
constexpr uint32_t alignment = 16;

int data_type(moe_type type) {
    return type == MOE_TYPE_F32 ? data_f32 : type == MOE_TYPE_F16 ? data_f16 : data_bf16;
}

}  // namespace

struct CublasLt::Functions {
    Status (*create)(Opaque*);
    Status (*destroy)(Opaque);
    Status (*desc_create)(Opaque*, int compute, int scale_type);
    Status (*desc_destroy)(Opaque);
    Status (*desc_set)(Opaque, int attribute, const void*, size_t);
    Status (*layout_init)(Layout*, size_t, int type, uint64_t rows, uint64_t columns, int64_t ld);
    Status (*preference_create)(Opaque*);
    Status (*preference_destroy)(Opaque);
    Status (*preference_set)(Opaque, int attribute, const void*, size_t);
    Status (*heuristic)(Opaque handle, Opaque desc, Layout* a, Layout* b, Layout* c, Layout* d,
                        Opaque preference, int wanted, Heuristic* results, int* n_results);
    Status (*matmul)(Opaque handle, Opaque desc, const void* alpha, const void* a, Layout* a_layout,
                     const void* b, Layout* b_layout, const void* beta, const void* c,
                     Layout* c_layout, void* d, Layout* d_layout, const Algorithm* algorithm,
                     void* workspace, size_t workspace_bytes, cudaStream_t stream);

    bool find(void* library) {
        auto get = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
            return function != nullptr;
        };
        return get(create, "cublasLtCreate") && get(destroy, "cublasLtDestroy") &&
               get(desc_create, "cublasLtMatmulDescCreate") &&
               get(desc_destroy, "cublasLtMatmulDescDestroy") &&
               get(desc_set, "cublasLtMatmulDescSetAttribute") &&
               get(layout_init, "cublasLtMatrixLayoutInit_internal") &&
               get(preference_create, "cublasLtMatmulPreferenceCreate") &&
               get(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
               get(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
               get(heuristic, "cublasLtMatmulAlgoGetHeuristic") && get(matmul, "cublasLtMatmul");
    }
};

namespace {

// The library is column-major: row-major C = B A^T is column-major C^T = A^T^T B^T, so operand A is
// transposed.
struct Layouts {
    Layout a, b, c;
};

template <class Init>
bool describe(Init init, const DenseGemm& p, Layouts& of) {
    return init(&of.a, sizeof of.a, data_type(p.type), p.k, p.m, p.a_stride) == 0 &&
           init(&of.b, sizeof of.b, data_type(p.type), p.k, p.n, p.b_stride) == 0 &&
           init(&of.c, sizeof of.c, data_type(p.out_type), p.m, p.n, p.c_stride) == 0;
}

}  // namespace

std::unique_ptr<CublasLt> CublasLt::load(const char* path) {
    std::unique_ptr<CublasLt> loaded(new CublasLt);
    for (const char* name : {path, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
        if (!name || loaded->library_) continue;
        loaded->library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    loaded->functions_ = std::make_unique<Functions>();
    const Functions& f = *loaded->functions_;
    const bool good =
        loaded->library_ && loaded->functions_->find(loaded->library_) &&
        f.create(&loaded->handle_) == 0 &&
        f.desc_create(&loaded->gemm_desc_, compute_f32, data_f32) == 0 &&
        f.desc_set(loaded->gemm_desc_, transpose_a, &operation_t, sizeof operation_t) == 0;
    return good ? std::move(loaded) : nullptr;
}

const CublasLt* CublasLt::shared(const char* path, int32_t device) {
    using Key = std::pair<std::string, int32_t>;
    // The map is never destroyed, because the driver may be gone before it at the end of a process.
    static auto& kept = *new std::map<Key, std::unique_ptr<CublasLt>>;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    const Key key(path ? path : "", device);
    auto found = kept.find(key);
    if (found == kept.end()) found = kept.emplace(key, load(path)).first;
    return found->second.get();
}

CublasLt::~CublasLt() {
    if (gemm_desc_) functions_->desc_destroy(gemm_desc_);
    if (handle_) functions_->destroy(handle_);
    if (library_) dlclose(library_);
}

bool CublasLt::find(const DenseGemm& p, LibraryAlgorithm& algorithm) const {
    const Functions& f = *functions_;
    algorithm.is_known = false;
    Layouts of;
    Opaque preference = nullptr;
    if (!describe(f.layout_init, p, of) || f.preference_create(&preference) != 0) return false;
    const auto capacity = static_cast<size_t>(p.workspace_bytes);
    bool good = f.preference_set(preference, max_workspace, &capacity, sizeof capacity) == 0;
    for (int i = 0; i < 4; ++i)
        good = good &&
               f.preference_set(preference, alignment_of_a + i, &alignment, sizeof alignment) == 0;
    Heuristic found{};
    int n_found = 0;
    good = good && f.heuristic(handle_, gemm_desc_, &of.a, &of.b, &of.c, &of.c, preference, 1,
                               &found, &n_found) == 0;
    f.preference_destroy(preference);
    if (!good || n_found == 0) return false;
    static_assert(sizeof algorithm.data == sizeof found.algorithm);
    std::memcpy(algorithm.data, &found.algorithm, sizeof algorithm.data);
    return algorithm.is_known = true;
}

bool CublasLt::run(const DenseGemm& p, const LibraryAlgorithm& algorithm,
                   cudaStream_t stream) const {
    Layouts of;
    if (!algorithm.is_known || !describe(functions_->layout_init, p, of)) return false;
    Algorithm used;
    std::memcpy(&used, algorithm.data, sizeof used);
    const float one = 1.0f, zero = 0.0f;
    return functions_->matmul(handle_, gemm_desc_, &one, p.a, &of.a, p.b, &of.b, &zero, p.c, &of.c,
                              p.c, &of.c, &used, p.workspace,
                              static_cast<size_t>(p.workspace_bytes), stream) == 0;
}

bool CublasLt::run(const DenseGemm& gemm, cudaStream_t stream) const {
    LibraryAlgorithm algorithm;
    return find(gemm, algorithm) && run(gemm, algorithm, stream);
}

}  // namespace moe::cuda
