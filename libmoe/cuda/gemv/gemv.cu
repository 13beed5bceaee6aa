// Launches the gemv kernels; gemv.hpp has their contract, plan/gemv_tiling.cpp their launch
// configuration. The sm_90 instances differ from the portable ones by the pipeline alone
// (stream_pipeline.cuh): the copy engine fills the one, the warp itself the other.
#include "libmoe/cuda/gemv/gemv.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "libmoe/cuda/gemv/gather_slots.hpp"
#include "libmoe/cuda/gemv/gemv_params.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"
#include "libmoe/cuda/runtime/launch.hpp"

namespace moe::cuda {
namespace {

GemvSlots slots_of(const GemvArgs& args) {
    return {args.ids,
            args.local_of,
            args.weights,
            args.ids_stride,
            args.weights_stride,
            args.n_slots,
            args.top_k,
            args.n_ids,
            args.n_ids_all,
            args.n_local,
            args.local_of ? 0 : std::min(args.n_ids, args.n_local),
            args.faults};
}

using Instances = GemvKernels (*)(PackedType, CodebookMode);
// The first that has the type.
constexpr Instances sm90_instances[] = {sm90_gemv_dense,     sm90_gemv_fp4,    sm90_gemv_kbit,
                                        sm90_gemv_gguf,      sm90_gemv_gguf_k, sm90_gemv_iq,
                                        sm90_gemv_grid_form, sm90_gemv_grid};
constexpr Instances sm80_instances[] = {sm80_gemv_dense, sm80_gemv_fp4,    sm80_gemv_kbit,
                                        sm80_gemv_gguf,  sm80_gemv_gguf_k, sm80_gemv_iq,
                                        sm80_gemv_grid};

GemvKernels kernels_of(PackedType type, CodebookMode codebook_mode, Architecture architecture) {
    std::span<const Instances> instances = sm80_instances;
    if (has_hopper_instructions(architecture)) instances = sm90_instances;
    for (const Instances find : instances) {
        const GemvKernels kernels = find(type, codebook_mode);
        if (kernels.gate_up) return kernels;
    }
    return {};
}

// The shared expert's weights are known before ids are. Several tokens gained nothing by it.
void set_prefetch(const GemvArgs& args, const GemvLaunch& launch, GemvGateUpParams& params) {
    if (args.n_slots == args.top_k || args.n_tokens > 1) return;
    int64_t left = launch.prefetch_bytes;
    L2Prefetch* prefetch = params.ahead;
    for (const PackedMatrix* matrix : {&args.gate_up, &args.up, &args.down}) {
        if (matrix->type == PackedType::none) continue;
        const int64_t bytes = std::min(left, matrix->tile_stride() * matrix->n_tiles);
        const int64_t of_block = bytes / params.tiling.n_blocks / 16 * 16;
        *prefetch++ = {matrix->data + matrix->expert_stride * args.n_local,
                       static_cast<int32_t>(of_block)};
        left -= bytes;
    }
}

bool gathers_x(const GemvLaunch& launch, const GemvArgs& args) {
    return launch.gathers_x || args.x.index || args.x.divisor > 1 ||
           !begin_on_16_bytes(args.x, args.n_tokens);
}

// A row of x for each slot, as the table of gate and up has its columns. Slots are tokens of one
// slot from here to h, whose rows are in the same order.
void gather_x(const GemvArgs& args, GemvGateUpParams& gate_up, cudaStream_t stream) {
    const SlotRows& to = args.slot_rows;
    const PackedMatrix& matrix = args.gate_up;
    run_gather_slots({gate_up.slots, matrix.columns, matrix.table, matrix.k, args.hidden, args.x, 0,
                      to.rows, to.experts, to.weights},
                     args.n_tokens, stream);
    GemvSlots& slots = gate_up.slots;
    slots.ids = to.experts;
    slots.local_of = nullptr;
    slots.weights = to.weights;
    slots.ids_stride = slots.weights_stride = 1;
    slots.n_local += args.n_slots - args.top_k;  // the shared expert follows the local ones
    slots.n_slots = slots.top_k = 1;
    slots.n_ids = slots.n_ids_all = slots.n_direct = slots.n_local;
    gate_up.x = to.rows;
    gate_up.x_stride = gate_up.x_columns = matrix.k;
}

// The rows of h as the table of down has their columns.
void gather_h(const GemvArgs& args, GemvDownParams& down, cudaStream_t stream) {
    const PackedMatrix& matrix = args.down;
    const DeviceRows h = dense_rows(args.h, args.h_type, int64_t{args.n_slots} * matrix.k);
    run_gather_slots({down.slots, matrix.columns, matrix.table, matrix.k, args.intermediate, h,
                      matrix.k, args.slot_rows.rows, nullptr, nullptr},
                     args.n_tokens, stream);
    down.h = args.slot_rows.rows;
}

template <class Params>
void launch_tiled(const KernelName& name, const void* function, Params& params, int32_t n_tokens,
                  cudaStream_t stream) {
    const GemvTiling& tiling = params.tiling;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0] = early_start();
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(tiling.cluster), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(tiling.n_blocks), static_cast<unsigned>(n_tokens));
    config.blockDim = dim3(static_cast<unsigned>(32 * tiling.n_warps));
    config.dynamicSmemBytes = static_cast<size_t>(tiling.shared.total);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = !kernels_may_start_early() ? 0 : tiling.cluster > 1 ? 2 : 1;
    void* arguments[] = {&params};
    launch_kernel(name.c_str(), function, config, arguments);
}

