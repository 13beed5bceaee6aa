// Launches the grouped kernels; grouped.cuh has their contract.
#include <algorithm>
#include <iterator>

#include "libmoe/cuda/experts/experts.hpp"
#include "libmoe/cuda/experts/grouped_kernels.hpp"
#include "libmoe/cuda/runtime/check.hpp"

namespace moe::cuda {
namespace {

using Unit = GroupedKernel (*)(PackedType);
constexpr Unit units[] = {
    grouped_16bit, grouped_fp4, grouped_8bit, grouped_kbit, grouped_kbit_f32, grouped_q4_k,
};

constexpr PackedType types[] = {
    PackedType::f16,       PackedType::bf16,      PackedType::e4m3,      PackedType::nvfp4,
    PackedType::mxfp4,     PackedType::kbit2,     PackedType::kbit3,     PackedType::kbit4,
    PackedType::kbit5,     PackedType::kbit2_f32, PackedType::kbit3_f32, PackedType::kbit4_f32,
    PackedType::kbit5_f32, PackedType::q8_0,      PackedType::q4_k,
};

GroupedKernel kernel_of(PackedType type) {
    for (const Unit unit : units) {
        if (const GroupedKernel kernel = unit(type); kernel.linear) return kernel;
    }
    return {};
}

}  // namespace

bool grouped_supports(PackedType type) {
    return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

void prepare_grouped() {
    for (const PackedType type : types) {
        const GroupedKernel kernel = kernel_of(type);
        for (const void* function : {kernel.linear, kernel.activated}) {
            check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(kernel.shared_bytes)),
                  "loading the grouped kernels");
        }
    }
}

void run_grouped(const DeviceFacts& device, const GroupedProduct& product, cudaStream_t stream) {
    const GroupedKernel kernel = kernel_of(product.weights.type);
    const int64_t n_row_blocks = (product.weights.n_tiles + 7) / 8;
    const int64_t most = n_row_blocks * product.max_tiles;
    if (most == 0) return;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(std::min<int64_t>(device.n_sms, most)));
    config.blockDim = dim3(384);
    config.dynamicSmemBytes = kernel.shared_bytes;
    config.stream = stream;
    GroupedProduct copy = product;
    void* arguments[] = {&copy};
    const bool linear = product.epilogue == Epilogue::linear;
    check(cudaLaunchKernelExC(&config, linear ? kernel.linear : kernel.activated, arguments),
          "grouped product");
}

}  // namespace moe::cuda
