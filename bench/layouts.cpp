#include "bench/layouts.hpp"

#include <algorithm>

#include "bench/weights.hpp"

namespace moe::bench {
// The rows of one call: as moe_dispatch gives them.
struct LayoutRows::Sorted {
    std::vector<int64_t> offsets, counts;
    std::vector<int32_t> row_ids;  // [row_capacity]
};

LayoutRows::Sorted LayoutRows::sorted(const int32_t* ids) const {
    Sorted rows;
    rows.counts.assign(static_cast<size_t>(model_.n_experts), 0);
    for (int64_t s = 0; s < n_slots_; ++s) ++rows.counts[static_cast<size_t>(ids[s])];
    int64_t begin = 0;
    for (const int64_t count : rows.counts) {
        rows.offsets.push_back(begin);
        begin += (count + layout_.block_rows - 1) / layout_.block_rows * layout_.block_rows;
    }
    rows.offsets.push_back(begin);
    std::vector<int64_t> next = rows.offsets;
    rows.row_ids.assign(static_cast<size_t>(row_capacity_), -1);
    for (int64_t s = 0; s < n_slots_; ++s)
        rows.row_ids[static_cast<size_t>(next[static_cast<size_t>(ids[s])]++)] =
            static_cast<int32_t>(s);
    return rows;
}

LayoutRows::LayoutRows(const Case& what, const std::vector<int32_t>& ids, int n_calls)
    : layout_(*what.layout),
      model_(*what.model),
      n_tokens_(what.n_tokens),
      n_slots_(what.n_tokens * what.model->top_k),
      row_capacity_(n_slots_ + model_.n_experts * (layout_.block_rows - 1)) {
    std::vector<int64_t> offsets, counts;
    std::vector<int32_t> row_ids;
    for (int i = 0; i < n_calls; ++i) {
        const Sorted rows = sorted(ids.data() + i * n_slots_);
        offsets.insert(offsets.end(), rows.offsets.begin(), rows.offsets.end());
        counts.insert(counts.end(), rows.counts.begin(), rows.counts.end());
        row_ids.insert(row_ids.end(), rows.row_ids.begin(), rows.row_ids.end());
        n_rows_.push_back(rows.offsets.back());
    }
    for (const int64_t count : counts) batch_capacity_ = std::max(batch_capacity_, count);
    offsets_ = DeviceBuffer::of(offsets);
    counts_ = DeviceBuffer::of(counts);
    row_ids_ = DeviceBuffer::of(row_ids);
    const int32_t expert = ids[static_cast<size_t>((n_calls - 1) * n_slots_)];
    written_ = is_batched()
                   ? expert * batch_capacity_
                   : offsets[static_cast<size_t>((n_calls - 1) * (model_.n_experts + 1) + expert)];
    const int64_t rows = is_batched() ? model_.n_experts * batch_capacity_ : row_capacity_;
    if (layout_.in != MOE_IN_TOKENS) {
        x_ = DeviceBuffer(rows * model_.hidden * 2);
        const auto fill = what.x_type == MOE_TYPE_F16 ? fill_f16 : fill_bf16;
        fill(x_.data(), rows * model_.hidden, 7);
    }
    const int64_t bytes = (layout_.out == MOE_OUT_ROWS ? rows : n_slots_) * width() * 2;
    out_ = DeviceBuffer(bytes);
    check_cuda(cudaMemset(out_.data(), 0, static_cast<size_t>(bytes)), "clearing out");
}

int64_t LayoutRows::width() const {
    return layout_.stops ? 2 * model_.intermediate : model_.hidden;
}

moe_experts_args LayoutRows::args(int call) const {
    moe_experts_args args{};
    args.struct_size = sizeof args;
    args.in_layout = layout_.in;
    args.out_layout = layout_.out;
    args.stop_before_activation = layout_.stops;
    args.n_tokens = n_tokens_;
    args.x = x_.data();
    args.out = out_.data();
    if (layout_.in == MOE_IN_TOKENS && layout_.out != MOE_OUT_ROWS) return args;
    if (is_batched()) {
        args.counts = static_cast<int64_t*>(counts_.data()) + call * model_.n_experts;
        args.batch_capacity = batch_capacity_;
        return args;
    }
    args.offsets = static_cast<int64_t*>(offsets_.data()) + call * (model_.n_experts + 1);
    if (layout_.block_rows > 1)
        args.counts = static_cast<int64_t*>(counts_.data()) + call * model_.n_experts;
    args.row_ids = static_cast<int32_t*>(row_ids_.data()) + call * row_capacity_;
    args.n_rows = n_rows_[static_cast<size_t>(call)];
    return args;
}

const std::byte* LayoutRows::written_row() const {
    const int64_t row = layout_.out == MOE_OUT_ROWS       ? written_
                        : layout_.out == MOE_OUT_PER_SLOT ? n_slots_ - 1
                                                          : n_tokens_ - 1;
    return static_cast<const std::byte*>(out_.data()) + row * width() * 2;
}

}  // namespace moe::bench
