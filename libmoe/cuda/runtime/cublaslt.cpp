// The few functions and numbers of cublasLt.h that a plain product needs; the header itself is not
// required to build.
#include "libmoe/cuda/runtime/cublaslt.hpp"

#include <dlfcn.h>

#include "libmoe/cuda/runtime/check.hpp"

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

constexpr int compute_f32 = 68;   // CUBLAS_COMPUTE_32F
constexpr int data_f32 = 0;       // CUDA_R_32F
constexpr int data_f16 = 2;       // CUDA_R_16F
constexpr int data_bf16 = 14;     // CUDA_R_16BF
constexpr int transpose_a = 3;    // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int operation_t = 1;    // CUBLAS_OP_T
constexpr int max_workspace = 1;  // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES

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
    Status (*layout_create)(Opaque*, int type, uint64_t rows, uint64_t columns, int64_t ld);
    Status (*layout_destroy)(Opaque);
    Status (*preference_create)(Opaque*);
    Status (*preference_destroy)(Opaque);
    Status (*preference_set)(Opaque, int attribute, const void*, size_t);
    Status (*heuristic)(Opaque handle, Opaque desc, Opaque a, Opaque b, Opaque c, Opaque d,
                        Opaque preference, int wanted, Heuristic* results, int* n_results);
    Status (*matmul)(Opaque handle, Opaque desc, const void* alpha, const void* a, Opaque a_layout,
                     const void* b, Opaque b_layout, const void* beta, const void* c,
                     Opaque c_layout, void* d, Opaque d_layout, const Algorithm* algorithm,
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
               get(layout_create, "cublasLtMatrixLayoutCreate") &&
               get(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
               get(preference_create, "cublasLtMatmulPreferenceCreate") &&
               get(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
               get(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
               get(heuristic, "cublasLtMatmulAlgoGetHeuristic") && get(matmul, "cublasLtMatmul");
    }
};

namespace {

// An object of the library that ends with the scope.
class Owned {
  public:
    explicit Owned(Status (*destroy)(Opaque)) : destroy_(destroy) {}
    ~Owned() {
        if (object) destroy_(object);
    }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    Opaque object = nullptr;

  private:
    Status (*destroy_)(Opaque);
};

}  // namespace

std::unique_ptr<CublasLt> CublasLt::load(const char* path) {
    std::unique_ptr<CublasLt> loaded(new CublasLt);
    for (const char* name : {path, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
        if (!name || loaded->library_) continue;
        loaded->library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    loaded->functions_ = std::make_unique<Functions>();
    if (!loaded->library_ || !loaded->functions_->find(loaded->library_) ||
        loaded->functions_->create(&loaded->handle_) != 0)
        return nullptr;
    return loaded;
}

CublasLt::~CublasLt() {
    if (handle_) functions_->destroy(handle_);
    if (library_) dlclose(library_);
}

// The library is column-major: row-major C = B A^T is column-major C^T = A^T^T B^T, an operand A
// that is transposed.
bool CublasLt::run(const DenseProduct& p, cudaStream_t stream) const {
    const Functions& f = *functions_;
    Owned desc(f.desc_destroy), a(f.layout_destroy), b(f.layout_destroy), c(f.layout_destroy),
        preference(f.preference_destroy);
    bool good = f.desc_create(&desc.object, compute_f32, data_f32) == 0 &&
                f.layout_create(&a.object, data_type(p.type), p.k, p.m, p.a_stride) == 0 &&
                f.layout_create(&b.object, data_type(p.type), p.k, p.n, p.b_stride) == 0 &&
                f.layout_create(&c.object, data_type(p.out_type), p.m, p.n, p.c_stride) == 0 &&
                f.preference_create(&preference.object) == 0 &&
                f.desc_set(desc.object, transpose_a, &operation_t, sizeof operation_t) == 0;
    const size_t room = p.workspace_bytes;
    good = good && f.preference_set(preference.object, max_workspace, &room, sizeof room) == 0;
    Heuristic found{};
    int n_found = 0;
    if (!good ||
        f.heuristic(handle_, desc.object, a.object, b.object, c.object, c.object, preference.object,
                    1, &found, &n_found) != 0 ||
        n_found == 0)
        return false;
    const float one = 1.0f, zero = 0.0f;
    const Status status =
        f.matmul(handle_, desc.object, &one, p.a, a.object, p.b, b.object, &zero, p.c, c.object,
                 p.c, c.object, &found.algorithm, p.workspace, room, stream);
    if (status != 0) check(cudaErrorUnknown, "cublasLtMatmul");
    return true;
}

}  // namespace moe::cuda
