// A counting sort: count, place, fill.
#include "libmoe/cpu/ref/dispatch.hpp"

#include <algorithm>

#include "libmoe/base/checked.hpp"

namespace moe::cpu {

void dispatch(const int32_t* ids, int64_t n_slots, const Membership& membership, int32_t block_rows,
              int64_t* offsets, int64_t* counts, int32_t* row_slot) {
    const int32_t n_local = membership.n_local;
    std::fill(offsets, offsets + n_local + 1, 0);
    for (int64_t slot = 0; slot < n_slots; ++slot) {
        const int32_t local = membership.local(ids[slot]);
        if (local >= 0) ++offsets[local + 1];
    }
    if (counts) std::copy(offsets + 1, offsets + n_local + 1, counts);
    for (int32_t e = 0; e < n_local; ++e)
        offsets[e + 1] = offsets[e] + divide_up(offsets[e + 1], block_rows) * block_rows;
    std::fill(row_slot, row_slot + offsets[n_local], -1);
    // offsets[e] runs to the end of e's rows while they are placed, and is set back afterwards.
    for (int64_t slot = 0; slot < n_slots; ++slot) {
        const int32_t local = membership.local(ids[slot]);
        if (local >= 0) row_slot[offsets[local]++] = static_cast<int32_t>(slot);
    }
    int64_t begin = 0;
    for (int32_t e = 0; e < n_local; ++e) {
        const int64_t end = begin + divide_up(offsets[e] - begin, block_rows) * block_rows;
        offsets[e] = begin;
        begin = end;
    }
}

int64_t read_ids(const void* ids, moe_type type, int64_t row_stride, int64_t first_token,
                 int64_t n_tokens, int32_t top_k, int32_t n_all, int32_t* out) {
    int64_t n_bad = 0;
    for (int64_t t = 0; t < n_tokens; ++t)
        for (int32_t j = 0; j < top_k; ++j) {
            const int64_t at = (first_token + t) * row_stride + j;
            const int64_t id = type == MOE_TYPE_I64 ? static_cast<const int64_t*>(ids)[at]
                                                    : static_cast<const int32_t*>(ids)[at];
            const bool good = id >= -1 && id < n_all;
            n_bad += !good;
            out[t * top_k + j] = good ? static_cast<int32_t>(id) : -1;
        }
    return n_bad;
}

}  // namespace moe::cpu
