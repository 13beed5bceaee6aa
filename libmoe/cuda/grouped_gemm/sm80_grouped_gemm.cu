// Launches the portable grouped kernels; sm80_grouped_gemm.cuh has their contract.
#include <algorithm>

#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"
#include "libmoe/cuda/grouped_gemm/sm80_call.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_instances.hpp"
#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"
#include "libmoe/cuda/runtime/launch.hpp"

namespace moe::cuda {
namespace {

using InstanceTable = Sm80Kernels (*)(PackedType, Operand);
constexpr InstanceTable instance_tables[] = {
    sm80_grouped_16bit, sm80_grouped_8bit,    sm80_grouped_fp4,
    sm80_grouped_kbit,  sm80_grouped_ggml_32, sm80_grouped_k_quants,
    sm80_grouped_iq,    sm80_grouped_int_low, sm80_grouped_int_high,
};

Sm80Kernels kernels_of(PackedType type, Operand operand) {
    for (const InstanceTable table : instance_tables) {
        if (const Sm80Kernels kernels = table(type, operand); kernels.wide.function) return kernels;
    }
    return {};
}

Operand operand_of(moe_type type) {
    return type == MOE_TYPE_F16 ? Operand::f16 : Operand::bf16;
}

// Two stages fit every architecture (tests/plan/portable_tiles_test.cpp).
Sm80Config config_of(const DeviceFacts& device, const Sm80Kernel& kernel, PackedType type) {
    const Sm80Config config = kernel.config(device, type, kernel.static_bytes);
    check(config.blocks_per_sm > 0 ? cudaSuccess : cudaErrorInvalidConfiguration,
          "the stages of the portable grouped GEMM");
    return config;
}

bool can_copy(const DeviceRows& in, moe_type operand) {
    return in.type == operand && takes_packets(in.data, in.stride);
}

// Quick activations are good for 16 bits (device/fast_activation.cuh).
bool can_store_fours(const GemmArgs& gemm) {
    const DeviceRows& out = gemm.out;
    const bool is_activated =
        gemm.epilogue == Epilogue::gated || gemm.epilogue == Epilogue::activation;
    return reinterpret_cast<uintptr_t>(out.data) % (4 * element_size(out.type)) == 0 &&
           out.stride % 4 == 0 &&
           (!is_activated || (out.type != MOE_TYPE_F32 && gemm.round_to == out.type));
}

void launch_grouped(const DeviceFacts& device, const GemmArgs& gemm, const Sm80Kernel& kernel,
                    const KernelName& name, moe_type operand, cudaStream_t stream) {
    const Sm80Config config = config_of(device, kernel, gemm.weights.type);
    Sm80Call call{gemm,
                  gemm.in_columns / 8,
                  gemm.weights.tile_stride(),
                  {config.stages[0], config.stages[1], config.stages[2]},
                  config.few_rows,
                  can_copy(gemm.in, operand),
                  can_store_fours(gemm),
                  grid_records_of(gemm.weights.type, gemm.weights.k)};
    const int64_t n_groups = groups_of_tiles(gemm.weights);
    check(n_groups * gemm.max_tiles <= INT32_MAX ? cudaSuccess : cudaErrorInvalidConfiguration,
          "the work items of the portable grouped GEMM, which have 31 bits");
    cudaLaunchConfig_t launch{};
    launch.gridDim = dim3(static_cast<unsigned>(std::min<int64_t>(
        int64_t{device.n_sms} * config.blocks_per_sm, n_groups * gemm.max_tiles)));
    launch.blockDim = dim3(static_cast<unsigned>(kernel.threads));
    launch.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
    launch.stream = stream;
    cudaLaunchAttribute early = early_start();
    launch.attrs = &early;
    launch.numAttrs = kernels_may_start_early() ? 1 : 0;
    void* arguments[] = {&call};
    launch_kernel(name.c_str(), kernel.function, launch, arguments);
}

// All types of a grid's kind share a kernel, so it may have all that there is.
void load(const DeviceFacts& device, const Sm80Kernel& kernel, PackedType type) {
    config_of(device, kernel, type);
    check(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               device.shared_bytes - kernel.static_bytes),
          "loading the portable grouped GEMM kernels");
}

}  // namespace

bool has_sm80_grouped_gemm_instances(PackedType type) {
    const Sm80Kernels in_bf16 = kernels_of(type, Operand::bf16);
    const Sm80Kernels in_f16 = kernels_of(type, Operand::f16);
    const bool has_middle = sm80_has_middle(type);
    return in_bf16.narrow.function && in_f16.narrow.function &&
           (in_bf16.middle.function != nullptr) == has_middle &&
           (in_f16.middle.function != nullptr) == has_middle;
}

void prepare_sm80_grouped_gemm(const DeviceFacts& device, PackedType type, moe_type operand) {
    kernels_may_start_early();
    const Sm80Kernels kernels = kernels_of(type, operand_of(operand));
    if (!kernels.wide.function) return;  // a role that the layer lacks
    load(device, kernels.wide, type);
    load(device, kernels.narrow, type);
    if (kernels.middle.function) load(device, kernels.middle, type);
}

void run_sm80_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                           TileWidths tiles, moe_type operand, cudaStream_t stream) {
    if (gemm.max_tiles == 0 || gemm.weights.n_tiles == 0) return;
    const Sm80Kernels kernels = kernels_of(gemm.weights.type, operand_of(operand));
    const auto launch = [&](const Sm80Kernel& kernel, const KernelName& name) {
        launch_grouped(device, gemm, kernel, name, operand, stream);
    };
    switch (tiles) {
        case TileWidths::narrow:
            return launch(kernels.narrow, names.narrow);
        case TileWidths::middle:
            return launch(kernels.middle, names.middle);
        default:
            return launch(kernels.wide, names.wide);
    }
}

}  // namespace moe::cuda
