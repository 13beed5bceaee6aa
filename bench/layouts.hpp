// moe_experts in the layouts of its rows, as a serving engine calls it: rows that were sorted by
// expert elsewhere, or batched, and their results in the same rows or by token.
#pragma once

#include <vector>

#include "bench/cases.hpp"
#include "bench/device.hpp"

namespace moe::bench {

// The rows of n_calls calls and their results. A call's rows are in the order of its ids.
class LayoutRows {
  public:
    // ids: [n_calls][n_tokens][top_k].
    LayoutRows(const Case& what, const std::vector<int32_t>& ids, int n_calls);
    // The arguments of a call but for x by token, ids, weights and stream.
    moe_experts_args args(int call) const;
    // A row of the last call's results that is written, and its length.
    const std::byte* written_row() const;
    int64_t width() const;

  private:
    struct Sorted;
    Sorted sorted(const int32_t* ids) const;
    bool is_batched() const { return layout_.in == MOE_IN_BATCHED; }

    const Layout& layout_;
    const Model& model_;
    int64_t n_tokens_, n_slots_, row_capacity_, batch_capacity_ = 0;
    int64_t written_ = 0;  // a row of the caller with a result
    std::vector<int64_t> n_rows_;
    DeviceBuffer offsets_, counts_, row_ids_, x_, out_;
};

}  // namespace moe::bench
