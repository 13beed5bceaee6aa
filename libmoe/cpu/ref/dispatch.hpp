// Dispatch: from the expert ids of tokens to rows sorted by local expert. Plain loops, one thread.
#pragma once

#include <cstdint>

#include "moe/moe.h"

namespace moe::cpu {

// Which experts are here.
struct Membership {
    const int32_t* local_of;  // [n_experts] local index or -1; null: every expert, under its own number
    int32_t n_experts;
    int32_t n_local;

    // -1 for absent and identity experts and skipped slots.
    int32_t local(int32_t id) const {
        if (id < 0 || id >= n_experts) return -1;
        const int32_t local = local_of ? local_of[id] : id;
        return local < n_local ? local : -1;
    }
};

// ids [n_tokens, k] dense, in [-1, E_all). Every expert's rows start on a multiple of block_rows; slots ascend inside an expert.
// offsets [n_local + 1]; counts [n_local] may be null; row_slot [offsets[n_local]], -1 in padding rows.
void dispatch(const int32_t* ids, int64_t n_slots, const Membership& membership, int32_t block_rows,
              int64_t* offsets, int64_t* counts, int32_t* row_slot);

// ids of any type and stride to dense int32; an id outside [-1, n_all) becomes -1. Returns how many did.
int64_t read_ids(const void* ids, moe_type type, int64_t row_stride, int64_t first_token,
                 int64_t n_tokens, int32_t top_k, int32_t n_all, int32_t* out);

}  // namespace moe::cpu
