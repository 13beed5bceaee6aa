// cuBLASLt where the machine has it: found by dlopen, never required. It runs GEMMs whose sizes the
// host knows, with a float32 accumulator.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "libmoe/cuda/runtime/library_algorithm.hpp"
#include "moe/moe.h"

namespace moe::cuda {

// C [n, m] = B [n, k] A [m, k]^T, row-major: rows of tokens times rows of weights. Pointers and
// rows are aligned to 16 bytes.
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
    // A null path means the usual names. It returns null when there is no such library. The handle
    // is for the current device.
    static std::unique_ptr<CublasLt> load(const char* path);
    // Returns the process's instance for a path and the current device, which is `device`. The
    // first call loads it and nothing unloads it. It returns null when there is no such library.
    static const CublasLt* shared(const char* path, int32_t device);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    // Returns false when the library has no algorithm for this GEMM. It does not read the pointers.
    bool find(const DenseGemm& gemm, LibraryAlgorithm& algorithm) const;
    // Returns false when the GEMM cannot be run. It allocates nothing and may be captured.
    bool run(const DenseGemm& gemm, const LibraryAlgorithm& algorithm, cudaStream_t stream) const;
    // Finds an algorithm and runs it.
    bool run(const DenseGemm& gemm, cudaStream_t stream) const;

  private:
    struct Functions;
    CublasLt() = default;

    void* library_ = nullptr;
    std::unique_ptr<Functions> functions_;
    void* handle_ = nullptr;
    void* gemm_desc_ = nullptr;  // descriptor of every GEMM: float32 accumulator, A transposed
};

}  // namespace moe::cuda
