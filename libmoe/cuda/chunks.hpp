// Code that forward and the stages share: the walk over chunks of tokens, and the caller's pointers
// at a chunk's first token.
#pragma once

#include <algorithm>

#include "libmoe/cuda/layer_pass.hpp"

namespace moe::cuda {

template <class T>
T* offset(T* pointer, int64_t elements) {
    return pointer ? pointer + elements : nullptr;
}

inline const void* offset_ids(const void* ids, moe_type type, int64_t elements) {
    return offset(static_cast<const std::byte*>(ids), elements * (type == MOE_TYPE_I64 ? 8 : 4));
}

inline const void* offset_activations(const void* data, moe_type type, int64_t elements) {
    return offset(static_cast<const std::byte*>(data), elements * element_size(type));
}

inline CombineOutput output_from(CombineOutput out, int64_t first) {
    out.data =
        offset(static_cast<std::byte*>(out.data), first * out.stride * element_size(out.type));
    return out;
}

template <class Args>
void check_tokens(const Call& call, const Args& args, cudaStream_t stream) {
    if (args.n_tokens_device && args.n_tokens > 0)
        run_check_tokens(args.n_tokens_device, static_cast<int32_t>(args.n_tokens), call.faults,
                         stream);
}

// The ids of a call's token `first` on, without weights.
template <class Args>
GivenRouting given_ids(const Call& call, const Args& args, int64_t first) {
    GivenRouting given{};
    given.ids = offset_ids(args.ids, args.ids_type, first * args.ids_row_stride);
    given.ids_type = args.ids_type;
    given.ids_stride = args.ids_row_stride;
    given.top_k = call.setup.layer->top_k;
    given.n_experts_all = call.setup.layer->n_experts_all();
    return given;
}

// E4M3 x of a call from row `first` on.
template <class Args>
Fp8Rows fp8_rows(const Args& args, int32_t n_columns, int64_t first) {
    return {offset(static_cast<const std::byte*>(args.x), first * args.x_row_stride),
            args.x_row_stride,
            offset(static_cast<const float*>(args.x_scales), first * args.x_scale_row_stride),
            args.x_scale_row_stride, n_columns};
}

// x of a chunk's tokens; of E4M3 x the values, which make_values makes.
template <class Args>
DeviceRows rows_of_tokens(LayerPass& p, const Setup& setup, const Args& args, int32_t n_columns,
                          int64_t first) {
    if (setup.x_is_fp8) return p.values(fp8_rows(args, n_columns, first));
    return rows_from(dense_rows(args.x, setup.x_type, args.x_row_stride), first);
}

// A call keeps these of every row of a chunk.
struct RowsKept {
    bool pre_activations;  // in the wide buffer
    bool values;           // of E4M3 x
};

// Tokens at a time; fewer where the buffers of what is kept hold no more rows.
inline int64_t chunk_for(const Setup& setup, const Scratch& scratch, const RowsKept& kept) {
    const auto fits = [&](int64_t n) {
        return (!kept.pre_activations ||
                pre_activation_bytes(setup, n) <= static_cast<int64_t>(scratch.wide_bytes)) &&
               (!kept.values ||
                most_rows(n * setup.layer->top_k, setup.slice->n_local) <= scratch.value_rows);
    };
    int64_t n = scratch.chunk_tokens;
    while (n > 1 && !fits(n)) n /= 2;
    return n;
}

// Calls body(pass, first token) for chunks that fit the scratch of n_tokens tokens.
template <class Body>
void for_each_chunk(const Call& call, int64_t n_tokens, const int32_t* n_tokens_device, Body body,
                    const RowsKept& kept = {}) {
    const Scratch scratch(call.setup, n_tokens, call.scratch);
    const int64_t chunk = chunk_for(call.setup, scratch, kept);
    for (int64_t first = 0; first < n_tokens; first += chunk) {
        const int64_t n = std::min(chunk, n_tokens - first);
        LayerPass pipeline(call, scratch,
                           {static_cast<int32_t>(n), n_tokens_device, static_cast<int32_t>(first)});
        body(pipeline, first);
    }
}

}  // namespace moe::cuda
