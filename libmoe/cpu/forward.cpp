// moe_forward, moe_route, moe_dispatch, moe_combine and moe_finish. moe_experts, whose layouts are
// many, is in experts.cpp.
#include "libmoe/cpu/forward.hpp"

#include "libmoe/cpu/chunks.hpp"
#include "libmoe/cpu/round.hpp"
#include "libmoe/layer/finish_parts.hpp"

namespace moe::cpu {
namespace {

template <class T>
void copy_rows(Team& team, const T* from, int64_t width, T* to, int64_t stride, int64_t first,
               int64_t n) {
    if (!to) return;
    team.for_each(n, [&](int32_t, int64_t t) {
        std::copy_n(from + t * width, width, to + (first + t) * stride);
    });
}

// moe_forward_args and moe_route_args name alike what the router takes.
template <class Args>
RouteInput route_input(const Call& call, const Args& args) {
    const ActivationRows x{args.x, args.x_row_stride, call.setup.x_type};
    const ActivationRows given{args.router_input, args.router_input_row_stride,
                               call.setup.router_input_type};
    return {args.routing,
            args.router_input ? given : x,
            args.logits,
            args.logits_row_stride,
            {args.ids, args.ids_type, args.ids_row_stride},
            args.token_ids,
            args.token_ids_type,
            args.uses_second_bias,
            args.out_logits,
            args.out_logits_row_stride};
}

// And what it gives.
template <class Real, class Args>
void publish_routing(Pipeline<Real>& p, int32_t k, const Args& args, int64_t first, int64_t n) {
    const Scratch<Real>& b = p.scratch();
    copy_rows(p.team(), b.ids, k, args.out_ids, args.out_ids_row_stride, first, n);
    copy_rows(p.team(), b.weights, k, args.out_weights, args.out_weights_row_stride, first, n);
}

template <class Real>
void route_or_take(Pipeline<Real>& p, const Call& call, const moe_forward_args& args, int64_t first,
                   int64_t n) {
    const int32_t k = call.setup.layer->top_k;
    const Scratch<Real>& b = p.scratch();
    if (args.routing == MOE_ROUTING_IDS_AND_WEIGHTS) {
        p.take_ids({args.ids, args.ids_type, args.ids_row_stride}, first, n);
        p.take_weights(args.weights, args.weights_type, args.weights_row_stride, first, n);
    } else {
        p.route(route_input(call, args), first, n);
    }
    publish_routing(p, k, args, first, n);
    if (args.out_expert_counts)
        p.team().once([&] {
            for (int64_t slot = 0; slot < n * k; ++slot)
                if (b.ids[slot] >= 0) ++args.out_expert_counts[b.ids[slot]];
        });
}

template <class Real>
void forward_chunk(Pipeline<Real>& p, const Call& call, const moe_forward_args& args, int64_t first,
                   int64_t n) {
    const Layer& layer = *call.setup.layer;
    const Membership membership = membership_of(call, args.expert_map);
    const OutputRows out{args.out, args.out_row_stride, call.setup.out_type, args.accumulate != 0};
    const auto prepare = [&](Pipeline<Real>& by) {
        by.load_x({args.x, args.x_row_stride, call.setup.x_type}, first, n, layer.hidden);
        route_or_take(by, call, args, first, n);
        by.list_token_rows(n, membership);
    };
    // A router is work to share.
    if (n <= few_tokens && args.routing == MOE_ROUTING_IDS_AND_WEIGHTS)
        p.alone(prepare);
    else
        prepare(p);
    if (layer.latent) p.project_latent(n);
    if (args.out_layout == MOE_OUT_PER_SLOT) {
        p.run_experts(false);
        const auto& b = p.scratch();
        const int64_t width = layer.expert_width();
        return store_slots(p, layer.top_k, width, out, first, n,
                           [&](int64_t r) { return b.y + b.row_slot[r] * width; });
    }
    // Without a rest the rows go out with the sums.
    const bool has_rest = !call.setup.partial && !p.has_finish_by_columns();
    p.run_and_reduce(false,
                     {first, n, membership, !call.setup.partial && layer.n_identity_experts > 0,
                      p.has_finish_by_columns(), has_rest ? nullptr : &out});
    if (!has_rest) return;
    p.finish(n, every_finish_part);
    p.store(p.scratch().final, layer.hidden, out, first, n);
}

}  // namespace

void forward(const Call& call, const moe_forward_args& args) {
    const int64_t tokens = true_tokens(call, args.n_tokens, args.n_tokens_device);
    if (args.out_expert_counts)
        call.team.once([&] {
            std::fill_n(args.out_expert_counts, call.setup.layer->n_experts_all(), int64_t{0});
        });
    with_any_pipeline(call, args.n_tokens, [&](auto& p) {
        for_each_chunk(tokens, call.setup.chunk_tokens,
                       [&](int64_t first, int64_t n) { forward_chunk(p, call, args, first, n); });
    });
}

void route(const Call& call, const moe_route_args& args) {
    const int64_t tokens = true_tokens(call, args.n_tokens, args.n_tokens_device);
    with_any_pipeline(call, args.n_tokens, [&](auto& p) {
        for_each_chunk(tokens, call.setup.chunk_tokens, [&](int64_t first, int64_t n) {
            p.route(route_input(call, args), first, n);
            publish_routing(p, call.setup.layer->top_k, args, first, n);
        });
    });
}

void dispatch_rows(const Call& call, const moe_dispatch_args& args) {
    const Layer& layer = *call.setup.layer;
    const int64_t tokens = true_tokens(call, args.n_tokens, args.n_tokens_device);
    const int64_t n_bad =
        dispatch({args.ids, args.ids_type, args.ids_row_stride}, tokens, layer.top_k,
                 layer.n_experts_all(), membership_of(call, args.expert_map), args.block_rows,
                 {args.out_offsets, args.out_counts, args.out_row_ids});
    if (n_bad) call.faults.add(MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
}

void finish(const Call& call, const moe_finish_args& args) {
    const Layer& layer = *call.setup.layer;
    const int64_t width = layer.expert_width();
    const ActivationRows routed{args.routed, args.routed_row_stride, call.setup.out_type};
    const OutputRows out{args.out, args.out_row_stride, call.setup.out_type, args.accumulate != 0};
    const int64_t tokens = true_tokens(call, args.n_tokens, args.n_tokens_device);
    with_any_pipeline(call, args.n_tokens, [&](auto& p) {
        const auto& b = p.scratch();
        for_each_chunk(tokens, call.setup.chunk_tokens, [&](int64_t first, int64_t n) {
            if (args.x)
                p.load_x({args.x, args.x_row_stride, call.setup.x_type}, first, n, layer.hidden);
            if (args.ids) {
                p.take_ids({args.ids, args.ids_type, args.ids_row_stride}, first, n);
                p.take_weights(args.weights, MOE_TYPE_F32, args.weights_row_stride, first, n);
            }
            p.team().for_each(n, [&](int32_t, int64_t t) {
                auto* row = b.routed + t * width;
                if (args.routed)
                    load_activations(routed.type, routed.row(first + t), width, row);
                else
                    std::fill_n(row, width, 0);
            });
            p.finish(n, args.parts);
            p.store(b.final, layer.hidden, out, first, n);
        });
    });
}

}  // namespace moe::cpu
