// The experts of a token and their weighted sum at the speed of memory.
//
// Of each token: out[n] = sum over slots j of w_j (down_j h_j + bias_j), h_j = bfloat16(act(gate_j
// x, up_j x)). Shapes: k of both matrices a multiple of 64 (q4_k: 256); up to 64 slots, in any
// order, of which those without a local expert take no part. x is aligned to 16 bytes. Types of the
// two matrices may differ. local_of may be null: ids are local then. Sums are float32 in a fixed
// order.
//
// Few tokens go side by side: token t has the blocks (b, t) of the grid, and the multiprocessors
// are divided by tokens. An expert of two tokens is read twice, the second time from the L2.
//
// Two kernels, one_token_gate_up.cuh and one_token_down.cuh, each launched so that it may start
// while the kernel before it ends. Weights stream through rings of shared memory, one for each
// warp; scales are applied after the product (raw_fragment.cuh). one_token_cut.cpp cuts the work;
// this file launches. The kernels of sm_90 and the portable ones differ by the ring alone
// (stream_ring.cuh): one is filled by the copy engine, the other by the warp itself.
#include <algorithm>
#include <cmath>

#include "libmoe/cuda/experts/one_token_call.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"

namespace moe::cuda {
namespace {

OneTokenSlots slots_of(const OneToken& call) {
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

using Group = OneTokenKernels (*)(PackedType, Book);
constexpr Group bulk_groups[] = {one_token_plain, one_token_fp4, one_token_kbit, one_token_kbit_f32,
                                 one_token_gguf};
constexpr Group portable_groups[] = {one_token_portable_plain, one_token_portable_fp4,
                                     one_token_portable_kbit, one_token_portable_kbit_f32,
                                     one_token_portable_gguf};

OneTokenKernels kernels_of(PackedType type, Book book, bool portable) {
    for (const Group find : portable ? portable_groups : bulk_groups) {
        const OneTokenKernels kernels = find(type, book);
        if (kernels.gate_up) return kernels;
    }
    return {};
}

// Of one token alone: several had no gain of it.
void find_ahead(const OneToken& call, const OneTokenTuning& tuning, OneTokenGateUp& first) {
    if (call.n_slots == call.top_k || call.n_tokens > 1) return;
    int64_t left = tuning.ahead_bytes;
    OneTokenAhead* ahead = first.ahead;
    for (const PackedMatrix* matrix : {&call.gate_up, &call.down}) {
        const int64_t bytes = std::min(left, matrix->tile_stride() * matrix->n_tiles);
        const int64_t of_block = bytes / first.cut.n_blocks / 16 * 16;
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
    attributes[1].val.clusterDim = {static_cast<unsigned>(call.cut.cluster), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3(static_cast<unsigned>(call.cut.n_blocks), static_cast<unsigned>(n_tokens));
    config.blockDim = dim3(static_cast<unsigned>(32 * call.cut.n_warps));
    config.dynamicSmemBytes = static_cast<size_t>(call.cut.shared.total);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = !kernels_may_start_early() ? 0 : call.cut.cluster > 1 ? 2 : 1;
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

bool one_token_supports(PackedType type) {
    const Book book = has_codebook(type) ? Book::of_expert : Book::none;
    return kernels_of(type, book, true).gate_up != nullptr;
}

void prepare_one_token(const DeviceFacts& device, bool portable) {
    kernels_may_start_early();  // asks the device, so that a launch need not
    for (auto type = static_cast<int32_t>(PackedType::f32);
         type <= static_cast<int32_t>(PackedType::q4_k); ++type) {
        for (const Book book : {Book::none, Book::of_expert, Book::lanes, Book::bytes}) {
            const OneTokenKernels kernels =
                kernels_of(static_cast<PackedType>(type), book, portable);
            prepare_kernel(kernels.gate_up, device.shared_bytes);
            prepare_kernel(kernels.gate_up_in_teams, device.shared_bytes);
            prepare_kernel(kernels.down, device.shared_bytes);
        }
    }
}

void run_one_token(const DeviceFacts& device, const OneToken& call, cudaStream_t stream) {
    const OneTokenTuning tuning = tuning_of(device);
    const OneTokenCut gate_up_cut = cut_gate_up(device, call, tuning);
    const OneTokenCut down_cut = cut_down(device, call, tuning);
    const auto gate_up = kernels_of(call.gate_up.type, gate_up_cut.book, call.portable);
    const auto down = kernels_of(call.down.type, down_cut.book, call.portable);
    const int32_t intermediate = call.down.k;
    OneTokenGateUp first{call.gate_up,
                         slots_of(call),
                         gate_up_cut,
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
    find_ahead(call, tuning, first);
    OneTokenDown second{call.down,
                        slots_of(call),
                        down_cut,
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
    const bool in_teams = first.cut.n_teams > 1;
    launch(in_teams ? gate_up.gate_up_in_teams : gate_up.gate_up, first, call.n_tokens, stream,
           "one-token gate and up kernel");
    launch(down.down, second, call.n_tokens, stream, "one-token down kernel");
}

}  // namespace moe::cuda
