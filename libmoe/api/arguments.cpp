// A table of fields per struct, and the rules that are those of one call alone.
#include "libmoe/api/arguments.hpp"

#include <algorithm>

#include "libmoe/api/argument_tables.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/layer/finish_parts.hpp"

namespace moe {

void check_stages(const moe_plan& plan, uint32_t needed) {
    for (const moe_stage stage : all_stages)
        require(!(needed & stage) || (plan.layout.stages & stage),
                "the plan was made without stage {} (moe_plan_desc.stages is {:#x})",
                stage_name(stage), plan.layout.stages);
}

namespace {

// Uses of the fields that forward and route share.

template <class Args>
bool routes_from_x(const Args& args) {
    return args.routing == MOE_ROUTING_COMPUTE || (args.routing == MOE_ROUTING_IDS && !args.logits);
}

template <class Args>
Use logits_use(const moe_plan&, const Args& args) {
    if (args.routing == MOE_ROUTING_IDS) return Use::optional;
    if (args.routing != MOE_ROUTING_LOGITS) return Use::none;
    return required_if(args.n_tokens > 0, Use::optional);
}

template <class Args>
Use given_ids_use(const moe_plan& plan, const Args& args) {
    return args.routing >= MOE_ROUTING_IDS ? with_tokens(plan, args) : Use::none;
}

template <class Args>
Use token_ids_use(const moe_plan& plan, const Args& args) {
    const bool hashed = plan.layout.layer.routing.selection == MOE_SELECT_HASH;
    return hashed && args.routing < MOE_ROUTING_IDS ? with_tokens(plan, args) : Use::none;
}

template <class Args>
Use second_bias_use(const moe_plan& plan, const Args& args) {
    const bool has_two = plan.layout.layer.routing.has_second_selection_bias;
    return has_two && args.routing < MOE_ROUTING_IDS ? Use::optional : Use::none;
}

template <class Args>
Use router_input_use(const moe_plan&, const Args& args) {
    return routes_from_x(args) ? Use::optional : Use::none;
}

template <class Args>
Use out_logits_use(const moe_plan&, const Args& args) {
    return args.routing == MOE_ROUTING_IDS_AND_WEIGHTS ? Use::none : Use::optional;
}

template <class Args>
constexpr Field<Args> routing_fields[] = {
    {MOE_ARRAY(n_tokens_device, i32), optional},
    {MOE_ROWS(logits, f32), logits_use, logit_rows},
    {MOE_TYPED_ROWS(ids, index), given_ids_use, slot_rows},
    {MOE_TYPED_ARRAY(token_ids, index), token_ids_use},
    {MOE_ARRAY(uses_second_bias, i8), second_bias_use},
    {MOE_ROWS(router_input, plan_router_input), router_input_use, hidden_rows},
    {MOE_ROWS(out_ids, i32), optional, slot_rows},
    {MOE_ROWS(out_weights, f32), optional, slot_rows},
    {MOE_ROWS(out_logits, f32), out_logits_use, logit_rows},
};

template <class Args>
void check_router_input(const moe_plan& plan, const Args& args) {
    if (!routes_from_x(args)) return;
    require(plan.layout.layer.routing.has_router,
            "routing is {}, but the layer has no router: give logits, or ids and weights",
            static_cast<int32_t>(args.routing));
    require(args.router_input || plan.router_input_type == plan.x_type,
            "router_input is NULL, the plan's router_input_type is {} and x is {}",
            type_name(plan.router_input_type), type_name(plan.x_type));
}

template <class Args>
void check_routing(const moe_plan& plan, Args& args, bool allow_weights) {
    const auto routing = static_cast<int32_t>(args.routing);
    require(routing >= 0 && routing <= (allow_weights ? 3 : 2), "routing is {}{}", routing,
            allow_weights ? ", not a moe_routing" : ", must be COMPUTE, LOGITS or IDS");
    const bool computed = args.routing == MOE_ROUTING_COMPUTE;
    require(!computed || !args.logits, "logits are given, but routing is COMPUTE");
    require(!computed || !args.ids, "ids are given, but routing is COMPUTE");
    check_router_input(plan, args);
    check_fields(plan, args, routing_fields<Args>);
}

Use forward_weights_use(const moe_plan& plan, const moe_forward_args& args) {
    return args.routing == MOE_ROUTING_IDS_AND_WEIGHTS ? with_tokens(plan, args) : Use::none;
}

RowExtent forward_out(const moe_plan& plan, const moe_forward_args& args) {
    const Layer& layer = plan.layout.layer;
    const int64_t width = plan.partial ? layer.expert_width() : layer.hidden;
    return {args.n_tokens, token_width(plan, args.out_layout, width)};
}

Use x_scales_use(const moe_plan& plan, const moe_forward_args& args) {
    return scales_use(plan, with_tokens(plan, args));
}

RowExtent x_scale_rows(const moe_plan& plan, const moe_forward_args& args) {
    return scale_rows(hidden_rows(plan, args));
}

void check_forward_rules(const moe_plan& plan, const moe_forward_args& args) {
    check_scales(plan, args);
    require(args.out_layout == MOE_OUT_REDUCED || args.out_layout == MOE_OUT_PER_SLOT,
            "out_layout is {}, must be REDUCED or PER_SLOT", static_cast<int32_t>(args.out_layout));
    check_flag(args.accumulate, "accumulate");
    require(args.out_layout == MOE_OUT_REDUCED || (plan.partial && !args.accumulate),
            "out_layout is PER_SLOT: needs a partial plan, and accumulate 0");
}

uint32_t forward_stages(const moe_plan& plan, const moe_forward_args& args) {
    return MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE |
           (plan.partial ? 0 : MOE_STAGE_FINISH) |
           (args.routing == MOE_ROUTING_IDS_AND_WEIGHTS ? 0 : MOE_STAGE_ROUTE);
}

Use route_x_use(const moe_plan&, const moe_route_args& args) {
    if (!routes_from_x(args) || args.router_input) return Use::none;
    return required_if(args.n_tokens > 0, Use::optional);
}

Use route_ids_use(const moe_plan&, const moe_route_args& args) {
    return required_if(args.n_tokens > 0 && args.routing != MOE_ROUTING_IDS, Use::optional);
}

}  // namespace

moe_forward_args forward_arguments(const moe_plan& plan, const moe_forward_args* given) {
    using Args = moe_forward_args;
    static constexpr Field<Args> fields[] = {
        {MOE_ROWS(x, plan_x), with_tokens, hidden_rows},
        {MOE_X_SCALES, x_scales_use, x_scale_rows},
        {MOE_TYPED_ROWS(weights, weight), forward_weights_use, slot_rows},
        {MOE_ARRAY(expert_map, i32), optional},
        {MOE_ROWS(out, plan_out), with_tokens, forward_out},
        {MOE_ARRAY(out_expert_counts, i64), optional},
    };
    Args args = read_struct(given, "moe_forward_args");
    check_threads(args);
    check_tokens(plan, args);
    check_routing(plan, args, true);
    check_stages(plan, forward_stages(plan, args));
    check_forward_rules(plan, args);
    check_fields(plan, args, fields);
    check_x_apart(plan, args, fields);
    check_expert_map(plan, args);
    return args;
}

moe_route_args route_arguments(const moe_plan& plan, const moe_route_args* given) {
    using Args = moe_route_args;
    static constexpr Field<Args> fields[] = {
        {MOE_ROWS(x, plan_x), route_x_use, hidden_rows},
        {MOE_ARRAY(out_ids, i32), route_ids_use},
        {MOE_ARRAY(out_weights, f32), with_tokens},
    };
    Args args = read_struct(given, "moe_route_args");
    check_threads(args);
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_ROUTE);
    check_routing(plan, args, false);
    check_fields(plan, args, fields);
    return args;
}

