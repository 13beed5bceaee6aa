// The experts of a token and their weighted acc at the speed of memory.
//
// Of each token: out[n] = acc over slots j of w_j (down_j h_j + bias_j), h_j = bfloat16(act(gate_j
// x, up_j x)). Shapes: k of both matrices a multiple of 64 (q4_k: 256); up to 64 slots, in any
// order, of which those without a local expert take no part. x is aligned to 16 bytes. Types of the
// two matrices may differ. local_of may be null: ids are local then. Sums are float32 in a fixed
// order.
//
// Few tokens go side by side: token t has the blocks (b, t) of the grid, and the multiprocessors
// are divided by tokens. An expert of two tokens is read twice, the second time from the L2.
//
// Two kernels, gemv_gate_up.cuh and gemv_down.cuh, each launched so that it may start
// while the kernel before it ends. Weights stream through rings of shared memory, one for each
// warp; scales are applied after the product (gemv_dequant.cuh). gemv_tiling.cpp cuts the work;
// this file launches. The kernels of sm_90 and the portable ones differ by the pipeline alone
// (stream_pipeline.cuh): one is filled by the copy engine, the other by the warp itself.
#include <algorithm>
#include <cmath>

#include "libmoe/cuda/gemv/gemv_params.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"

namespace moe::cuda {
namespace {

GemvSlots slots_of(const GemvArgs& call) {
    return {call.ids,
            call.local_of,
            call.weights,
            call.ids_stride,
            call.weights_stride,
            call.n_slots,
            call.top_k,
            call.n_ids,
            call.n_ids_all,
            call.n_local,
            call.local_of ? 0 : std::min(call.n_ids, call.n_local),
            call.faults};
}

using Group = GemvKernels (*)(PackedType, CodebookMode);
constexpr Group bulk_groups[] = {sm90_gemv_dense, sm90_gemv_fp4, sm90_gemv_kbit, sm90_gemv_kbit_f32,
                                 sm90_gemv_gguf};
constexpr Group portable_groups[] = {sm80_gemv_dense, sm80_gemv_fp4, sm80_gemv_kbit,
                                     sm80_gemv_kbit_f32, sm80_gemv_gguf};

GemvKernels kernels_of(PackedType type, CodebookMode codebook_mode, bool portable) {
    for (const Group find : portable ? portable_groups : bulk_groups) {
        const GemvKernels kernels = find(type, codebook_mode);
        if (kernels.gate_up) return kernels;
    }
    return {};
}

// Of one token alone: several had no gain of it.
void find_prefetch(const GemvArgs& call, const GemvTuning& tuning, GemvGateUpParams& first) {
    if (call.n_slots == call.top_k || call.n_tokens > 1) return;
    int64_t left = tuning.prefetch_bytes;
    L2Prefetch* ahead = first.ahead;
    for (const PackedMatrix* matrix : {&call.gate_up, &call.down}) {
        const int64_t bytes = std::min(left, matrix->tile_stride() * matrix->n_tiles);
        const int64_t of_block = bytes / first.tiling.n_blocks / 16 * 16;
        *ahead++ = {matrix->data + matrix->expert_stride * call.n_local,
                    static_cast<int32_t>(of_block)};
        left -= bytes;
    }
}

template <class Call>
void launch(const void* kernel, Call& call, int32_t n_tokens, cudaStream_t stream,
            const char* what) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0] = early_start();
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(call.tiling.cluster), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3(static_cast<unsigned>(call.tiling.n_blocks), static_cast<unsigned>(n_tokens));
    config.blockDim = dim3(static_cast<unsigned>(32 * call.tiling.n_warps));
    config.dynamicSmemBytes = static_cast<size_t>(call.tiling.shared.total);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = !kernels_may_start_early() ? 0 : call.tiling.cluster > 1 ? 2 : 1;
    void* arguments[] = {&call};
    check(cudaLaunchKernelExC(&config, kernel, arguments), what);
}

void prepare_kernel(const void* kernel, int32_t most_shared) {
    if (!kernel) return;
    cudaFuncAttributes loaded;
    check(cudaFuncGetAttributes(&loaded, kernel), "loading a one-token kernel");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared),
          "shared memory of a one-token kernel");
    // The default would leave room for blocks of this kernel alone, and none for one of the other.
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "shared memory of a one-token kernel");
}

}  // namespace

bool gemv_supports(PackedType type) {
    const CodebookMode codebook_mode =
        has_codebook(type) ? CodebookMode::per_expert : CodebookMode::none;
    return kernels_of(type, codebook_mode, true).gate_up != nullptr;
}

void prepare_gemv(const DeviceFacts& device, bool portable) {
    kernels_may_start_early();  // asks the device, so that a launch need not
    for (auto type = static_cast<int32_t>(PackedType::f32);
         type <= static_cast<int32_t>(PackedType::q6_k); ++type) {
        for (const CodebookMode codebook_mode :
             {CodebookMode::none, CodebookMode::per_expert, CodebookMode::shared_lanes,
              CodebookMode::shared_bytes}) {
            const GemvKernels kernels =
                kernels_of(static_cast<PackedType>(type), codebook_mode, portable);
            prepare_kernel(kernels.gate_up, device.shared_bytes);
            prepare_kernel(kernels.gate_up_split_k, device.shared_bytes);
            prepare_kernel(kernels.down, device.shared_bytes);
        }
    }
}

void run_gemv(const DeviceFacts& device, const GemvArgs& call, cudaStream_t stream) {
    const GemvTuning tuning = tuning_of(device);
    const GemvTiling gate_up_tiling = tile_gate_up(device, call, tuning);
    const GemvTiling down_tiling = tile_down(device, call, tuning);
    const auto gate_up = kernels_of(call.gate_up.type, gate_up_tiling.codebook_mode, call.portable);
    const auto down = kernels_of(call.down.type, down_tiling.codebook_mode, call.portable);
    const int32_t intermediate = call.down.k;
    GemvGateUpParams first{call.gate_up,
                           slots_of(call),
                           gate_up_tiling,
                           call.activation,
                           call.gate_bias,
                           call.up_bias,
                           call.x,
                           call.h,
                           call.x_type,
                           call.x_stride,
                           intermediate,
                           call.weight_on_input,
                           call.weight_on_input || call.gate_bias || call.up_bias,
                           std::ldexp(1.0f, down.h_exponent),
                           {}};
    find_prefetch(call, tuning, first);
    GemvDownParams second{call.down,
                          slots_of(call),
                          down_tiling,
                          call.down_bias,
                          call.h,
                          call.out,
                          call.out_type,
                          call.out_stride,
                          call.x,
                          call.x_type,
                          call.x_stride,
                          call.gate_up.k,
                          call.shared,
                          call.scale,
                          16 * call.down.n_tiles,
                          call.weight_on_input,
                          call.accumulate};
    const bool is_split_k = first.tiling.n_groups > 1;
    launch(is_split_k ? gate_up.gate_up_split_k : gate_up.gate_up, first, call.n_tokens, stream,
           "one-token gate and up kernel");
    launch(down.down, second, call.n_tokens, stream, "one-token down kernel");
}

}  // namespace moe::cuda
