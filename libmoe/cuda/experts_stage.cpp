// moe_experts and moe_combine in every layout. Rows that the caller sorted are listed as they lie,
// and where their results go back to them, the last kernel stores them there. Rows of which that
// cannot be done become slots with an expert each (both in dispatch/caller_rows), which are sorted
// again. Output by token goes chunk of tokens by chunk, output by row chunk of rows by chunk.
#include <algorithm>

#include "libmoe/cuda/chunks.hpp"
#include "libmoe/device/device.hpp"

namespace moe::cuda {
namespace {

int64_t pre_activation_width(const Setup& setup) {
    const int64_t features = setup.slice->intermediate_count;
    return setup.layer->activation.gated ? 2 * features : features;
}

CallerRows caller_rows(const Setup& setup, const moe_experts_args& args) {
    const bool uses_tokens = args.in_layout == MOE_IN_TOKENS || args.out_layout != MOE_OUT_ROWS ||
                             (setup.layer->weight_on_input && !args.row_weights);
    const bool batched = args.in_layout == MOE_IN_BATCHED;
    CallerRows rows{};
    rows.offsets = batched ? nullptr : args.offsets;
    rows.counts = args.counts;
    rows.batch_capacity = args.batch_capacity;
    rows.row_ids = args.row_ids;
    rows.n_rows = batched ? setup.slice->n_local * args.batch_capacity : args.n_rows;
    rows.n_slots = uses_tokens && args.n_tokens > 0 ? args.n_tokens * setup.layer->top_k : 0;
    rows.n_local = setup.slice->n_local;
    return rows;
}

SlotsOut slots_out(const Scratch& b, const Call& call, const moe_experts_args& args) {
    const int32_t k = call.setup.layer->top_k;
    SlotsOut out{};
    out.ids = b.ids;
    out.source = b.source;
    out.token_divisor = args.in_layout == MOE_IN_TOKENS ? k : 0;
    out.weights = call.setup.layer->weight_on_input ? b.weights : nullptr;
    out.row_weights = args.row_weights;
    out.given_weights = args.weights;
    out.given_stride = args.weights_row_stride;
    out.top_k = k;
    return out;
}

// Experts, input rows and input weights of the slots of a window.
void take_caller_rows(LayerPass& p, const Call& call, const moe_experts_args& args,
                      const SlotWindow& window) {
    const Scratch& b = p.scratch();
    const SlotsOut out = slots_out(b, call, args);
    run_rows_to_slots(caller_rows(call.setup, args), window, b.keys, out, window.first == 0,
                      call.faults, p.stream());
    p.sort_local(window.n);
}

// Results of the chunk's slots, as float32 or y, to rows or slots of the caller.
struct SlotResults {
    const void* data;
    moe_type type;
    int64_t width;
};

SlotResults run_listed(LayerPass& p, const Call& call, const moe_experts_args& args,
                       const LayerPass::ExpertInput& input) {
    if (!args.stop_before_activation) {
        p.run_experts(input);
        return {p.scratch().wide, p.y_type(), call.setup.layer->expert_width()};
    }
    auto* out = reinterpret_cast<float*>(p.scratch().wide);
    const int64_t width = pre_activation_width(call.setup);
    p.run_pre_activation(input, dense_rows(out, MOE_TYPE_F32, width));
    return {out, MOE_TYPE_F32, width};
}

// Does gemv take the n rows of a call? It makes no rows that stop before the activation.
bool takes_rows(const Call& call, const moe_experts_args& args, int64_t n) {
    return n > 0 && !args.stop_before_activation && !args.n_tokens_device &&
           takes_gemv_rows(call.setup, n);
}

// Columns of x.
int32_t x_columns(const Call& call, const moe_experts_args& args) {
    const Layer& layer = *call.setup.layer;
    return static_cast<int32_t>(args.x_is_latent ? layer.latent : layer.hidden);
}

// All of the caller's rows; the pass reads those that it lists.
LayerPass::ExpertInput caller_input(LayerPass& p, const Call& call, const moe_experts_args& args) {
    if (call.setup.x_is_fp8) p.take_codes(fp8_rows(args, x_columns(call, args), 0));
    return {dense_rows(args.x, call.setup.x_type, args.x_row_stride), args.x_is_latent != 0, true};
}

// x of n rows for gemv, by their sources; of E4M3 x the values, by row.
DeviceRows rows_of_sources(const Call& call, const Scratch& b, const moe_experts_args& args,
                           int32_t n) {
    const Setup& setup = call.setup;
    DeviceRows x = dense_rows(args.x, setup.x_type, args.x_row_stride);
    x.index = b.source;
    if (!setup.x_is_fp8) return x;
    const Fp8Rows codes = fp8_rows(args, x_columns(call, args), 0);
    run_dequantize_rows(setup.device, codes, {n, nullptr, 0}, {b.x_values, b.source, nullptr},
                        static_cast<cudaStream_t>(call.stream));
    return dense_rows(b.x_values, setup.x_type, codes.n_columns);
}

RowsKept rows_kept(const Setup& setup, const moe_experts_args& args) {
    const bool stops = args.stop_before_activation != 0;
    const bool by_row = args.in_layout != MOE_IN_TOKENS || args.out_layout == MOE_OUT_ROWS;
    const Family family = stops ? setup.pre_activation : setup.experts;
    return {stops, by_row && setup.x_is_fp8 && !takes_codes(setup, family)};
}

// TOKENS by ids.
void experts_chunk_of_tokens(LayerPass& p, const Call& call, const moe_experts_args& args,
                             int64_t first) {
    const Setup& setup = call.setup;
    const Layer& layer = *setup.layer;
    const DeviceRows x = rows_of_tokens(p, setup, args, x_columns(call, args), first);
    const CombineOutput out =
        output_from({args.out, setup.out_type, args.out_row_stride, args.accumulate != 0}, first);
    GivenRouting given = given_ids(call, args, first);
    given.weights = offset(args.weights, first * args.weights_row_stride);
    given.weights_type = MOE_TYPE_F32;
    given.weights_stride = args.weights_row_stride;
    const bool identity = !setup.partial && layer.n_identity_experts > 0;
    const LayerPass::Sum sum{true, {}, x, 0, identity};
    const bool is_gemv =
        args.out_layout == MOE_OUT_REDUCED && !args.x_is_latent &&
        takes_gemv(setup.launch->experts_gemv, x, p.tokens().n, args.n_tokens_device);
    // A sum of normalised rows, too, is made of the rows of slots.
    const bool has_slots = args.out_layout == MOE_OUT_PER_SLOT || layer.has_expert_norm;
    const bool is_gemv_slots = has_slots && takes_rows(call, args, p.tokens().n * layer.top_k);
    p.make_values(is_gemv || is_gemv_slots || identity);
    if (is_gemv) {
        p.take_routing(given, {});
        return p.run_gemv_sum(x, args.expert_map, sum, out);
    }
    if (is_gemv_slots) {
        p.take_routing(given, {});
        const auto experts = RowExperts::global(setup, p.scratch().ids, args.expert_map);
        return p.run_gemv_slots(rows_of_slots(x, layer.top_k), experts, args.out_layout, sum, out);
    }
    const LayerPass::ExpertInput input{x, args.x_is_latent != 0, false};
    if (!args.stop_before_activation) p.take_input(input);
    p.take_and_sort(given, {}, args.expert_map);
    const SlotResults results = run_listed(p, call, args, input);
    if (args.out_layout == MOE_OUT_REDUCED) return p.store_sum(sum, out);
    run_store_slots(setup.device, results.data, results.type, results.width,
                    p.scratch().rows.slot_to_row, layer.top_k, static_cast<int32_t>(results.width),
                    p.tokens(), out.data, out.type, out.stride, p.stream());
}

// The caller's weights beside the ids that the chunk's rows gave.
void take_weights_of_slots(LayerPass& p, const Call& call, const moe_experts_args& args,
                           int64_t first) {
    GivenRouting given{};
    given.ids = p.scratch().ids;
    given.ids_type = MOE_TYPE_I32;
    given.ids_stride = call.setup.layer->top_k;
    given.weights = offset(args.weights, first * args.weights_row_stride);
    given.weights_type = MOE_TYPE_F32;
    given.weights_stride = args.weights_row_stride;
    given.top_k = call.setup.layer->top_k;
    given.n_experts_all = call.setup.layer->n_experts_all();
    p.take_routing(given, {});
}

// Can the rows be listed as they lie? Then the call is one chunk, and has no more rows than slots.
// Rows that are projected to the latent width first are read by slot; a weight by row could be one
// of two rows of a slot.
bool lists_slots(const LayerPass& p, const Call& call, const moe_experts_args& args) {
    const Layer& layer = *call.setup.layer;
    return p.tokens().n == args.n_tokens && args.n_rows <= args.n_tokens * layer.top_k &&
           (!layer.latent || args.x_is_latent) && !(layer.weight_on_input && args.row_weights);
}

// SORTED rows, output by token.
void experts_chunk_of_slots(LayerPass& p, const Call& call, const moe_experts_args& args,
                            int64_t first) {
    const Setup& setup = call.setup;
    const int32_t k = setup.layer->top_k;
    const CombineOutput out =
        output_from({args.out, setup.out_type, args.out_row_stride, args.accumulate != 0}, first);
    const bool is_weighted = args.out_layout == MOE_OUT_REDUCED && !setup.layer->weight_on_input;
    if (takes_rows(call, args, p.tokens().n * k)) {
        const Scratch& b = p.scratch();
        run_rows_to_slots(caller_rows(setup, args), {false, first * k, p.tokens().n * k}, b.keys,
                          slots_out(b, call, args), first == 0, call.faults, p.stream());
        if (is_weighted) take_weights_of_slots(p, call, args, first);
        const DeviceRows x = rows_of_sources(call, b, args, p.tokens().n * k);
        const RowExperts experts = RowExperts::local(setup, b.ids);
        const LayerPass::Sum sum{true, {}, {}, 0, false};
        return p.run_gemv_slots(x, experts, args.out_layout, sum, out);
    }
    const bool is_listed = lists_slots(p, call, args);
    if (is_listed)
        p.list_slots(caller_rows(setup, args), slots_out(p.scratch(), call, args), is_weighted);
    else
        take_caller_rows(p, call, args, {false, first * k, p.tokens().n * k});
    const SlotResults results = run_listed(p, call, args, caller_input(p, call, args));
    if (args.out_layout == MOE_OUT_PER_SLOT)
        return run_store_slots(setup.device, results.data, results.type, results.width,
                               p.scratch().rows.slot_to_row, k, static_cast<int32_t>(results.width),
                               p.tokens(), out.data, out.type, out.stride, p.stream());
    if (is_weighted && !is_listed) take_weights_of_slots(p, call, args, first);
    p.store_sum({true, {}, {}, 0, false}, out);
}

// Rows have no number of tokens: their chunk is as large as the workspace allows.
int64_t tokens_that_fit(const Call& call) {
    int64_t tokens = call.setup.chunk_tokens;
    while (tokens > 1 && scratch_bytes(call.setup, tokens) > call.scratch_size) tokens /= 2;
    return tokens;
}

// The rows of a window as they lie, to rows of the caller; false: not these rows. Rows that are
// projected to the latent width first are read by slot; those of a norm stay in the scratch, and
// those whose features are to be put in order before the activation.
bool run_rows_in_place(LayerPass& p, const Call& call, const moe_experts_args& args,
                       const SlotWindow& window, const CombineOutput& out) {
    DeviceRows to = dense_rows(out.data, out.type, out.stride);
    to.index = p.scratch().source;
    const Layer& layer = *call.setup.layer;
    if ((layer.latent && !args.x_is_latent) || !p.stores_to(to)) return false;
    if (args.stop_before_activation ? call.setup.has_folded_order : layer.has_expert_norm)
        return false;
    p.list_rows(caller_rows(call.setup, args), window, slots_out(p.scratch(), call, args));
    const LayerPass::ExpertInput input = caller_input(p, call, args);
    if (args.stop_before_activation)
        p.run_pre_activation(input, to);
    else
        p.run_experts(input, &to);
    return true;
}

// All rows of a call by gemv, as tokens of one slot. Rows of x that lie in order are read in place.
void run_few_rows(const Call& call, const moe_experts_args& args, const Scratch& b, int32_t n) {
    const Setup& setup = call.setup;
    const auto stream = static_cast<cudaStream_t>(call.stream);
    run_rows_to_slots(caller_rows(setup, args), {true, 0, n}, b.keys, slots_out(b, call, args),
                      true, call.faults, stream);
    const bool in_place = args.in_layout != MOE_IN_TOKENS && !setup.x_is_fp8;
    const DeviceRows x = in_place ? dense_rows(args.x, setup.x_type, args.x_row_stride)
                                  : rows_of_sources(call, b, args, n);
    run_gemv_rows(
        call, b,
        {x, n, RowExperts::local(setup, b.ids), setup.layer->weight_on_input ? b.weights : nullptr,
         dense_rows(args.out, setup.out_type, args.out_row_stride), true});
}

// ROWS: slot s of a window is the caller's row first + s.
void experts_by_rows(const Call& call, const moe_experts_args& args) {
    const Setup& setup = call.setup;
    const int32_t k = setup.layer->top_k;
    const int64_t n_rows = caller_rows(setup, args).n_rows;
    const Scratch scratch(setup, tokens_that_fit(call), call.scratch);
    const int64_t capacity = chunk_for(setup, scratch, rows_kept(setup, args)) * k;
    // Its last kernel stores rows of the caller, where no norm can follow.
    if (takes_rows(call, args, n_rows) && n_rows <= capacity && !setup.layer->has_expert_norm)
        return run_few_rows(call, args, scratch, static_cast<int32_t>(n_rows));
    for (int64_t first = 0; first < n_rows; first += capacity) {
        const auto n = static_cast<int32_t>(std::min(capacity, n_rows - first));
        LayerPass p(call, scratch, {(n + k - 1) / k, nullptr, 0});
        if (args.stop_before_activation) p.take_pre_activation_family();
        const CombineOutput all{args.out, setup.out_type, args.out_row_stride, false};
        if (run_rows_in_place(p, call, args, {true, first, n}, all)) continue;
        const CombineOutput out = output_from(all, first);
        take_caller_rows(p, call, args, {true, first, n});
        const SlotResults results = run_listed(p, call, args, caller_input(p, call, args));
        run_store_rows(setup.device, results.data, results.type, results.width,
                       scratch.rows.slot_to_row, n, static_cast<int32_t>(results.width), out.data,
                       out.type, out.stride, p.stream());
    }
}

// Rows per slot, or sorted rows by their row ids.
CombineInput combine_input(LayerPass& p, const Call& call, const moe_combine_args& args,
                           int64_t first) {
    const Layer& layer = *call.setup.layer;
    const Scratch& b = p.scratch();
    const int32_t width = layer.expert_width();
    CombineInput input{};
    input.y = args.rows;
    input.y_type = call.setup.out_type;
    input.weighted = !layer.weight_on_input;
    input.ids = b.ids;
    input.weights = b.weights;
    input.top_k = layer.top_k;
    input.n_experts = layer.n_experts;
    input.n_experts_all = layer.n_experts_all();
    input.scale = 1.0f;
    input.width = width;
    if (args.rows_layout == MOE_IN_TOKENS) {
        input.y = offset_activations(args.rows, input.y_type, first * args.rows_row_stride);
        input.y_stride = width;
        input.y_token_stride = args.rows_row_stride;
        return input;
    }
    input.y_stride = args.rows_row_stride;
    input.slot_to_row = b.source;
    CallerRows rows{};
    rows.batch_capacity = args.n_rows;
    rows.row_ids = args.row_ids;
    rows.n_rows = args.n_rows;
    rows.n_slots = args.n_tokens * layer.top_k;
    rows.n_local = 1;
    SlotsOut out{};
    out.source = b.source;
    run_rows_to_slots(rows, {false, first * layer.top_k, p.tokens().n * layer.top_k}, b.keys, out,
                      first == 0, call.faults, p.stream());
    return input;
}

}  // namespace

void experts(const Call& call, const moe_experts_args& args) {
    if (args.out_layout == MOE_OUT_ROWS) return experts_by_rows(call, args);
    check_tokens(call, args, static_cast<cudaStream_t>(call.stream));
    for_each_chunk(
        call, args.n_tokens, args.n_tokens_device,
        [&](LayerPass& p, int64_t first) {
            if (args.stop_before_activation) p.take_pre_activation_family();
            if (args.in_layout == MOE_IN_TOKENS)
                experts_chunk_of_tokens(p, call, args, first);
            else
                experts_chunk_of_slots(p, call, args, first);
        },
        rows_kept(call.setup, args));
}

// Rows of tokens with output by row, without the experts: window by window, each row's token is
// looked up and its row of x copied.
void gather(const Call& call, const moe_gather_args& args) {
    const Setup& setup = call.setup;
    const Layer& layer = *setup.layer;
    const auto stream = static_cast<cudaStream_t>(call.stream);
    const Scratch scratch(setup, args.n_tokens, call.scratch);
    CallerRows rows{};
    rows.offsets = args.offsets;
    rows.counts = args.counts;
    rows.row_ids = args.row_ids;
    rows.n_rows = args.n_rows;
    rows.n_slots = args.n_tokens * layer.top_k;
    rows.n_local = setup.slice->n_local;
    SlotsOut out{};
    out.source = scratch.source;
    out.token_divisor = layer.top_k;
    out.given_weights = args.weights;
    out.given_stride = args.weights_row_stride;
    out.top_k = layer.top_k;
    const int64_t width = args.x_is_latent ? layer.latent : layer.hidden;
    const int64_t capacity = scratch.chunk_tokens * layer.top_k;
    for (int64_t first = 0; first < args.n_rows; first += capacity) {
        const auto n = static_cast<int32_t>(std::min(capacity, args.n_rows - first));
        out.weights = offset(args.out_row_weights, first);
        run_rows_to_slots(rows, {true, first, n}, scratch.keys, out, first == 0, call.faults,
                          stream);
        if (args.out_row_tokens)
            device::copy(args.out_row_tokens + first, scratch.source,
                         static_cast<uint64_t>(n) * sizeof(int32_t), call.stream);
        const CombineOutput to =
            output_from({args.out, setup.x_type, args.out_row_stride, false}, first);
        run_store_rows(setup.device, args.x, setup.x_type, args.x_row_stride, scratch.source, n,
                       static_cast<int32_t>(width), to.data, to.type, to.stride, stream);
    }
}

void combine(const Call& call, const moe_combine_args& args) {
    const Setup& setup = call.setup;
    const Layer& layer = *setup.layer;
    check_tokens(call, args, static_cast<cudaStream_t>(call.stream));
    for_each_chunk(call, args.n_tokens, args.n_tokens_device, [&](LayerPass& p, int64_t first) {
        GivenRouting given = given_ids(call, args, first);
        given.weights = offset(args.weights, first * args.weights_row_stride);
        given.weights_type = MOE_TYPE_F32;
        given.weights_stride = args.weights_row_stride;
        p.take_routing(given, {});
        CombineInput input = combine_input(p, call, args, first);
        if (layer.n_identity_experts > 0 && !setup.partial && args.x) {
            const DeviceRows x =
                rows_from(dense_rows(args.x, setup.x_type, args.x_row_stride), first);
            input.x = x.data;
            input.x_type = x.type;
            input.x_stride = x.stride;
        }
        const CombineOutput out = output_from(
            {args.out, setup.out_type, args.out_row_stride, args.accumulate != 0}, first);
        run_combine(setup.device, input, p.tokens(), out, p.stream());
    });
}

}  // namespace moe::cuda
