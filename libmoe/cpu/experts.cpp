// moe_experts and moe_combine in every layout: a call becomes chunks of rows, each with where its
// input comes from and where its output goes.
//
// Output by token (REDUCED, PER_SLOT) goes chunk of tokens by chunk, with the rows of those tokens
// picked from the sorted rows; output by row (ROWS) goes chunk of rows by chunk. Stages are never
// entered by several threads, so lists are made by the calling thread.
#include <algorithm>
#include <cstring>

#include "libmoe/cpu/chunks.hpp"
#include "libmoe/cpu/forward.hpp"
#include "libmoe/cpu/round.hpp"

namespace moe::cpu {
namespace {

struct RowRange {
    int64_t begin, end;
};

// The caller's rows, whatever the layout.
class CallerRows {
  public:
    CallerRows(const Call& call, const moe_experts_args& args) : call_(call), args_(args) {}

    // Rows of expert e; experts are requested in ascending order, so that what came before is known
    // at no cost. Rows belong to one expert: one that does not begin behind all before it has none.
    RowRange range(int32_t e) {
        const RowRange capacity = capacity_of(e);
        if (!args_.counts) return capacity;
        const int64_t count =
            std::clamp<int64_t>(args_.counts[e], 0, capacity.end - capacity.begin);
        return {capacity.begin, capacity.begin + count};
    }
    // Slot of a row: -1 for padding; rows without row ids have none.
    int64_t slot(int64_t row) const {
        if (!args_.row_ids) return -1;
        const int64_t slot = args_.row_ids[row];
        return !uses_tokens() || slot < args_.n_tokens * call_.setup.layer->top_k ? slot : -1;
    }
    bool is_padding(int64_t row) const { return args_.row_ids && slot(row) < 0; }

    // Rows that break the rules are left out everywhere; here they are counted.
    void report_faults() {
        const int32_t n_local = call_.setup.slice->n_local;
        int64_t n_bad = 0;
        for (int32_t e = 0; e < n_local; ++e) {
            const RowRange rows = range(e);
            const int64_t count = rows.end - rows.begin;
            if (args_.in_layout == MOE_IN_BATCHED)
                n_bad += args_.counts[e] != count;
            else
                n_bad += has_bad_offsets(e) || (args_.counts && args_.counts[e] != count);
            if (!args_.row_ids) continue;
            for (int64_t row = rows.begin; row < rows.end; ++row)
                n_bad += args_.row_ids[row] != -1 && slot(row) < 0;
        }
        if (n_bad) call_.faults.add(MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_bad);
    }

  private:
    int64_t offset(int32_t e) const {
        return std::clamp<int64_t>(args_.offsets[e], 0, args_.n_rows);
    }
    RowRange capacity_of(int32_t e) {
        if (args_.in_layout == MOE_IN_BATCHED)
            return {e * args_.batch_capacity, (e + 1) * args_.batch_capacity};
        for (; n_seen_ <= e; ++n_seen_) largest_ = std::max(largest_, offset(n_seen_));
        const int64_t begin = offset(e);
        return {begin, begin < largest_ ? begin : std::max(begin, offset(e + 1))};
    }
    bool has_bad_offsets(int32_t e) const {
        return args_.offsets[e] < 0 || args_.offsets[e + 1] < args_.offsets[e] ||
               args_.offsets[e + 1] > args_.n_rows;
    }
    // Are row ids more than marks of padding? Otherwise n_tokens need not be given.
    bool uses_tokens() const {
        return args_.in_layout == MOE_IN_TOKENS || args_.out_layout != MOE_OUT_ROWS ||
               (call_.setup.layer->weight_on_input && !args_.row_weights);
    }

