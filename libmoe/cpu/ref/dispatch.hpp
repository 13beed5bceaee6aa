// Dispatch: from the expert ids of tokens to rows sorted by local expert. Plain loops, one thread.
#pragma once

#include <cstdint>

#include "moe/moe.h"

namespace moe::cpu {

// Which experts are here.
struct Membership {
    // [n_experts] local index or -1; null: every expert, under its own number
    const int32_t* local_of;
    int32_t n_experts;
    int32_t n_local;

    // -1 for absent and identity experts and skipped slots.
    int32_t local(int32_t id) const {
        if (id < 0 || id >= n_experts) return -1;
        const int32_t local = local_of ? local_of[id] : id;
        return local < n_local ? local : -1;
    }
};

// Ids of tokens in the caller's memory, [T, top_k] with a stride; those outside [-1, n_all) read as
// -1.
struct IdRows {
    const void* data;  // null: none
    moe_type type;
    int64_t stride;

    // ids of one token. Returns how many were out of range.
    int64_t read(int64_t token, int32_t top_k, int32_t n_all, int32_t* out) const;
};

struct DispatchOutput {
    int64_t* offsets;   // [n_local + 1]
    int64_t* counts;    // [n_local], may be null
    int32_t* row_slot;  // [offsets[n_local]], -1 in padding rows; may be null
};

// Every expert's rows start on a multiple of block_rows; slots ascend inside an expert. The ids are
// read twice, so no memory grows with T. Returns how many ids were out of range.
int64_t dispatch(const IdRows& ids, int64_t n_tokens, int32_t top_k, int32_t n_all,
                 const Membership& membership, int64_t block_rows, const DispatchOutput& out);

}  // namespace moe::cpu
