// moe_forward, moe_route, moe_dispatch, moe_combine and moe_finish. moe_experts, whose layouts are
// many, is in experts_stage.cpp.
#include <algorithm>

#include "libmoe/cuda/chunks.hpp"
#include "libmoe/device/device.hpp"

namespace moe::cuda {
namespace {

// moe_forward_args and moe_route_args name alike what the router takes and gives.
template <class Args>
RouteArguments route_arguments(const Setup& setup, const Args& args, int64_t first) {
    const DeviceRows x = dense_rows(args.x, setup.x_type, args.x_row_stride);
    const DeviceRows given =
        dense_rows(args.router_input, setup.router_input_type, args.router_input_row_stride);
    RouteArguments route{};
    route.routing = args.routing;
    route.router_input = rows_from(args.router_input ? given : x, first);
    route.logits = offset(args.logits, first * args.logits_row_stride);
    route.logits_stride = args.logits_row_stride;
    route.ids = offset_ids(args.ids, args.ids_type, first * args.ids_row_stride);
    route.ids_type = args.ids_type;
    route.ids_stride = args.ids_row_stride;
    route.token_ids = offset_ids(args.token_ids, args.token_ids_type, first);
    route.token_ids_type = args.token_ids_type;
    route.uses_second_bias = offset(args.uses_second_bias, first);
    route.out_ids = offset(args.out_ids, first * args.out_ids_row_stride);
    route.out_ids_stride = args.out_ids_row_stride;
    route.out_weights = offset(args.out_weights, first * args.out_weights_row_stride);
    route.out_weights_stride = args.out_weights_row_stride;
    route.out_logits = offset(args.out_logits, first * args.out_logits_row_stride);
    route.out_logits_stride = args.out_logits_row_stride;
    return route;
}

// ids and weights of the chunk, and with `sorts` the sort of its slots.
void route_and_sort(LayerPass& p, const Call& call, const moe_forward_args& args, int64_t first,
                    bool sorts) {
    const RouteArguments route = route_arguments(call.setup, args, first);
    if (args.routing != MOE_ROUTING_IDS_AND_WEIGHTS) {
        p.route(route);
        if (sorts) p.sort(args.expert_map);
        return;
    }
    GivenRouting given = given_ids(call, args, first);
    given.weights =
        offset_activations(args.weights, args.weights_type, first * args.weights_row_stride);
    given.weights_type = args.weights_type;
    given.weights_stride = args.weights_row_stride;
    if (sorts)
        p.take_and_sort(given, route, args.expert_map);
    else
        p.take_routing(given, route);
}

void forward_chunk(LayerPass& p, const Call& call, const moe_forward_args& args, int64_t first) {
    const Setup& setup = call.setup;
    const Layer& layer = *setup.layer;
    const DeviceRows x = rows_of_tokens(p, setup, args, layer.hidden, first);
    const CombineOutput out =
        output_from({args.out, setup.out_type, args.out_row_stride, args.accumulate != 0}, first);
    const bool is_gemv =
        args.out_layout == MOE_OUT_REDUCED &&
        takes_gemv(setup.launch->experts_gemv, x, p.tokens().n, args.n_tokens_device);
    // A sum of normalised rows, too, is made of the rows of slots.
    const bool has_slots = args.out_layout == MOE_OUT_PER_SLOT || layer.has_expert_norm;
    const bool is_gemv_slots =
        has_slots && !args.n_tokens_device && takes_gemv_rows(setup, p.tokens().n * layer.top_k);
    if (setup.shared_joins && !is_gemv && args.out_layout == MOE_OUT_REDUCED) p.join_shared();
    const bool sorts = !is_gemv && !is_gemv_slots;
    const bool identity = !setup.partial && layer.n_identity_experts > 0;
    p.make_values(!sorts || identity || layer.shared_intermediate > 0);
    if (sorts) p.take_input({x, false, false});
    route_and_sort(p, call, args, first, sorts);
    if (args.out_expert_counts)
        run_count_experts(p.scratch().ids, layer.top_k, layer.n_experts_all(), p.tokens(),
                          args.out_expert_counts, p.stream());
    const LayerPass::Sum sum{true, {}, x, setup.partial ? 0 : every_finish_part, identity};
    if (is_gemv_slots) {
        const auto experts = RowExperts::global(setup, p.scratch().ids, args.expert_map);
        return p.run_gemv_slots(rows_of_slots(x, layer.top_k), experts, args.out_layout, sum, out);
    }
    if (is_gemv) return p.run_gemv_sum(x, args.expert_map, sum, out);
    p.run_experts({x, false, false});
    if (args.out_layout == MOE_OUT_PER_SLOT)
        return run_store_slots(setup.device, p.scratch().wide, p.y_type(), layer.expert_width(),
                               p.scratch().rows.slot_to_row, layer.top_k, layer.expert_width(),
                               p.tokens(), out.data, out.type, out.stride, p.stream());
    p.store_sum(sum, out);
}

// The whole forward straight from the caller's ids and weights, where nothing stands between them
// and the kernels; false: not this call.
bool forward_gemv(const Call& call, const moe_forward_args& args) {
    const Setup& setup = call.setup;
    if (setup.x_is_fp8) return false;  // its values come first
    const bool plain = args.routing == MOE_ROUTING_IDS_AND_WEIGHTS &&
                       args.ids_type == MOE_TYPE_I32 && args.weights_type == MOE_TYPE_F32 &&
                       !args.out_ids && !args.out_weights && !args.out_expert_counts &&
                       args.out_layout == MOE_OUT_REDUCED;
    const DeviceRows x = dense_rows(args.x, setup.x_type, args.x_row_stride);
    const FinishTerms terms{setup.partial ? 0 : every_finish_part,
                            !setup.partial && setup.layer->n_identity_experts > 0};
    if (!plain || !takes_gemv(setup.launch->experts_gemv, x, args.n_tokens, args.n_tokens_device) ||
        args.n_tokens > setup.chunk_tokens || args.n_tokens < 1 || !adds_all(setup, terms))
        return false;
    const Scratch scratch(setup, args.n_tokens, call.scratch);
    GemvArgs gemv = expert_gemv_args(call, scratch, x, args.n_tokens);
    add_finish_terms(call, terms, gemv);
    gemv.ids = static_cast<const int32_t*>(args.ids);
    gemv.ids_stride = args.ids_row_stride;
    gemv.local_of = args.expert_map ? args.expert_map : setup.local_of;
    gemv.weights = static_cast<const float*>(args.weights);
    gemv.weights_stride = args.weights_row_stride;
    gemv.out = args.out;
    gemv.out_type = setup.out_type;
    gemv.out_stride = args.out_row_stride;
    gemv.accumulate = args.accumulate != 0;
    run_gemv(launch_of(expert_launches(setup, gemv), gemv), gemv,
             static_cast<cudaStream_t>(call.stream));
    return true;
}

}  // namespace

void forward(const Call& call, const moe_forward_args& args) {
    const auto stream = static_cast<cudaStream_t>(call.stream);
    if (args.out_expert_counts)
        device::fill_zero(
            args.out_expert_counts,
            static_cast<uint64_t>(call.setup.layer->n_experts_all()) * sizeof(int64_t),
            call.stream);
    if (forward_gemv(call, args)) return;
    check_tokens(call, args, stream);
    for_each_chunk(call, args.n_tokens, args.n_tokens_device,
                   [&](LayerPass& p, int64_t first) { forward_chunk(p, call, args, first); });
}

void route(const Call& call, const moe_route_args& args) {
    check_tokens(call, args, static_cast<cudaStream_t>(call.stream));
    for_each_chunk(call, args.n_tokens, args.n_tokens_device, [&](LayerPass& p, int64_t first) {
        p.route(route_arguments(call.setup, args, first));
    });
}

void dispatch_rows(const Call& call, const moe_dispatch_args& args) {
    const auto stream = static_cast<cudaStream_t>(call.stream);
    const Layer& layer = *call.setup.layer;
    check_tokens(call, args, stream);
    // The whole call at once: its scratch is ids and counts, which fit every workspace.
    const DispatchScratch scratch(call.setup, args.n_tokens, call.scratch);
    const TokenCount tokens{static_cast<int32_t>(args.n_tokens), args.n_tokens_device, 0};
    SelectOutput ids{};
    ids.ids = scratch.ids;
    ids.weights = scratch.weights;
    const GivenRouting given = given_ids(call, args, 0);
    SortAlong along{};
    along.given = &given;
    along.published = ids;
    const SortInput input{scratch.ids,
                          args.expert_map ? args.expert_map : call.setup.local_of,
                          layer.n_experts,
                          layer.top_k,
                          call.setup.slice->n_local,
                          scratch.sort,
                          false};
    const DispatchOutput output{args.out_offsets, args.out_counts, args.out_row_ids,
                                args.out_row_ids ? args.row_capacity : 0, args.block_rows};
    run_dispatch(call.setup.launch->range(args.n_tokens).dispatch_sort, input, tokens, output,
                 along, call.faults, stream);
}

void finish(const Call& call, const moe_finish_args& args) {
    const Setup& setup = call.setup;
    check_tokens(call, args, static_cast<cudaStream_t>(call.stream));
    for_each_chunk(call, args.n_tokens, args.n_tokens_device, [&](LayerPass& p, int64_t first) {
        if (args.ids) {
            GivenRouting given = given_ids(call, args, first);
            given.weights = offset(args.weights, first * args.weights_row_stride);
            given.weights_type = MOE_TYPE_F32;
            given.weights_stride = args.weights_row_stride;
            p.take_routing(given, {});
        }
        const DeviceRows routed = dense_rows(args.routed, setup.out_type, args.routed_row_stride);
        const DeviceRows x = dense_rows(args.x, setup.x_type, args.x_row_stride);
        const bool identity = setup.partial && setup.layer->n_identity_experts > 0 &&
                              (args.parts & MOE_FINISH_IDENTITY);
        p.store_sum(
            {false, rows_from(routed, first), rows_from(x, first), args.parts, identity},
            output_from({args.out, setup.out_type, args.out_row_stride, args.accumulate != 0},
                        first));
    });
}

}  // namespace moe::cuda
