// Arguments of moe_experts, whose layouts are many.
#include "libmoe/api/arguments.hpp"

#include "libmoe/api/argument_tables.hpp"
#include "libmoe/api/structs.hpp"

namespace moe {

bool has_work(const moe_experts_args& args) {
    const bool by_rows = args.out_layout == MOE_OUT_ROWS;
    if (args.in_layout == MOE_IN_BATCHED) return args.batch_capacity > 0;
    if (args.in_layout == MOE_IN_SORTED) return args.n_rows > 0 || (!by_rows && args.n_tokens > 0);
    return args.n_tokens > 0 || (by_rows && args.n_rows > 0);
}

bool has_work(const moe_gather_args& args) {
    return args.n_tokens > 0 && args.n_rows > 0;
}

namespace {

void check_layouts(const moe_plan& plan, const moe_experts_args& args) {
    const Layer& layer = plan.layout.layer;
    const auto in = static_cast<int32_t>(args.in_layout),
               out = static_cast<int32_t>(args.out_layout);
    require(in >= MOE_IN_TOKENS && in <= MOE_IN_BATCHED, "in_layout is {}, not a moe_in_layout",
            in);
    require(out >= MOE_OUT_REDUCED && out <= MOE_OUT_ROWS, "out_layout is {}, not a moe_out_layout",
            out);
    require(in != MOE_IN_BATCHED || out == MOE_OUT_ROWS,
            "in_layout is BATCHED: out_layout must be ROWS");
    check_flag(args.stop_before_activation, "stop_before_activation");
    check_flag(args.x_is_latent, "x_is_latent");
    check_flag(args.accumulate, "accumulate");
    require(!args.stop_before_activation || out != MOE_OUT_REDUCED,
            "stop_before_activation: out_layout must be ROWS or PER_SLOT");
    require(!args.accumulate || out == MOE_OUT_REDUCED, "accumulate: out_layout must be REDUCED");
    require(!args.x_is_latent || layer.latent, "x_is_latent is 1, but the layer has no latent");
    require(
        in != MOE_IN_SORTED || out != MOE_OUT_REDUCED || plan.partial || !layer.n_identity_experts,
        "SORTED to REDUCED: identity experts need x by token; use moe_combine, or a partial plan");
}

// Are weights of slots those of the rows? Rows may have their own, and need a slot otherwise.
bool weighs_by_slot(const moe_plan& plan, const moe_experts_args& args) {
    if (args.out_layout == MOE_OUT_REDUCED) return true;
    return plan.layout.layer.weight_on_input && !args.row_weights &&
           (args.in_layout == MOE_IN_TOKENS || args.row_ids);
}

bool is_batched(const moe_experts_args& args) {
    return args.in_layout == MOE_IN_BATCHED;
}

bool gives_rows(const moe_experts_args& args) {
    return args.out_layout == MOE_OUT_ROWS;
}

// Neither side is rows.
bool is_by_token(const moe_experts_args& args) {
    return args.in_layout == MOE_IN_TOKENS && !gives_rows(args);
}

int64_t batch_rows(const moe_plan& plan, const moe_experts_args& args) {
    return plan.layout.slice.n_local * args.batch_capacity;
}

// Numbers that the layouts have no use for have no effect.
void drop_unused_numbers(const moe_plan& plan, moe_experts_args& args) {
    const bool has_row_arrays = args.row_ids || args.row_weights;
    if (is_batched(args) ? !has_row_arrays : is_by_token(args)) args.n_rows = 0;
    if (!is_batched(args)) args.batch_capacity = 0;
    if (gives_rows(args) && args.in_layout != MOE_IN_TOKENS && !weighs_by_slot(plan, args))
        args.n_tokens = 0;
}

void check_row_numbers(const moe_plan& plan, const moe_experts_args& args) {
    require(args.n_rows >= 0 && args.n_rows <= INT32_MAX, "n_rows is {}", args.n_rows);
    require(args.batch_capacity >= 0 && args.batch_capacity <= INT32_MAX, "batch_capacity is {}",
            args.batch_capacity);
    const bool has_row_arrays = args.row_ids || args.row_weights;
    require(!is_batched(args) || !has_row_arrays || args.n_rows == batch_rows(plan, args),
            "n_rows is {}, row_ids or row_weights of BATCHED rows are {} (local experts times "
            "batch_capacity)",
            args.n_rows, batch_rows(plan, args));
}

Use experts_x_use(const moe_plan&, const moe_experts_args& args) {
    return required_if(has_work(args));
}

Use tokens_device_use(const moe_plan&, const moe_experts_args& args) {
    return gives_rows(args) ? Use::none : Use::optional;
}

Use experts_ids_use(const moe_plan& plan, const moe_experts_args& args) {
    return is_by_token(args) ? with_tokens(plan, args) : Use::none;
}

Use offsets_use(const moe_plan&, const moe_experts_args& args) {
    if (is_batched(args) || is_by_token(args)) return Use::none;
    return required_if(has_work(args), Use::optional);
}

Use counts_use(const moe_plan&, const moe_experts_args& args) {
    if (is_by_token(args)) return Use::none;
    return required_if(is_batched(args) && has_work(args), Use::optional);
}

Use row_ids_use(const moe_plan&, const moe_experts_args& args) {
    if (is_by_token(args)) return Use::none;
    const bool needed = args.in_layout == MOE_IN_TOKENS || !gives_rows(args);
    return required_if(needed && args.n_rows > 0, Use::optional);
}

Use row_weights_use(const moe_plan& plan, const moe_experts_args& args) {
    const bool weighted = plan.layout.layer.weight_on_input && !is_by_token(args);
    return weighted ? Use::optional : Use::none;
}

Use experts_weights_use(const moe_plan& plan, const moe_experts_args& args) {
    if (!weighs_by_slot(plan, args)) return Use::none;
    return args.out_layout == MOE_OUT_REDUCED ? with_tokens(plan, args) : Use::empty;
}

Use experts_map_use(const moe_plan&, const moe_experts_args& args) {
    return is_by_token(args) ? Use::optional : Use::none;
}

int64_t rows_of(const moe_plan& plan, const moe_experts_args& args) {
    return is_batched(args) ? batch_rows(plan, args) : args.n_rows;
}

RowExtent experts_in(const moe_plan& plan, const moe_experts_args& args) {
    const Layer& layer = plan.layout.layer;
    const bool from_tokens = args.in_layout == MOE_IN_TOKENS;
    return {from_tokens ? args.n_tokens : rows_of(plan, args),
            args.x_is_latent ? layer.latent : layer.hidden};
}

Use experts_scales_use(const moe_plan& plan, const moe_experts_args& args) {
    return scales_use(plan, experts_x_use(plan, args));
}

RowExtent experts_scales(const moe_plan& plan, const moe_experts_args& args) {
    return scale_rows(experts_in(plan, args));
}

RowExtent experts_out(const moe_plan& plan, const moe_experts_args& args) {
    const Layer& layer = plan.layout.layer;
    const int64_t features = plan.layout.slice.intermediate_count;
    const int64_t width = !args.stop_before_activation ? layer.expert_width()
                          : layer.activation.gated     ? 2 * features
                                                       : features;
    return {gives_rows(args) ? rows_of(plan, args) : args.n_tokens,
            token_width(plan, args.out_layout, width)};
}

void check_input_weights(const moe_plan& plan, const moe_experts_args& args) {
    if (!plan.layout.layer.weight_on_input || args.row_weights || !has_work(args)) return;
    require(args.weights && (args.in_layout == MOE_IN_TOKENS || args.row_ids),
            "the layer has its weights on the input: give row_weights, or weights and row_ids");
}

}  // namespace

moe_experts_args experts_arguments(const moe_plan& plan, const moe_experts_args* given) {
    using Args = moe_experts_args;
    static constexpr Field<Args> row_fields[] = {
        {MOE_ARRAY(n_tokens_device, i32), tokens_device_use},
        {MOE_ARRAY(offsets, i64), offsets_use},
        {MOE_ARRAY(counts, i64), counts_use},
        {MOE_ARRAY(row_ids, i32), row_ids_use},
        {MOE_TYPED_ROWS(ids, index), experts_ids_use, slot_rows},
        {MOE_ARRAY(row_weights, f32), row_weights_use},
        {MOE_ROWS(weights, f32), experts_weights_use, slot_rows},
        {MOE_ARRAY(expert_map, i32), experts_map_use},
    };
    static constexpr Field<Args> fields[] = {
        {MOE_ROWS(x, plan_x), experts_x_use, experts_in},
        {MOE_X_SCALES, experts_scales_use, experts_scales},
        {MOE_ROWS(out, plan_out), experts_x_use, experts_out},
    };
    Args args = read_struct(given, "moe_experts_args");
    check_scales(plan, args);
    check_threads(args);
    check_stages(plan, MOE_STAGE_EXPERTS);
    check_layouts(plan, args);
    drop_unused_numbers(plan, args);
    check_tokens(plan, args);
    check_row_numbers(plan, args);
    check_fields(plan, args, row_fields);
    check_input_weights(plan, args);
    check_expert_map(plan, args);
    check_fields(plan, args, fields);
    check_x_apart(plan, args, fields);
    return args;
}

namespace {

Use gather_use(const moe_plan&, const moe_gather_args& args) {
    return required_if(has_work(args));
}

Use gather_weights_use(const moe_plan&, const moe_gather_args& args) {
    return args.out_row_weights ? required_if(has_work(args)) : Use::none;
}

int64_t gather_width(const moe_plan& plan, const moe_gather_args& args) {
    return args.x_is_latent ? plan.layout.layer.latent : plan.layout.layer.hidden;
}

RowExtent gather_in(const moe_plan& plan, const moe_gather_args& args) {
    return {args.n_tokens, gather_width(plan, args)};
}

RowExtent gather_out(const moe_plan& plan, const moe_gather_args& args) {
    return {args.n_rows, gather_width(plan, args)};
}

}  // namespace

moe_gather_args gather_arguments(const moe_plan& plan, const moe_gather_args* given) {
    using Args = moe_gather_args;
    static constexpr Field<Args> fields[] = {
        {MOE_ARRAY(offsets, i64), gather_use},
        {MOE_ARRAY(counts, i64), optional},
        {MOE_ARRAY(row_ids, i32), gather_use},
        {MOE_ARRAY(out_row_tokens, i32), optional},
        {MOE_ARRAY(out_row_weights, f32), optional},
        {MOE_ROWS(weights, f32), gather_weights_use, slot_rows},
        {MOE_ROWS(x, plan_x), gather_use, gather_in},
        {MOE_ROWS(out, plan_x), gather_use, gather_out},
    };
    Args args = read_struct(given, "moe_gather_args");
    refuse_fp8_x(plan);
    check_threads(args);
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_DISPATCH);
    check_flag(args.x_is_latent, "x_is_latent");
    require(!args.x_is_latent || plan.layout.layer.latent,
            "x_is_latent is 1, but the layer has no latent");
    require(args.n_rows >= 0 && args.n_rows <= INT32_MAX, "n_rows is {}", args.n_rows);
    check_fields(plan, args, fields);
    check_x_apart(plan, args, fields);
    return args;
}

}  // namespace moe
