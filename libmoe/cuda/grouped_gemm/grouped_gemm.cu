// Launches the grouped kernels; sm90_grouped_gemm.cuh has their contract.
#include <algorithm>
#include <span>

#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_call.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_instances.hpp"
#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"
#include "libmoe/cuda/runtime/launch.hpp"

namespace moe::cuda {
namespace {

using InstanceTable = GroupedKernels (*)(PackedType);
constexpr InstanceTable instance_tables[] = {
    grouped_16bit, grouped_fp4,    grouped_8bit, grouped_kbit,
    grouped_gguf,  grouped_gguf_k, grouped_iq,   grouped_grid,
};

constexpr InstanceTable instance_tables_in_f16[] = {grouped_in_f16, grouped_in_f16_codes};

GroupedKernels kernels_of(PackedType type, moe_type operand) {
    const std::span<const InstanceTable> in_bf16 = instance_tables;
    for (const InstanceTable table : operand == MOE_TYPE_F16 ? instance_tables_in_f16 : in_bf16) {
        if (const GroupedKernels kernels = table(type); kernels.wide.linear) return kernels;
    }
    return {};
}

void allow_shared_memory(const GroupedKernel& kernel) {
    for (const void* function : {kernel.linear, kernel.activated}) {
        check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(kernel.shared_bytes)),
              "loading the grouped GEMM kernels");
    }
}

void launch_part(const DeviceFacts& device, const GemmArgs& gemm, const GroupedKernel& kernel,
                 const KernelName& name, TilePart part, cudaStream_t stream,
                 const GateValues& gate) {
    const int64_t n_row_blocks = (gemm.weights.n_tiles + 7) / 8;
    const int64_t max_work_tiles = n_row_blocks * gemm.max_tiles;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(
        std::min<int64_t>(int64_t{device.n_sms} * kernel.blocks_per_sm, max_work_tiles)));
    config.blockDim = dim3(kernel.threads);
    config.dynamicSmemBytes = kernel.shared_bytes;
    config.stream = stream;
    cudaLaunchAttribute early = early_start();  // the kernels are for sm_90 alone
    config.attrs = &early;
    config.numAttrs = 1;
    Sm90Call call{gemm, grid_records_of(gemm.weights.type, gemm.weights.k), gate.values,
                  gate.stride};
    void* arguments[] = {&call, &part};
    const bool linear = gemm.epilogue == Epilogue::linear;
    launch_kernel(name.c_str(), linear ? kernel.linear : kernel.activated, config, arguments);
}

}  // namespace

bool has_grouped_gemm_instances(PackedType type, moe_type operand) {
    if (is_grid(type) && !grouped_reads_grid(type)) return false;
    return kernels_of(type, operand).wide.linear != nullptr;
}

void prepare_grouped_gemm(PackedType type, moe_type operand) {
    if (!grouped_supports(type)) return;  // a role that the layer lacks
    const GroupedKernels kernels = kernels_of(type, operand);
    for (const GroupedKernel& kernel : {kernels.wide, kernels.middle, kernels.narrow})
        allow_shared_memory(kernel);
}

void run_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                      TileWidths tiles, cudaStream_t stream, const GateValues& gate) {
    if (gemm.max_tiles == 0 || gemm.weights.n_tiles == 0) return;
    const GroupedKernels kernels = kernels_of(gemm.weights.type, gemm.in.type);
    if (tiles == TileWidths::narrow)
        return launch_part(device, gemm, kernels.narrow, names.narrow, TilePart::all, stream, gate);
    if (tiles == TileWidths::middle)
        return launch_part(device, gemm, kernels.middle, names.middle, TilePart::all, stream, gate);
    if (tiles == TileWidths::wide)
        return launch_part(device, gemm, kernels.wide, names.wide, TilePart::all, stream, gate);
    launch_part(device, gemm, kernels.wide, names.wide, TilePart::large, stream, gate);
    launch_part(device, gemm, kernels.narrow, names.narrow, TilePart::small, stream, gate);
}

}  // namespace moe::cuda