moe_dispatch_args dispatch_arguments(const moe_plan& plan, const moe_dispatch_args* given) {
    using Args = moe_dispatch_args;
    static constexpr Field<Args> fields[] = {
        {MOE_ARRAY(n_tokens_device, i32), optional},
        {MOE_TYPED_ROWS(ids, index), with_tokens, slot_rows},
        {MOE_ARRAY(expert_map, i32), optional},
        {MOE_ARRAY(out_offsets, i64), [](const moe_plan&, const Args&) { return Use::required; }},
        {MOE_ARRAY(out_counts, i64), optional},
        {MOE_ARRAY(out_row_ids, i32), optional},
    };
    Args args = read_struct(given, "moe_dispatch_args");
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_DISPATCH);
    require(args.block_rows >= 0, "block_rows is {}", args.block_rows);
    args.block_rows = std::max(args.block_rows, 1);
    check_fields(plan, args, fields);
    check_expert_map(plan, args);
    const int64_t rows = args.n_tokens * plan.layout.layer.top_k +
                         plan.layout.slice.n_local * (int64_t{args.block_rows} - 1);
    require(!args.out_row_ids || args.row_capacity >= rows,
            "row_capacity is {}, {} tokens in blocks of {} may need {}", args.row_capacity,
            args.n_tokens, args.block_rows, rows);
    return args;
}

namespace {

bool is_sorted(const moe_combine_args& args) {
    return args.rows_layout == MOE_IN_SORTED;
}

Use combine_row_ids_use(const moe_plan&, const moe_combine_args& args) {
    if (!is_sorted(args)) return Use::none;
    return required_if(args.n_rows > 0, Use::optional);
}

Use combine_rows_use(const moe_plan&, const moe_combine_args& args) {
    return required_if((is_sorted(args) ? args.n_rows : args.n_tokens) > 0);
}

// Identity experts need x; partial plans leave them to finish.
Use combine_x_use(const moe_plan& plan, const moe_combine_args& args) {
    const bool used = plan.layout.layer.n_identity_experts > 0 && !plan.partial;
    return used ? required_if(args.n_tokens > 0, Use::optional) : Use::apart;
}

RowExtent combine_rows(const moe_plan& plan, const moe_combine_args& args) {
    const Layer& layer = plan.layout.layer;
    const int64_t width = layer.expert_width();
    if (is_sorted(args)) return {args.n_rows, width};
    return {args.n_tokens, layer.top_k * width};
}

}  // namespace

