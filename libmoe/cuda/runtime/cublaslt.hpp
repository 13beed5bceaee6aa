// cuBLASLt where the machine has it: found by dlopen, never required. Products whose sizes the host
// knows, with sums in float32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "moe/moe.h"

namespace moe::cuda {

// C [n, m] = B [n, k] A [m, k]^T, row-major: rows of tokens times rows of weights.
struct DenseProduct {
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
    // path null: the usual names. null when there is no such library.
    static std::unique_ptr<CublasLt> load(const char* path);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    // false: the library has no algorithm for this product. May be captured.
    bool run(const DenseProduct& product, cudaStream_t stream) const;

  private:
    struct Functions;
    CublasLt() = default;

    void* library_ = nullptr;
    std::unique_ptr<Functions> functions_;
    void* handle_ = nullptr;
};

}  // namespace moe::cuda