void prepare_kernel(const void* kernel, int32_t max_shared) {
    cudaFuncAttributes loaded;
    check(cudaFuncGetAttributes(&loaded, kernel), "loading a gemv kernel");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared),
          "shared memory of a gemv kernel");
    // The default carveout fits thread blocks of this kernel alone and none of the other one.
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "shared memory of a gemv kernel");
}

const void* function_of(const GemvKernels& kernels, const GemvTiling& gate_up) {
    return gate_up.n_groups > 1 ? kernels.gate_up_split_k : kernels.gate_up;
}

}  // namespace

bool has_gemv_instances(PackedType type) {
    if (is_grid(type) && !gemv_reads_grid(type)) return false;
    const CodebookMode mode = has_codebook(type) ? CodebookMode::per_expert : CodebookMode::none;
    return kernels_of(type, mode, Architecture::sm80).gate_up != nullptr;
}

void prepare_gemv(const DeviceFacts& device, GemvLaunch& launch) {
    kernels_may_start_early();  // asks the device, so that a launch need not
    const auto gate_up =
        kernels_of(launch.gate_up_type, launch.gate_up.codebook_mode, launch.kernels);
    const auto down = kernels_of(launch.down_type, launch.down.codebook_mode, launch.kernels);
    launch.gate_up_function = function_of(gate_up, launch.gate_up);
    launch.down_function = down.down;
    launch.h_scale = std::ldexp(1.0f, down.h_exponent);
    prepare_kernel(launch.gate_up_function, device.shared_bytes);
    prepare_kernel(launch.down_function, device.shared_bytes);
    if (launch.up_type == PackedType::none) return;
    const auto up = kernels_of(launch.up_type, launch.up.codebook_mode, launch.kernels);
    launch.up_function = function_of(up, launch.up);
    prepare_kernel(launch.up_function, device.shared_bytes);
}

void run_gemv(const GemvLaunch& launch, const GemvArgs& args, cudaStream_t stream) {
    const GemvSlots slots = slots_of(args);
    const bool is_pair = args.up.type != PackedType::none;
    GemvGateUpParams gate_up{args.gate_up,
                             slots,
                             launch.gate_up,
                             args.activation,
                             args.gate_bias,
                             args.up_bias,
                             args.x.data,
                             args.h,
                             args.h_type,
                             args.gate_values,
                             is_pair ? GateUpRole::gate : GateUpRole::whole,
                             args.x.type,
                             args.x.stride,
                             args.hidden,
                             args.intermediate,
                             args.down.k,
                             args.weight_on_input,
                             args.weight_on_input || args.gate_bias || args.up_bias,
                             args.h_type == MOE_TYPE_F16 ? 1.0f : launch.h_scale,
                             {},
                             grid_records_of(args.gate_up.type, args.gate_up.k)};
    int32_t n_rows = args.n_tokens;  // of the grids of gate and up
    if (gathers_x(launch, args)) {
        gather_x(args, gate_up, stream);
        n_rows *= args.n_slots;
    } else {
        set_prefetch(args, launch, gate_up);
    }
    GemvDownParams down{args.down,
                        slots,
                        launch.down,
                        args.down_bias,
                        args.h,
                        args.h_type,
                        args.out,
                        args.out_type,
                        args.out_stride,
                        args.x.data,
                        args.x.type,
                        args.x.stride,
                        args.hidden,
                        args.shared,
                        args.scale,
                        16 * args.down.n_tiles,
                        args.weight_on_input,
                        args.accumulate,
                        args.keeps_absent,
                        grid_records_of(args.down.type, args.down.k)};
    launch_tiled(launch.gate_up_name, launch.gate_up_function, gate_up, n_rows, stream);
    if (is_pair) {
        GemvGateUpParams up = gate_up;
        up.matrix = args.up;
        up.tiling = launch.up;
        up.role = GateUpRole::up_after_gate;
        up.records = grid_records_of(args.up.type, args.up.k);
        for (L2Prefetch& ahead : up.ahead) ahead = {};
        launch_tiled(launch.up_name, launch.up_function, up, args.n_tokens, stream);
    }
    if (launch.gathers_h) gather_h(args, down, stream);
    launch_tiled(launch.down_name, launch.down_function, down, args.n_tokens, stream);
}

}  // namespace moe::cuda