    const Call& call_;
    const moe_experts_args& args_;
    int32_t n_seen_ = 0;  // offsets that largest_ is of
    int64_t largest_ = 0;
};

// moe_gather has the rows that moe_experts has of tokens with output by row.
moe_experts_args rows_of_tokens(const moe_gather_args& args) {
    moe_experts_args rows{};
    rows.in_layout = MOE_IN_TOKENS;
    rows.out_layout = MOE_OUT_ROWS;
    rows.n_tokens = args.n_tokens;
    rows.offsets = args.offsets;
    rows.counts = args.counts;
    rows.row_ids = args.row_ids;
    rows.n_rows = args.n_rows;
    return rows;
}

void gather_row(const Call& call, const moe_gather_args& args, int64_t row, int64_t slot) {
    const int32_t k = call.setup.layer->top_k;
    const int64_t bytes = activation_bytes(call.setup.x_type);
    const int64_t width = args.x_is_latent ? call.setup.layer->latent : call.setup.layer->hidden;
    std::memcpy(static_cast<std::byte*>(args.out) + row * args.out_row_stride * bytes,
                static_cast<const std::byte*>(args.x) + slot / k * args.x_row_stride * bytes,
                static_cast<size_t>(width * bytes));
    if (args.out_row_tokens) args.out_row_tokens[row] = static_cast<int32_t>(slot / k);
    if (args.out_row_weights)
        args.out_row_weights[row] = args.weights[slot / k * args.weights_row_stride + slot % k];
}

void gather_rows(const Call& call, const moe_gather_args& args, RowRange part) {
    const int64_t n = part.end - part.begin;
    if (args.out_row_tokens) std::fill_n(args.out_row_tokens + part.begin, n, -1);
    if (args.out_row_weights) std::fill_n(args.out_row_weights + part.begin, n, 0.0f);
    const moe_experts_args of_tokens = rows_of_tokens(args);
    CallerRows rows(call, of_tokens);
    for (int32_t e = 0; e < call.setup.slice->n_local; ++e) {
        const RowRange all = rows.range(e);
        const int64_t end = std::min(all.end, part.end);
        for (int64_t row = std::max(all.begin, part.begin); row < end; ++row)
            if (const int64_t slot = rows.slot(row); slot >= 0) gather_row(call, args, row, slot);
    }
}

float row_weight(const Call& call, const moe_experts_args& args, int64_t row, int64_t slot) {
    const int32_t k = call.setup.layer->top_k;
    if (!call.setup.layer->weight_on_input) return 1.0f;
    if (args.row_weights) return args.row_weights[row];
    if (args.weights && slot >= 0)
        return args.weights[slot / k * args.weights_row_stride + slot % k];
    return 1.0f;
}

int64_t input_width(const Call& call, const moe_experts_args& args) {
    return args.x_is_latent ? call.setup.layer->latent : call.setup.layer->hidden;
}

// Row `index` of the list reads the index-th loaded row, which is the caller's row `row`.
template <class Real>
void add_row(const Scratch<Real>& b, int64_t index, int64_t row, float weight) {
    b.row_input[index] = static_cast<int32_t>(index);
    b.row_target[index] = row;
    b.row_weight[index] = weight;
}

// Lists the caller's rows of tokens [first, first + n), sorted as they come, as rows of b; their
// slots count from the chunk's first.
template <class Real>
void list_rows_of_tokens(Pipeline<Real>& p, const Call& call, const moe_experts_args& args,
                         int64_t first, int64_t n) {
    const Scratch<Real>& b = p.scratch();
    CallerRows rows(call, args);
    const int32_t k = call.setup.layer->top_k;
    int64_t count = 0, n_double = 0;
    std::fill_n(b.ids, n * k, -1);
    for (int32_t e = 0; e < call.setup.slice->n_local; ++e) {
        b.offsets[e] = count;
        const RowRange range = rows.range(e);
        for (int64_t row = range.begin; row < range.end; ++row) {
            const int64_t slot = rows.slot(row);
            const int64_t local = slot - first * k;
            // A second row for one slot would not fit: it is left out like any other that breaks
            // the rules.
            if (slot < 0 || local < 0 || local >= n * k) continue;
            if (b.ids[local] >= 0) {
                ++n_double;
                continue;
            }
            b.ids[local] = call.setup.slice->global_of[e];
            b.row_slot[count] = static_cast<int32_t>(local);
            add_row(b, count++, row, row_weight(call, args, row, slot));
        }
    }
    b.offsets[call.setup.slice->n_local] = count;
    *b.n_rows = count;
    if (n_double) call.faults.add(MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_double);
    p.count_active();
}

// A position in the walk over all rows: expert and row.
struct Cursor {
    int32_t expert = 0;
    int64_t row = -1;  // -1: the expert's first
};

// Lists up to `capacity` rows from the cursor on; targets are the caller's rows. Returns where to
// go on.
template <class Real>
Cursor list_next_rows(const Scratch<Real>& b, const Call& call, const moe_experts_args& args,
                      Cursor cursor, int64_t capacity) {
    CallerRows rows(call, args);
    const int32_t n_local = call.setup.slice->n_local;
    int64_t count = 0;
    std::fill_n(b.offsets, cursor.expert + 1, int64_t{0});
    for (; cursor.expert < n_local; ++cursor.expert, cursor.row = -1) {
        const int32_t e = cursor.expert;
        b.offsets[e] = count;
        const RowRange range = rows.range(e);
        int64_t row = cursor.row < 0 ? range.begin : cursor.row;
        for (; row < range.end && count < capacity; ++row) {
            if (rows.is_padding(row)) continue;
            b.row_slot[count] = static_cast<int32_t>(count);
            add_row(b, count++, row, row_weight(call, args, row, rows.slot(row)));
        }
        if (row < range.end) {
            cursor.row = row;
            break;
        }
    }
    std::fill(b.offsets + std::min(cursor.expert + 1, n_local), b.offsets + n_local + 1, count);
    *b.n_rows = count;
    return cursor;
}

// Where the rows of this chunk come from: with token-major input the token of each row's slot.
template <class Real>
void load_inputs(Pipeline<Real>& p, const Call& call, const moe_experts_args& args) {
    const Scratch<Real>& b = p.scratch();
    const ActivationRows x{args.x, args.x_row_stride, call.setup.x_type};
    const int64_t width = input_width(call, args);
    const int32_t k = call.setup.layer->top_k;
    p.team().for_each(*b.n_rows, [&](int32_t, int64_t r) {
        const int64_t row = b.row_target[r];
        const int64_t from = args.in_layout == MOE_IN_TOKENS ? args.row_ids[row] / k : row;
        p.load_row(x.type, x.row(from), r, width);
    });
}

// Columns of a row that stops before the activation.
int64_t pre_activation_width(const Call& call) {
    const int64_t features = call.setup.slice->intermediate_count;
    return call.setup.layer->activation.gated ? 2 * features : features;
}

template <class Real>
void run_listed(Pipeline<Real>& p, const moe_experts_args& args) {
    if (args.stop_before_activation)
        p.run_pre_activation(args.x_is_latent);
    else
        p.run_experts(args.x_is_latent);
}

// ROWS: chunks of rows; row r of the list goes back to the caller's row it came from.
template <class Real>
void run_by_rows(Pipeline<Real>& p, const Call& call, const moe_experts_args& args) {
    const Scratch<Real>& b = p.scratch();
    const OutputRows out{args.out, args.out_row_stride, call.setup.out_type, false};
    const bool stop = args.stop_before_activation != 0;
    const int64_t width = stop ? pre_activation_width(call) : call.setup.layer->expert_width();
    const Real* from = stop ? b.h : b.y;
    // A chunk fills x, and the rows at most.
    const int64_t capacity = std::min(b.n_inputs_max, b.n_rows_max);
    for (Cursor cursor; cursor.expert < call.setup.slice->n_local;) {
        cursor = list_next_rows(b, call, args, cursor, capacity);
        p.count_active();
        load_inputs(p, call, args);
        if (call.setup.layer->latent && !args.x_is_latent) p.project_latent(*b.n_rows);
        run_listed(p, args);
        p.team().for_each(*b.n_rows, [&](int32_t, int64_t r) {
            store_activations(out.type, from + r * width, width, false, out.row(b.row_target[r]));
        });
    }
}

// Output by token: y, or h before the activation, of every slot of the chunk.
template <class Real>
void store_by_slot(Pipeline<Real>& p, const Call& call, const moe_experts_args& args, int64_t first,
                   int64_t n) {
    const Scratch<Real>& b = p.scratch();
    const OutputRows out{args.out, args.out_row_stride, call.setup.out_type, false};
    const bool stop = args.stop_before_activation != 0;
    const int64_t width = stop ? pre_activation_width(call) : call.setup.layer->expert_width();
    store_slots(p, call.setup.layer->top_k, width, out, first, n,
                [&](int64_t r) { return stop ? b.h + r * width : b.y + b.row_slot[r] * width; });
}

template <class Real>
void list_tokens(Pipeline<Real>& p, const Call& call, const moe_experts_args& args,
                 const Membership& membership, int64_t first, int64_t n) {
    p.load_x({args.x, args.x_row_stride, call.setup.x_type}, first, n, input_width(call, args));
    p.take_ids({args.ids, args.ids_type, args.ids_row_stride}, first, n);
    if (args.weights) p.take_weights(args.weights, MOE_TYPE_F32, args.weights_row_stride, first, n);
    p.list_token_rows(n, membership);
}

template <class Real>
void run_by_tokens(Pipeline<Real>& p, const Call& call, const moe_experts_args& args) {
    const Scratch<Real>& b = p.scratch();
    const bool from_tokens = args.in_layout == MOE_IN_TOKENS;
    // Sorted rows are all present in the slice: the map has been applied by whoever sorted them.
    const Membership membership = membership_of(call, from_tokens ? args.expert_map : nullptr);
    const OutputRows out{args.out, args.out_row_stride, call.setup.out_type, args.accumulate != 0};
    const int64_t tokens = true_tokens(call, args.n_tokens, args.n_tokens_device);
    const int64_t chunk = from_tokens
                              ? call.setup.chunk_tokens
                              : std::max<int64_t>(1, b.n_inputs_max / call.setup.layer->top_k);
    for_each_chunk(tokens, chunk, [&](int64_t first, int64_t n) {
        const auto prepare = [&](Pipeline<Real>& by) {
            if (from_tokens) return list_tokens(by, call, args, membership, first, n);
            list_rows_of_tokens(by, call, args, first, n);
            load_inputs(by, call, args);
            if (args.weights)
                by.take_weights(args.weights, MOE_TYPE_F32, args.weights_row_stride, first, n);
        };
        if (n <= few_tokens)
            p.alone(prepare);
        else
            prepare(p);
        if (call.setup.layer->latent && !args.x_is_latent)
            p.project_latent(from_tokens ? n : *b.n_rows);
        if (args.out_layout == MOE_OUT_PER_SLOT) {
            run_listed(p, args);
            return store_by_slot(p, call, args, first, n);
        }
        const bool identity =
            from_tokens && !call.setup.partial && call.setup.layer->n_identity_experts;
        p.run_and_reduce(args.x_is_latent, {first, n, membership, identity, false, &out});
    });
}

// The row of each of n slots from `first` on, -1: none. The first row of a slot counts, as in
// moe_experts.
void list_rows_of_slots(const Call& call, const moe_combine_args& args, int64_t first, int64_t n,
                        int32_t* row_of_slot) {
    int64_t n_double = 0;
    std::fill_n(row_of_slot, n, -1);
    for (int64_t row = 0; row < args.n_rows; ++row) {
        const int64_t slot = args.row_ids[row] - first;
        if (args.row_ids[row] < 0 || slot < 0 || slot >= n) continue;
        if (row_of_slot[slot] < 0)
            row_of_slot[slot] = static_cast<int32_t>(row);
        else
            ++n_double;
    }
    if (n_double) call.faults.add(MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_double);
}

// y of the chunk's slots from rows per slot, or from sorted rows with row ids. Sorted rows need not
// hold every slot: the ids of slots without a row are struck out.
template <class Real>
void load_slots(Pipeline<Real>& p, const Call& call, const moe_combine_args& args,
                const ActivationRows& rows, int64_t first, int64_t n) {
    const Scratch<Real>& b = p.scratch();
    const Layer& layer = *call.setup.layer;
    const int64_t width = layer.expert_width();
    const int32_t k = layer.top_k;
    if (args.rows_layout == MOE_IN_TOKENS) {
        p.team().for_each(n * k, [&](int32_t, int64_t slot) {
            const std::byte* row = rows.row(first + slot / k);
            load_activations(rows.type, row + slot % k * width * activation_bytes(rows.type), width,
                             b.y + slot * width);
        });
        return;
    }
    list_rows_of_slots(call, args, first * k, n * k, b.row_slot);
    p.team().for_each(n * k, [&](int32_t, int64_t slot) {
        if (b.row_slot[slot] < 0) {
            if (b.ids[slot] < layer.n_experts) b.ids[slot] = -1;
            return;
        }
        load_activations(rows.type, rows.row(b.row_slot[slot]), width, b.y + slot * width);
    });
}

// Row ids that are neither a slot of the call nor padding.
void report_bad_row_ids(const Call& call, const moe_combine_args& args) {
    const int64_t n_slots = args.n_tokens * call.setup.layer->top_k;
    const int64_t n_bad = std::count_if(args.row_ids, args.row_ids + args.n_rows,
                                        [&](int32_t slot) { return slot < -1 || slot >= n_slots; });
    if (n_bad) call.faults.add(MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_bad);
}

// Rows have no number of tokens: their chunk is as large as the workspace allows.
int64_t tokens_that_fit(const Call& call) {
    int64_t tokens = call.setup.chunk_tokens;
    while (tokens > 1 && scratch_bytes(call.setup, tokens) > call.scratch_size) tokens /= 2;
    return tokens;
}

}  // namespace

void gather(const Call& call, const moe_gather_args& args) {
    const moe_experts_args of_tokens = rows_of_tokens(args);
    CallerRows(call, of_tokens).report_faults();
    // Every part looks at all experts: a few parts of a thread are enough to share.
    const int64_t n_parts = std::min<int64_t>(args.n_rows, 4 * call.team.size());
    call.team.for_each(n_parts, [&](int32_t, int64_t i) {
        gather_rows(call, args, {args.n_rows * i / n_parts, args.n_rows * (i + 1) / n_parts});
    });
}

void experts(const Call& call, const moe_experts_args& args) {
    const bool by_rows = args.out_layout == MOE_OUT_ROWS;
    if (by_rows || args.in_layout != MOE_IN_TOKENS) CallerRows(call, args).report_faults();
    const int64_t size = by_rows ? tokens_that_fit(call) : args.n_tokens;
    with_any_pipeline(call, size, [&](auto& p) {
        if (by_rows)
            run_by_rows(p, call, args);
        else
            run_by_tokens(p, call, args);
    });
}

void combine(const Call& call, const moe_combine_args& args) {
    const Layer& layer = *call.setup.layer;
    const int64_t width = layer.expert_width();
    // Rows may come from other slices too.
    const Membership membership{nullptr, layer.n_experts, layer.n_experts};
    const ActivationRows rows{args.rows, args.rows_row_stride, call.setup.out_type};
    const OutputRows out{args.out, args.out_row_stride, call.setup.out_type, args.accumulate != 0};
    const int64_t tokens = true_tokens(call, args.n_tokens, args.n_tokens_device);
    const bool identity = layer.n_identity_experts > 0 && !call.setup.partial && args.x;
    if (args.rows_layout == MOE_IN_SORTED) report_bad_row_ids(call, args);
    with_any_pipeline(call, args.n_tokens, [&](auto& p) {
        const auto& b = p.scratch();
        for_each_chunk(tokens, call.setup.chunk_tokens, [&](int64_t first, int64_t n) {
            p.take_ids({args.ids, args.ids_type, args.ids_row_stride}, first, n);
            p.take_weights(args.weights, MOE_TYPE_F32, args.weights_row_stride, first, n);
            if (identity)
                p.load_x({args.x, args.x_row_stride, call.setup.x_type}, first, n, layer.hidden);
            load_slots(p, call, args, rows, first, n);
            p.combine(n, membership, identity);
            p.store(b.routed, width, out, first, n);
        });
    });
}

}  // namespace moe::cpu
