// What forward and the stages share: the true number of tokens, the walk over chunks, and the
// choice of Real.
#pragma once

#include <algorithm>

#include "libmoe/cpu/forward.hpp"
#include "libmoe/cpu/pipeline.hpp"
#include "libmoe/cpu/round.hpp"

namespace moe::cpu {

// T of the call, or of the device-side count when there is one.
inline int64_t true_tokens(const Call& call, int64_t n_tokens, const int32_t* n_tokens_device) {
    if (!n_tokens_device) return n_tokens;
    const int64_t wanted = *n_tokens_device;
    const int64_t tokens = std::clamp<int64_t>(wanted, 0, n_tokens);
    if (tokens != wanted)
        call.team.once([&] { call.faults.add(MOE_FAULT_TOKENS_OUT_OF_RANGE, 0); });
    return tokens;
}

inline Membership membership_of(const Call& call, const int32_t* expert_map) {
    const Slice& slice = *call.setup.slice;
    return {expert_map ? expert_map : slice.local_of.data(), call.setup.layer->n_experts,
            slice.n_local};
}

// Makes the pipeline and calls body(pipeline); the scratch is sized for n_tokens.
template <class Real, class Body>
void with_pipeline(const Call& call, int64_t n_tokens, Body body) {
    const Scratch<Real> scratch(call.setup, n_tokens, call.scratch);
    Pipeline<Real> pipeline(call.team, call.setup, call.weights, call.faults, scratch);
    body(pipeline);
}

template <class Body>
void with_any_pipeline(const Call& call, int64_t n_tokens, Body body) {
    if (call.setup.is_f64())
        with_pipeline<double>(call, n_tokens, body);
    else
        with_pipeline<float>(call, n_tokens, body);
}

// Output per slot, [n, k, width]: row_of(r) for every row of the list; slots without a row are
// zero.
template <class Real, class RowOf>
void store_slots(Pipeline<Real>& p, int32_t k, int64_t width, const OutputRows& out, int64_t first,
                 int64_t n, RowOf row_of) {
    const Scratch<Real>& b = p.scratch();
    const int64_t bytes = width * activation_bytes(out.type);
    auto place = [&](int64_t slot) { return out.row(first + slot / k) + slot % k * bytes; };
    p.team().for_each(
        n * k, [&](int32_t, int64_t slot) { std::fill_n(place(slot), bytes, std::byte{0}); });
    p.team().for_each(*b.n_rows, [&](int32_t, int64_t r) {
        store_activations(out.type, row_of(r), width, false, place(b.row_slot[r]));
    });
}

// body(first, count) for chunks of at most `chunk`.
template <class Body>
void for_each_chunk(int64_t n, int64_t chunk, Body body) {
    for (int64_t first = 0; first < n; first += chunk) body(first, std::min(chunk, n - first));
}

}  // namespace moe::cpu
