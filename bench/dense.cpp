// Measures the dense rate: TFLOP/s of cuBLASLt for one bfloat16 GEMM of 8192^3 with a float32
// accumulator.
#include "bench/device.hpp"
#include "bench/floors.hpp"
#include "libmoe/cuda/runtime/cublaslt.hpp"

namespace moe::bench {

void fill_bf16(void* data, int64_t count, uint32_t seed);

double measure_dense_tflops() {
    const auto library = cuda::CublasLt::load(nullptr);
    if (!library) return 0;
    constexpr int64_t n = 8192, workspace_bytes = 64 << 20;
    DeviceBuffer a(n * n * 2), b(n * n * 2), c(n * n * 2), workspace(workspace_bytes);
    fill_bf16(a.data(), n * n, 1);
    fill_bf16(b.data(), n * n, 2);
    const cuda::DenseGemm gemm{
        n, n,        n, MOE_TYPE_BF16,    MOE_TYPE_BF16,  a.data(), n, b.data(),
        n, c.data(), n, workspace.data(), workspace_bytes};
    const auto call = [&](int, cudaStream_t stream) {
        if (!library->run(gemm, stream)) throw std::runtime_error("cuBLASLt has no algorithm");
    };
    return 2.0 * n * n * n / time_calls(call, 3, 9, prompt_settling_us).median_us / 1e6;
}

}  // namespace moe::bench