moe_combine_args combine_arguments(const moe_plan& plan, const moe_combine_args* given) {
    using Args = moe_combine_args;
    static constexpr Field<Args> fields[] = {
        {MOE_ARRAY(n_tokens_device, i32), optional},
        {MOE_ARRAY(row_ids, i32), combine_row_ids_use},
        {MOE_ROWS(rows, plan_out), combine_rows_use, combine_rows},
        {MOE_TYPED_ROWS(ids, index), with_tokens, slot_rows},
        {MOE_ROWS(weights, f32), with_tokens, slot_rows},
        {MOE_ROWS(x, plan_x), combine_x_use, hidden_rows},
        {MOE_ROWS(out, plan_out), with_tokens, expert_rows},
    };
    Args args = read_struct(given, "moe_combine_args");
    check_threads(args);
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_COMBINE);
    require(args.rows_layout == MOE_IN_TOKENS || args.rows_layout == MOE_IN_SORTED,
            "rows_layout is {}, must be TOKENS or SORTED", static_cast<int32_t>(args.rows_layout));
    check_flag(args.accumulate, "accumulate");
    if (!is_sorted(args)) args.n_rows = 0;
    require(args.n_rows >= 0 && args.n_rows <= INT32_MAX, "n_rows is {}", args.n_rows);
    if (combine_x_use(plan, args) != Use::apart) refuse_fp8_x(plan);
    check_fields(plan, args, fields);
    check_x_apart(plan, args, fields);
    return args;
}

namespace {

bool adds_identity(const moe_plan& plan, const moe_finish_args& args) {
    return plan.partial && plan.layout.layer.n_identity_experts > 0 &&
           (args.parts & MOE_FINISH_IDENTITY);
}

bool adds_down_bias(const moe_plan& plan, const moe_finish_args& args) {
    return plan.layout.down_bias_in_finish() && (args.parts & MOE_FINISH_DOWN_BIAS);
}

bool adds_shared(const moe_plan& plan, const moe_finish_args& args) {
    return plan.layout.layer.shared_intermediate > 0 && (args.parts & MOE_FINISH_SHARED);
}

Use finish_x_use(const moe_plan& plan, const moe_finish_args& args) {
    const bool used = adds_shared(plan, args) || adds_identity(plan, args);
    return used ? required_if(args.n_tokens > 0, Use::optional) : Use::apart;
}

Use finish_slots_use(const moe_plan& plan, const moe_finish_args& args) {
    const bool used = adds_down_bias(plan, args) || adds_identity(plan, args);
    return used ? with_tokens(plan, args) : Use::none;
}

void check_parts(const moe_plan& plan, moe_finish_args& args) {
    const Layer& layer = plan.layout.layer;
    require((args.parts & ~every_finish_part) == 0, "parts is {:#x}, has bits beyond MOE_FINISH_",
            args.parts);
    check_flag(args.accumulate, "accumulate");
    if (args.parts == MOE_FINISH_ALL) args.parts = every_finish_part;
    const bool bias = adds_down_bias(plan, args);
    require(!layer.latent || !(args.routed || bias) || (args.parts & MOE_FINISH_LATENT),
            "{} [T, {}] of a latent: parts must have MOE_FINISH_LATENT",
            args.routed ? "routed is" : "DOWN_BIAS gives", layer.latent);
    // Nothing to project. With a down bias there is: the biases alone.
    if (layer.latent && !args.routed && !bias) args.parts &= ~uint32_t{MOE_FINISH_LATENT};
    require(!layer.latent || !args.routed || args.out != args.routed,
            "out is routed, which a layer with a latent does not allow");
}

}  // namespace

moe_finish_args finish_arguments(const moe_plan& plan, const moe_finish_args* given) {
    using Args = moe_finish_args;
    static constexpr Field<Args> fields[] = {
        {MOE_ARRAY(n_tokens_device, i32), optional},
        {MOE_ROWS(routed, plan_out), optional, expert_rows},
        {MOE_ROWS(x, plan_x), finish_x_use, hidden_rows},
        {MOE_TYPED_ROWS(ids, index), finish_slots_use, slot_rows},
        {MOE_ROWS(weights, f32), finish_slots_use, slot_rows},
        {MOE_ROWS(out, plan_out), with_tokens, hidden_rows},
    };
    Args args = read_struct(given, "moe_finish_args");
    check_threads(args);
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_FINISH);
    check_parts(plan, args);
    if (finish_x_use(plan, args) != Use::apart) refuse_fp8_x(plan);
    check_fields(plan, args, fields);
    check_x_apart(plan, args, fields);
    return args;
}

}  // namespace moe
