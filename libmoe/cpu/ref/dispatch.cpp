// A counting sort: count, place, fill.
#include "libmoe/cpu/ref/dispatch.hpp"

#include <algorithm>

#include "libmoe/base/checked.hpp"

namespace moe::cpu {
namespace {

int64_t round_up(int64_t rows, int64_t block_rows) {
    return divide_up(rows, block_rows) * block_rows;
}

// use(local expert, slot) for every slot of a local expert, slots ascending. Returns how many ids
// were out of range.
template <class Use>
int64_t for_each_slot(const IdRows& ids, int64_t n_tokens, int32_t top_k, int32_t n_all,
                      const Membership& membership, Use use) {
    int32_t of_token[64];  // top_k is at most 64
    int64_t n_bad = 0;
    for (int64_t t = 0; t < n_tokens; ++t) {
        n_bad += ids.read(t, top_k, n_all, of_token);
        for (int32_t j = 0; j < top_k; ++j)
            if (const int32_t local = membership.local(of_token[j]); local >= 0)
                use(local, static_cast<int32_t>(t * top_k + j));
    }
    return n_bad;
}

}  // namespace

int64_t IdRows::read(int64_t token, int32_t top_k, int32_t n_all, int32_t* out) const {
    int64_t n_bad = 0;
    for (int32_t j = 0; j < top_k; ++j) {
        const int64_t at = token * stride + j;
        const int64_t id = type == MOE_TYPE_I64 ? static_cast<const int64_t*>(data)[at]
                                                : static_cast<const int32_t*>(data)[at];
        const bool good = id >= -1 && id < n_all;
        n_bad += !good;
        out[j] = good ? static_cast<int32_t>(id) : -1;
    }
    return n_bad;
}

int64_t dispatch(const IdRows& ids, int64_t n_tokens, int32_t top_k, int32_t n_all,
                 const Membership& membership, int64_t block_rows, const DispatchOutput& out) {
    const int32_t n_local = membership.n_local;
    int64_t* offsets = out.offsets;
    std::fill_n(offsets, n_local + 1, int64_t{0});
    const int64_t n_bad = for_each_slot(ids, n_tokens, top_k, n_all, membership,
                                        [&](int32_t local, int32_t) { ++offsets[local + 1]; });
    if (out.counts) std::copy_n(offsets + 1, n_local, out.counts);
    for (int32_t e = 0; e < n_local; ++e)
        offsets[e + 1] = offsets[e] + round_up(offsets[e + 1], block_rows);
    if (!out.row_slot) return n_bad;
    std::fill_n(out.row_slot, offsets[n_local], -1);
    // offsets[e] runs to the end of e's rows while they are placed, and is set back afterwards.
    for_each_slot(ids, n_tokens, top_k, n_all, membership,
                  [&](int32_t local, int32_t slot) { out.row_slot[offsets[local]++] = slot; });
    int64_t begin = 0;
    for (int32_t e = 0; e < n_local; ++e) {
        const int64_t end = begin + round_up(offsets[e] - begin, block_rows);
        offsets[e] = begin;
        begin = end;
    }
    return n_bad;
}

}  // namespace moe::cpu
