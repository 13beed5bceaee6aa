// Buffers and arguments of moe_route, moe_dispatch, moe_experts, moe_combine and moe_finish.
#include "stages.hpp"

namespace moe_gpu {
namespace {

template <class T>
void fill(MaybeRows& rows, const Side& side, moe_type type, int64_t columns,
          const std::vector<T>& values, Place place = {}) {
    if (values.empty()) return;
    rows.emplace(side.device, type, static_cast<int64_t>(values.size()) / columns, columns, place);
    rows->put(values);
}

const float* floats_of(const MaybeRows& rows) {
    return static_cast<const float*>(data_of(rows));
}

const int32_t* ints_of(const MaybeRows& rows) {
    return static_cast<const int32_t*>(data_of(rows));
}

const int64_t* longs_of(const MaybeRows& rows) {
    return static_cast<const int64_t*>(data_of(rows));
}

std::vector<int32_t> one(const std::optional<int32_t>& value) {
    return value ? std::vector<int32_t>{*value} : std::vector<int32_t>{};
}

int64_t live(int64_t n_tokens, const std::optional<int32_t>& on_device) {
    return on_device ? std::min<int64_t>(std::max(*on_device, 0), n_tokens) : n_tokens;
}

}  // namespace

Routed route(const Side& side, const Route& call) {
    const int64_t T = call.n_tokens, k = side.layer.top_k, H = side.layer.hidden;
    MaybeRows x, router, logits, ids, tokens, second, n_device;
    fill(x, side, side.x_type, H, call.x);
    fill(router, side, side.router_type, H, call.router_input);
    fill(logits, side, MOE_TYPE_F32, side.n_experts_all(), call.logits);
    fill(ids, side, MOE_TYPE_I32, k, call.ids);
    fill(tokens, side, MOE_TYPE_I32, 1, call.token_ids);
    fill(second, side, MOE_TYPE_I8, 1, call.uses_second_bias);
    fill(n_device, side, MOE_TYPE_I32, 1, one(call.n_tokens_device));
    Rows out_ids(side.device, MOE_TYPE_I32, T, k), out_weights(side.device, MOE_TYPE_F32, T, k);
    Rows out_logits(side.device, MOE_TYPE_F32, T, side.n_experts_all());
    auto args = sized<moe_route_args>();
    args.routing = call.routing;
    args.n_tokens = T;
    args.n_tokens_device = ints_of(n_device);
    args.x = data_of(x);
    args.router_input = data_of(router);
    args.logits = floats_of(logits);
    args.ids = data_of(ids);
    args.token_ids = data_of(tokens);
    args.uses_second_bias = static_cast<const int8_t*>(data_of(second));
    args.out_ids =
        call.routing == MOE_ROUTING_IDS ? nullptr : static_cast<int32_t*>(out_ids.data());
    args.out_weights = static_cast<float*>(out_weights.data());
    args.out_logits = call.wants_logits ? static_cast<float*>(out_logits.data()) : nullptr;
    args.stream = side.stream();
    side.poison_workspace();
    must(moe_route(side.plan.get(), side.weights.get(), side.workspace(), &args), "moe_route");
    side.synchronize();
    const int64_t n = live(T, call.n_tokens_device);
    out_ids.get(call.routing == MOE_ROUTING_IDS ? 0 : n, "out_ids");
    out_weights.get(n, "out_weights");
    out_logits.get(call.wants_logits ? n : 0, "out_logits");
    return {out_ids.integers<int32_t>(), out_weights.floats(), out_logits.floats()};
}

Dispatched dispatch(const Side& side, const Dispatch& call) {
    const int64_t block = std::max(call.block_rows, 1), n_local = call.n_local;
    const int64_t capacity = call.n_tokens * side.layer.top_k + n_local * (block - 1);
    MaybeRows ids, map, n_device;
    fill(ids, side, call.ids_type, side.layer.top_k, call.ids);
    fill(map, side, MOE_TYPE_I32, 1, call.expert_map);
    fill(n_device, side, MOE_TYPE_I32, 1, one(call.n_tokens_device));
    Rows offsets(side.device, MOE_TYPE_I64, n_local + 1, 1);
    Rows counts(side.device, MOE_TYPE_I64, n_local, 1);
    Rows row_ids(side.device, MOE_TYPE_I32, capacity, 1);
    auto args = sized<moe_dispatch_args>();
    args.block_rows = call.block_rows;
    args.n_tokens = call.n_tokens;
    args.n_tokens_device = ints_of(n_device);
    args.ids = data_of(ids);
    args.ids_type = call.ids_type;
    args.expert_map = ints_of(map);
    args.n_expert_map = static_cast<int32_t>(call.expert_map.size());
    args.out_offsets = static_cast<int64_t*>(offsets.data());
    args.out_counts = static_cast<int64_t*>(counts.data());
    args.out_row_ids = call.wants_row_ids ? static_cast<int32_t*>(row_ids.data()) : nullptr;
    args.row_capacity = capacity;
    args.stream = side.stream();
    side.poison_workspace();
    must(moe_dispatch(side.plan.get(), side.workspace(), &args), "moe_dispatch");
    side.synchronize();
    offsets.get(n_local + 1, "out_offsets");
    counts.get(n_local, "out_counts");
    Dispatched result{offsets.integers<int64_t>(), counts.integers<int64_t>(), {}};
    const int64_t n_rows = result.offsets.back();
    if (n_rows < 0 || n_rows > capacity)
        throw Failure(text("dispatch gives %ld rows, there is room for %ld",
                           static_cast<long>(n_rows), static_cast<long>(capacity)));
    if (!call.wants_row_ids) return result;
    row_ids.get(n_rows, "out_row_ids");
    result.row_ids = row_ids.integers<int32_t>();
    result.row_ids.resize(static_cast<size_t>(n_rows));
    return result;
}

Gathered gather(const Side& side, const Gather& call) {
    const int64_t k = side.layer.top_k, H = side.layer.hidden;
    const auto n_rows = static_cast<int64_t>(call.row_ids.size());
    MaybeRows x, offsets, counts, row_ids, weights;
    fill(x, side, side.x_type, H, call.x);
    fill(offsets, side, MOE_TYPE_I64, 1, call.offsets);
    fill(counts, side, MOE_TYPE_I64, 1, call.counts);
    fill(row_ids, side, MOE_TYPE_I32, 1, call.row_ids);
    fill(weights, side, MOE_TYPE_F32, k, call.weights);
    Rows out(side.device, side.x_type, n_rows, H), tokens(side.device, MOE_TYPE_I32, n_rows, 1);
    Rows row_weights(side.device, MOE_TYPE_F32, n_rows, 1);
    auto args = sized<moe_gather_args>();
    args.n_tokens = call.n_tokens;
    args.x = data_of(x);
    args.offsets = longs_of(offsets);
    args.counts = longs_of(counts);
    args.row_ids = ints_of(row_ids);
    args.n_rows = n_rows;
    args.out = out.data();
    args.weights = floats_of(weights);
    args.out_row_tokens = static_cast<int32_t*>(tokens.data());
    args.out_row_weights = static_cast<float*>(row_weights.data());
    args.stream = side.stream();
    side.poison_workspace();
    must(moe_gather(side.plan.get(), side.workspace(), &args), "moe_gather");
    side.synchronize();
    out.get(n_rows, "out");
    tokens.get(n_rows, "out_row_tokens");
    row_weights.get(n_rows, "out_row_weights");
    return {out.floats(), tokens.integers<int32_t>(), row_weights.floats()};
}

Floats experts(const Side& side, const Experts& call) {
    const int64_t k = side.layer.top_k;
    MaybeRows x, x_scales, ids, weights, row_weights, offsets, counts, row_ids;
    if (side.x_type == MOE_TYPE_F8_E4M3) {
        fill(x, side, side.x_type, call.x_columns, codes_of(call.x, call.x_scales, call.x_columns),
             call.x_place);
        fill(x_scales, side, MOE_TYPE_F32, (call.x_columns + 127) / 128, call.x_scales,
             call.x_scales_place);
    } else {
        fill(x, side, side.x_type, call.x_columns, call.x, call.x_place);
    }
    fill(ids, side, MOE_TYPE_I32, k, call.ids);
    fill(weights, side, MOE_TYPE_F32, k, call.weights);
    fill(row_weights, side, MOE_TYPE_F32, 1, call.row_weights);
    fill(offsets, side, MOE_TYPE_I64, 1, call.offsets);
    fill(counts, side, MOE_TYPE_I64, 1, call.counts);
    fill(row_ids, side, MOE_TYPE_I32, 1, call.row_ids);
    Rows out(side.device, side.out_type, call.out_rows, call.out_columns);
    if (!call.base.empty()) out.put(call.base);
    auto args = sized<moe_experts_args>();
    args.in_layout = call.in;
    args.out_layout = call.out;
    args.stop_before_activation = call.stops_before_activation;
    args.n_tokens = call.n_tokens;
    args.x = data_of(x);
    args.x_row_stride = call.x_place.stride;
    args.x_scales = data_of(x_scales);
    args.x_scale_row_stride = call.x_scales_place.stride;
    args.x_is_latent = call.x_is_latent;
    args.ids = data_of(ids);
    args.weights = floats_of(weights);
    args.row_weights = floats_of(row_weights);
    args.offsets = longs_of(offsets);
    args.counts = longs_of(counts);
    args.row_ids = ints_of(row_ids);
    args.n_rows = call.n_rows;
    args.batch_capacity = call.batch_capacity;
    args.out = out.data();
    args.accumulate = !call.base.empty();
    args.stream = side.stream();
    side.poison_workspace(call.poison);
    must(moe_experts(side.plan.get(), side.weights.get(), side.workspace(), &args), "moe_experts");
    side.synchronize();
    out.get(call.out_rows, "out");
    return out.floats();
}

Floats combine(const Side& side, const Combine& call) {
    const int64_t k = side.layer.top_k, L = side.width();
    const bool sorted = call.layout == MOE_IN_SORTED;
    MaybeRows rows, row_ids, ids, weights, x;
    fill(rows, side, side.out_type, sorted ? L : k * L, call.rows);
    fill(row_ids, side, MOE_TYPE_I32, 1, call.row_ids);
    fill(ids, side, MOE_TYPE_I32, k, call.ids);
    fill(weights, side, MOE_TYPE_F32, k, call.weights);
    fill(x, side, side.x_type, side.layer.hidden, call.x);
    Rows out(side.device, side.out_type, call.n_tokens, L);
    if (!call.base.empty()) out.put(call.base);
    auto args = sized<moe_combine_args>();
    args.rows_layout = call.layout;
    args.n_tokens = call.n_tokens;
    args.rows = data_of(rows);
    args.row_ids = ints_of(row_ids);
    args.n_rows = static_cast<int64_t>(call.row_ids.size());
    args.ids = data_of(ids);
    args.weights = floats_of(weights);
    args.x = data_of(x);
    args.accumulate = !call.base.empty();
    args.out = out.data();
    args.stream = side.stream();
    side.poison_workspace();
    must(moe_combine(side.plan.get(), side.workspace(), &args), "moe_combine");
    side.synchronize();
    out.get(call.n_tokens, "out");
    return out.floats();
}

Floats finish(const Side& side, const Finish& call) {
    const int64_t k = side.layer.top_k, H = side.layer.hidden;
    MaybeRows routed, x, ids, weights;
    fill(routed, side, side.out_type, side.width(), call.routed);
    fill(x, side, side.x_type, H, call.x);
    fill(ids, side, MOE_TYPE_I32, k, call.ids);
    fill(weights, side, MOE_TYPE_F32, k, call.weights);
    Rows out(side.device, side.out_type, call.n_tokens, H);
    if (!call.base.empty()) out.put(call.base);
    auto args = sized<moe_finish_args>();
    args.parts = call.parts;
    args.n_tokens = call.n_tokens;
    args.routed = data_of(routed);
    args.x = data_of(x);
    args.ids = data_of(ids);
    args.weights = floats_of(weights);
    args.accumulate = !call.base.empty();
    args.out = out.data();
    args.stream = side.stream();
    side.poison_workspace();
    must(moe_finish(side.plan.get(), side.weights.get(), side.workspace(), &args), "moe_finish");
    side.synchronize();
    out.get(call.n_tokens, "out");
    return out.floats();
}

}  // namespace moe_gpu
