// The grouped GEMM of E4M3 on Hopper: instances and launch (sm90_fp8_grouped_gemm.cuh).
#include "libmoe/cuda/grouped_gemm/sm90_fp8_grouped_gemm.cuh"

#include <algorithm>

#include "libmoe/cuda/dequant/e2m1_fp8.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/grid_fp8.cuh"
#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"
#include "libmoe/cuda/runtime/launch.hpp"

namespace moe::cuda {
namespace {

struct Fp8Kernel {
    const void* linear;
    const void* gated;
    uint32_t blocks_per_sm;
    uint32_t shared_bytes;
    int32_t linear_item, gated_item;  // packed tiles of a work item
};

struct Fp8Kernels {
    Fp8Kernel wide, middle, narrow;  // null functions: there are no instances
};

template <PackedType type, class Shape>
Fp8Kernel kernel_of() {
    using Dequant = Fp8Dequant<type>;
    return {reinterpret_cast<const void*>(&fp8_grouped_kernel<Dequant, Shape, false>),
            reinterpret_cast<const void*>(&fp8_grouped_kernel<Dequant, Shape, true>),
            Shape::blocks_per_sm,
            Fp8Shared<type, Shape>::bytes,
            8 * row_blocks_of_item<Shape>(Epilogue::linear),
            8 * row_blocks_of_item<Shape>(Epilogue::gated)};
}

static_assert(fp8_tiles.max_rows == Fp8Wide::most_rows);
static_assert(fp8_middle_tiles.max_rows == Fp8Middle::most_rows);
static_assert(fp8_narrow_tiles.max_rows == Fp8Narrow::most_rows);
static_assert(Fp8Wide::threads == Fp8Narrow::threads && Fp8Wide::threads == Fp8Middle::threads);

template <PackedType type>
Fp8Kernels kernels_of() {
    Fp8Kernel middle{};
    if constexpr (fp8_has_middle(type)) middle = kernel_of<type, Fp8Middle>();
    return {kernel_of<type, Fp8Wide>(), middle, kernel_of<type, Fp8Narrow>()};
}

Fp8Kernels kernels_of(PackedType type) {
    switch (kind_of(type)) {
        case PackedType::e4m3:
            return kernels_of<PackedType::e4m3>();
        case PackedType::grid_e4m3:
            return kernels_of<PackedType::grid_e4m3>();
        case PackedType::grid_4:
            return kernels_of<PackedType::grid_4>();
        case PackedType::nvfp4:
            return kernels_of<PackedType::nvfp4>();
        case PackedType::mxfp4:
            return kernels_of<PackedType::mxfp4>();
        default:
            return {};
    }
}

}  // namespace

bool has_fp8_grouped_gemm_instances(PackedType type) {
    if (is_grid(type) && !grouped_reads_grid(type)) return false;
    return kernels_of(type).wide.linear != nullptr;
}

void prepare_fp8_grouped_gemm(PackedType type) {
    const Fp8Kernels kernels = kernels_of(type);
    for (const Fp8Kernel& kernel : {kernels.wide, kernels.middle, kernels.narrow})
        for (const void* function : {kernel.linear, kernel.gated})
            if (function)
                check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(kernel.shared_bytes)),
                      "loading the grouped GEMM kernels of E4M3");
}

void run_fp8_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                          TileWidths tiles, cudaStream_t stream) {
    if (gemm.max_tiles == 0 || gemm.weights.n_tiles == 0) return;
    const Fp8Kernels kernels = kernels_of(gemm.weights.type);
    const Fp8Kernel& kernel = tiles == TileWidths::narrow   ? kernels.narrow
                              : tiles == TileWidths::middle ? kernels.middle
                                                            : kernels.wide;
    const bool is_linear = gemm.epilogue == Epilogue::linear;
    const int32_t tiles_of_item = is_linear ? kernel.linear_item : kernel.gated_item;
    const int64_t most_items =
        int64_t{gemm.max_tiles} * ((gemm.weights.n_tiles + tiles_of_item - 1) / tiles_of_item);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(
        std::min<int64_t>(int64_t{device.n_sms} * kernel.blocks_per_sm, most_items)));
    config.blockDim = dim3(Fp8Wide::threads);
    config.dynamicSmemBytes = kernel.shared_bytes;
    config.stream = stream;
    cudaLaunchAttribute early = early_start();
    config.attrs = &early;
    config.numAttrs = 1;
    Sm90Call call{gemm, grid_records_of(gemm.weights.type, gemm.weights.k), nullptr, 0};
    void* arguments[] = {&call};
    const KernelName& name = tiles == TileWidths::narrow   ? names.narrow
                             : tiles == TileWidths::middle ? names.middle
                                                           : names.wide;
    launch_kernel(name.c_str(), is_linear ? kernel.linear : kernel.gated, config, arguments);
}

}  // namespace moe::cuda
