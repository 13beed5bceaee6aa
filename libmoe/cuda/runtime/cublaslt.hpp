// cuBLASLt where the machine has it: found by dlopen, never required. Products whose sizes the host
// knows, with sums in float32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "libmoe/cuda/runtime/library_algorithm.hpp"
#include "moe/moe.h"

namespace moe::cuda {

// C [n, m] = B [n, k] A [m, k]^T, row-major: rows of tokens times rows of weights. Pointers and
// rows begin on 16 bytes.
struct DenseGemm {
    int64_t m, n, k;
    moe_type type;      // of A and B: BF16, F16 or F32
    moe_type out_type;  // BF16, F16 or F32
    const void* a;
    int64_t a_stride;  // elements from row to row
    const void* b;
    int64_t b_stride;
    void* c;
    int64_t c_stride;
    void* workspace;
    uint64_t workspace_bytes;
};

class CublasLt {
  public:
    // path null: the usual names. null when there is no such library. For the current device.
    static std::unique_ptr<CublasLt> load(const char* path);
    // The process's own for a path and the current device, which is `device`: loaded by the first
    // call, never unloaded. null when there is no such library.
    static const CublasLt* shared(const char* path, int32_t device);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    // false: the library has no algorithm for this product. Pointers are not looked at.
    bool find(const DenseGemm& product, LibraryAlgorithm& algorithm) const;
    // false: it cannot be run for this product. Allocates nothing here; may be captured.
    bool run(const DenseGemm& product, const LibraryAlgorithm& algorithm,
             cudaStream_t stream) const;
    // Both.
    bool run(const DenseGemm& product, cudaStream_t stream) const;

  private:
    struct Functions;
    CublasLt() = default;

    void* library_ = nullptr;
    std::unique_ptr<Functions> functions_;
    void* handle_ = nullptr;
    void* product_ = nullptr;  // description of every product: float32 sums, A transposed
};

}  // namespace moe::cuda
