// The launches of the steps. What they are was decided by the plan (launch_plan.hpp).
#include "libmoe/cuda/layer_pass.hpp"

#include "libmoe/cuda/chunks.hpp"
#include "libmoe/cuda/dispatch/gather_columns.hpp"

namespace moe::cuda {
LayerPass::LayerPass(const Call& call, const Scratch& scratch, const TokenCount& tokens)
    : call_(call),
      setup_(call.setup),
      weights_(call.weights),
      faults_(call.faults),
      range_(call.setup.launch->range(tokens.n)),
      b_(scratch),
      tokens_(tokens),
      launch_{call.setup.device, static_cast<cudaStream_t>(call.stream), call.setup.batch_invariant,
              range_.tiles},
      family_(call.setup.experts),
      dense_family_(call.setup.finish),
      n_slots_(tokens.n * call.setup.layer->top_k),
      n_sorted_(tokens.n) {}

Rows LayerPass::rows() const {
    Rows rows = b_.rows;
    rows.n_experts = setup_.slice->n_local + (joins_ ? 1 : 0);
    rows.n_tokens = n_sorted_;
    return rows;
}

Rows LayerPass::token_rows(int32_t n) const {
    Rows rows = b_.token_rows;
    rows.n_tokens = n;
    // The lists hold more slots than the buffers of tokens have rows.
    rows.capacity = static_cast<int32_t>(padded_rows(n));
    return rows;
}

void LayerPass::take_pre_activation_family() {
    family_ = setup_.pre_activation;
    launch_.tiles = tiles_of_rows(n_slots_, setup_.layer->n_experts);
}

MlpTiles LayerPass::tiles_of_rows(int32_t n_rows, int32_t n_experts) const {
    const TileChoice& tiles = setup_.launch->tiles;
    return tiles.of(family_, mlp_traits(setup_, tiles), n_rows,
                    static_cast<double>(n_rows) / n_experts);
}

MlpTiles LayerPass::tiles_of_batch(const MlpTiles& tiles) const {
    if (family_ == Family::grouped_fp8 && !tiles.are_narrow())
        return {TileWidths::wide, TileWidths::wide};  // which few rows do not slow down
    if (is_grouped(family_) && (tiles.has_wide_alone() || tiles.are_some_middle()))
        return {TileWidths::both, TileWidths::both};
    if (is_sm80_grouped(family_) && !tiles.are_some_wide())
        return {TileWidths::narrow, TileWidths::narrow};
    return tiles;
}

TileRule LayerPass::dense_tiles() const {
    return tiles_of(dense_family_, {range_.dense_tiles, range_.dense_tiles});
}

Launch LayerPass::dense_launch() const {
    Launch launch = launch_;
    launch.tiles = {range_.dense_tiles, range_.dense_tiles};
    return launch;
}

LogitsInput LayerPass::logits_input(const DeviceRows& rows) const {
    const Routing& routing = layer().routing;
    LogitsInput input{};
    input.rows = rows.data;
    input.type = rows.type;
    input.stride = rows.stride;
    input.weights = weights_.router;
    input.weights_type = weights_.router_type;
    input.bias = vector(MOE_ROLE_ROUTER_BIAS);
    input.norm_weight = vector(MOE_ROLE_ROUTER_NORM);
    input.has_norm = routing.has_router_norm;
    input.norm_eps = routing.router_norm_eps;
    input.input_scale = routing.router_input_scale;
    input.hidden = layer().hidden;
    input.n_experts_all = layer().n_experts_all();
    input.batch_invariant = setup_.batch_invariant;
    input.may_use_library = may_use_library(setup_);
    input.library = &setup_.logits_library;
    input.kernel = range_.logits;
    return input;
}

SelectOutput LayerPass::output_of(const RouteArguments& args) const {
    return {b_.ids,           b_.weights,
            args.out_ids,     args.out_ids_stride,
            args.out_weights, args.out_weights_stride,
            args.out_logits,  args.out_logits_stride};
}

void LayerPass::route(const RouteArguments& args) {
    LogitParts logits{args.logits, args.logits_stride, 1, 0, nullptr, 1.0f, false};
    if (!args.logits)
        logits = run_logits(launch_.device, logits_input(args.router_input), tokens_,
                            b_.logits_scratch, stream());
    SelectInput input{};
    input.routing = layer().routing;
    input.n_experts = layer().n_experts;
    input.selection_bias = vector(MOE_ROLE_SELECTION_BIAS);
    input.second_selection_bias = vector(MOE_ROLE_SECOND_SELECTION_BIAS);
    input.uses_second_bias = args.uses_second_bias;
    input.expert_scale = vector(MOE_ROLE_EXPERT_SCALE);
    input.logits = logits;
    input.given_ids = args.routing == MOE_ROUTING_IDS ? args.ids : nullptr;
    input.given_ids_type = args.ids_type;
    input.given_ids_stride = args.ids_stride;
    input.hash_table = weights_.hash_table;
    input.token_ids = args.token_ids;
    input.token_ids_type = args.token_ids_type;
    input.round_to = setup_.x_type;
    run_select(launch_.device, range_.select, input, tokens_, output_of(args), faults_, stream());
}

void LayerPass::take_routing(const GivenRouting& given, const RouteArguments& published) {
    run_take_routing(given, tokens_, output_of(published), faults_, stream());
}

DeviceRows LayerPass::values(const Fp8Rows& codes) {
    codes_ = codes;
    return dense_rows(b_.x_values, setup_.x_type, codes.n_columns);
}

void LayerPass::make_values(bool values_are_read) {
    if (!codes_.data || (takes_codes(setup_, family_) && !values_are_read)) return;
    run_dequantize_rows(launch_.device, codes_, tokens_, {b_.x_values, nullptr, nullptr}, stream());
}

// The caller's rows for kernels that read values: those of the sorted rows, or, before LATENT_IN,
// of the slots.
LayerPass::ExpertInput LayerPass::read_values(ExpertInput input) {
    if (!codes_.data || !input.by_source || takes_codes(setup_, family_)) return input;
    const bool by_slot = layer().latent && !input.is_latent;
    const ValueRows values{b_.x_values, by_slot ? b_.source : b_.in_row, b_.value_index};
    const auto n_padded = static_cast<int32_t>(padded_rows(n_slots_));  // source has -1 there
    if (by_slot)
        run_dequantize_rows(launch_.device, codes_, {n_padded, nullptr, 0}, values, stream());
    else
        run_dequantize_sorted(launch_.device, codes_, rows(), values, stream());
    input.rows = dense_rows(b_.x_values, setup_.x_type, codes_.n_columns);
    input.rows.index = b_.value_index;
    return input;
}

void LayerPass::take_input(const ExpertInput& input) {
    const bool is_projected = layer().latent && !input.is_latent;
    arranges_ = is_grouped(family_) && indexes_rows(input) && !is_projected;
    input_ = input.rows;
}

bool LayerPass::indexes_rows(const ExpertInput& input) const {
    return range_.indexes_rows && !input.by_source;
}

void LayerPass::sort(const int32_t* expert_map) {
    sort(expert_map, {});
}

void LayerPass::take_and_sort(const GivenRouting& given, const RouteArguments& published,
                              const int32_t* expert_map) {
    SortAlong along{};
    along.given = &given;
    along.published = output_of(published);
    sort(expert_map, along);
}

void LayerPass::sort(const int32_t* expert_map, SortAlong along) {
    const int32_t n_local = setup_.slice->n_local;
    const bool has_dense_matrices = (layer().shared_intermediate && !joins_) || layer().latent;
    if (has_dense_matrices && !tokens_listed_ && range_.sort == SortKernel::fused) {
        along.token_rows = &b_.token_rows;
        along.token_rule = dense_tiles();
        tokens_listed_ = true;
    }
    if (arranges_) {
        along.arranges = true;
        along.input = block_input(family_, input_, codes_, layer().expert_width());
        along.token_blocks = {b_.wide, static_cast<int32_t>(padded_rows(tokens_.n)),
                              b_.rows.tile_counter};
    }
    const SortInput input{b_.ids,
                          expert_map ? expert_map : setup_.local_of,
                          layer().n_experts,
                          layer().top_k,
                          n_local,
                          b_.sort_scratch,
                          joins_};
    run_sort(launch_.device, range_.sort, input, tokens_, rows(), tiles_of(family_, launch_.tiles),
             along, faults_, stream());
}

void LayerPass::sort_local(int32_t n_slots) {
    n_slots_ = n_slots;
    n_sorted_ = n_slots;
    const int32_t n_local = setup_.slice->n_local;
    launch_.tiles = tiles_of_rows(n_slots, n_local);
    const SortInput input{b_.ids, nullptr, n_local, 1, n_local, b_.sort_scratch, false};
    run_sort(launch_.device, range_.sort, input, {n_slots, nullptr, 0}, rows(),
             tiles_of(family_, launch_.tiles), {}, faults_, stream());
    run_compose(b_.rows.slot, b_.source, n_slots, b_.rows.capacity, b_.in_row, stream());
}

void LayerPass::list_rows(const CallerRows& caller, const SlotWindow& window, const SlotsOut& out) {
    n_slots_ = window.n;
    n_sorted_ = window.n;
    launch_.tiles = tiles_of_rows(window.n, setup_.slice->n_local);
    // How much of a batch is used is known on the device alone; wide and middle tiles are slow for
    // few rows.
    if (!caller.offsets) launch_.tiles = tiles_of_batch(launch_.tiles);
    run_list_rows(launch_.device, caller, window, out, rows(), tiles_of(family_, launch_.tiles),
                  b_.in_row, out.slot_to_row ? nullptr : b_.source, faults_, stream());
}

void LayerPass::list_slots(const CallerRows& caller, SlotsOut out, bool takes_weights) {
    out.slot_to_row = b_.rows.slot_to_row;
    SlotsOut cleared = out;
    cleared.weights = b_.weights;
    run_clear_slots(cleared, takes_weights, n_slots_, stream());
    list_rows(caller, {false, 0, n_slots_}, out);
}

bool LayerPass::stores_to(const DeviceRows& out) const {
    const auto address = reinterpret_cast<uintptr_t>(out.data);
    return !is_grouped(family_) ||
           (address % 16 == 0 && out.stride * element_size(out.type) % 16 == 0);
}

void LayerPass::list_tokens() {
    if (tokens_listed_) return;
    run_list_tokens(launch_.device, tokens_, b_.token_rows, dense_tiles(), stream());
    tokens_listed_ = true;
}

moe_type LayerPass::latent_type() const {
    return setup_.x_type == MOE_TYPE_F16 && dense_family_ != Family::exact
               ? MOE_TYPE_F16
               : operand_type(dense_family_);
}

// Rows of tokens, or of slots that have a row of their own.
void LayerPass::project_latent(const ExpertInput& input) {
    if (input.by_source) {
        run_list_tokens(launch_.device, {n_slots_, nullptr, 0}, b_.token_rows, dense_tiles(),
                        stream());
        tokens_listed_ = false;
    } else {
        list_tokens();
    }
    Projection projection{};
    projection.matrix = weights_.matrices[MOE_ROLE_LATENT_IN];
    projection.in_columns = layer().hidden;
    projection.names = &setup_.launch->latent_in;
    projection.in = input.rows;
    if (input.by_source && !input.rows.index) projection.in.index = b_.source;
    projection.out = {b_.latent, latent_type(), layer().latent, nullptr, 1};
    if (layer().has_latent_in_norm)
        projection.out = dense_rows(b_.latent_values, MOE_TYPE_F32, layer().latent);
    projection.blocks = b_.token_blocks;
    projection.rows = token_rows(input.by_source ? n_slots_ : tokens_.n);
    run_projection(dense_launch(), dense_family_, projection);
    if (!layer().has_latent_in_norm) return;
    const TokenCount rows = input.by_source ? TokenCount{n_slots_, nullptr, 0} : tokens_;
    run_norm({b_.latent_values, MOE_TYPE_F32, layer().latent, vector(MOE_ROLE_LATENT_IN_NORM),
              layer().latent_in_norm_eps, 1.0f, true, layer().latent},
             rows, b_.latent, latent_type(), layer().latent, stream());
}

// The norm of the experts' outputs, in place, of all rows, those of padding too: their values are
// never read. A weight that comes first is a launch of its own.
void LayerPass::normalize_y(int32_t n_rows) {
    const int32_t width = layer().expert_width();
    const auto run = [&](const float* weight, bool normalize) {
        run_norm(
            {b_.wide, y_type(), width, weight, layer().expert_norm_eps, 1.0f, normalize, width},
            {n_rows, nullptr, 0}, b_.wide, y_type(), width, stream());
    };
    const float* weight = vector(MOE_ROLE_EXPERT_NORM);
    if (!layer().expert_norm_weight_first) return run(weight, true);
    run(weight, false);
    run(nullptr, true);
}

DeviceRows LayerPass::expert_rows(const ExpertInput& input) {
    const bool projected = layer().latent && !input.is_latent;
    DeviceRows rows = input.rows;
    if (projected) rows = {b_.latent, latent_type(), layer().latent, nullptr, 1};
    if (!rows.index) rows.index = input.by_source && !projected ? b_.in_row : b_.rows.slot;
    rows.divisor = input.by_source ? 1 : layer().top_k;
    return rows;
}

Mlp LayerPass::expert_mlp(const ExpertInput& input) {
    Mlp mlp{};
    const auto& matrices = weights_.matrices;
    mlp.gate = layer().activation.gated ? &matrices[MOE_ROLE_GATE] : nullptr;
    mlp.up = &matrices[MOE_ROLE_UP];
    mlp.down = &matrices[MOE_ROLE_DOWN];
    mlp.is_gate_up_fused = weights_.is_gate_up_fused;
    mlp.activation = layer().activation;
    mlp.gate_bias = vector(MOE_ROLE_GATE_BIAS);
    mlp.up_bias = vector(MOE_ROLE_UP_BIAS);
    mlp.down_bias = setup_.down_bias_in_finish ? nullptr : vector(MOE_ROLE_DOWN_BIAS);
    mlp.features = setup_.slice->intermediate_count;
    mlp.width = layer().expert_width();
    mlp.intermediate_type = setup_.intermediate_type;
    mlp.gate_up_names = &setup_.launch->gate_up;
    mlp.down_names = &setup_.launch->down;
    mlp.in = expert_rows(input);
    if (!layer().latent || input.is_latent) mlp.codes = codes_;
    if (!input.by_source) mlp.in_tokens = tokens_;
    mlp.indexes_rows = indexes_rows(input);
    mlp.is_arranged = arranges_;
    mlp.row_weight = layer().weight_on_input ? b_.weights : nullptr;
    mlp.rows = rows();
    mlp.blocks = b_.wide;
    mlp.h = b_.h;
    mlp.pre = b_.pre_activation;
    mlp.y = dense_rows(b_.wide, y_type(), layer().expert_width());
    return mlp;
}

void LayerPass::run_experts(const ExpertInput& given, const DeviceRows* out) {
    const ExpertInput input = read_values(given);
    if (layer().latent && !input.is_latent) project_latent(input);
    Mlp mlp = expert_mlp(input);
    if (out) mlp.y = *out;
    run_mlp(launch_, family_, mlp);
    if (layer().has_expert_norm)
        normalize_y(static_cast<int32_t>(most_rows(n_slots_, setup_.slice->n_local)));
}

void LayerPass::run_pre_activation(const ExpertInput& given, const DeviceRows& out) {
    const ExpertInput input = read_values(given);
    if (layer().latent && !input.is_latent) project_latent(input);
    Mlp mlp = expert_mlp(input);
    mlp.gate_up_names = &setup_.launch->pre_activation;
    mlp.blocks = b_.gathered;  // `out` may be in the other
    cuda::run_pre_activation(launch_, family_, mlp, out);
    if (weights_.rows_of_features) order_features(mlp, out);
}

// Sorted rows of gate and up, in the order of the source's features again.
void LayerPass::order_features(const Mlp& mlp, const DeviceRows& out) {
    for (int half = 0; half < (mlp.gate ? 2 : 1); ++half) {
        DeviceRows part = out;
        part.data = offset_activations(out.data, out.type, half * mlp.features);
        run_permute_columns(launch_.device,
                            {weights_.rows_of_features,
                             ColumnTable::order,
                             mlp.down->k,
                             static_cast<int32_t>(mlp.features),
                             {part},
                             {part}},
                            mlp.rows, stream());
    }
}

Mlp LayerPass::shared_mlp(const DeviceRows& x) const {
    Mlp mlp{};
    const auto& matrices = weights_.matrices;
    mlp.gate = layer().shared_activation.gated ? &matrices[MOE_ROLE_SHARED_GATE] : nullptr;
    mlp.up = &matrices[MOE_ROLE_SHARED_UP];
    mlp.down = &matrices[MOE_ROLE_SHARED_DOWN];
    mlp.is_gate_up_fused = weights_.is_shared_gate_up_fused;
    mlp.activation = layer().shared_activation;
    mlp.features = setup_.slice->shared_count;
    mlp.width = layer().hidden;
    mlp.intermediate_type = setup_.intermediate_type;
    mlp.gate_up_names = &setup_.launch->shared_gate_up;
    mlp.down_names = &setup_.launch->shared_down;
    mlp.in = x;
    mlp.codes = codes_;
    mlp.rows = token_rows(tokens_.n);
    mlp.blocks = b_.token_blocks;
    mlp.h = b_.shared_h;
    mlp.pre = b_.shared_pre;
    mlp.y = dense_rows(b_.shared_y, MOE_TYPE_F32, layer().hidden);
    return mlp;
}

// The shared expert apart from the others, and the dot product of its gate.
void LayerPass::run_shared(const DeviceRows& x) {
    if (joins_) {
        // Done with the others.
    } else if (takes_gemv(setup_.launch->shared_gemv, x, tokens_.n, tokens_.n_device)) {
        const GemvArgs args = shared_gemv_args(call_, b_, x, tokens_.n);
        run_gemv(launch_of(setup_.launch->shared_gemv, args), args, stream());
    } else {
        list_tokens();
        run_mlp(dense_launch(), dense_family_, shared_mlp(x));
    }
    if (layer().has_shared_expert_gate && !range_.gate_in_combine)
        run_dot_rows(gate_input(x), tokens_, b_.shared_gate, stream());
}

DotInput LayerPass::gate_input(const DeviceRows& x) const {
    return {x.data, x.type, x.stride, vector(MOE_ROLE_SHARED_EXPERT_GATE), layer().hidden};
}

// The terms of width L: y, identity experts, down biases, a sum made before.
CombineInput LayerPass::combine_input(const Sum& sum) const {
    CombineInput input{};
    const int32_t width = layer().expert_width();
    if (sum.has_y) {
        input.y = b_.wide;
        input.y_type = y_type();
        input.y_stride = width;
        if (sum.is_by_slot)
            input.y_token_stride = int64_t{layer().top_k} * width;
        else
            input.slot_to_row = b_.rows.slot_to_row;
    }
    input.weighted = !layer().weight_on_input;
    input.ids = b_.ids;
    input.weights = b_.weights;
    input.top_k = layer().top_k;
    input.n_experts = layer().n_experts;
    input.n_experts_all = layer().n_experts_all();
    if (sum.identity) {
        input.x = sum.x.data;
        input.x_type = sum.x.type;
        input.x_stride = sum.x.stride;
    }
    if (setup_.down_bias_in_finish && (sum.parts & MOE_FINISH_DOWN_BIAS))
        input.down_bias = vector(MOE_ROLE_DOWN_BIAS);
    input.routed = sum.routed.data;
    input.routed_type = sum.routed.type;
    input.routed_stride = sum.routed.stride;
    input.scale = 1.0f;
    input.width = width;
    return input;
}

void LayerPass::add_shared(CombineInput& input, const Sum& sum) const {
    const uint32_t parts = sum.parts;
    if (parts & MOE_FINISH_COMBINE) input.scale = layer().combine_scale;
    if (!layer().shared_intermediate || !(parts & MOE_FINISH_SHARED)) return;
    input.shared = b_.shared_y;
    if (joins_) input.shared = b_.wide;
    input.shared_type = joins_ ? y_type() : MOE_TYPE_F32;
    input.shared_stride = layer().hidden;
    if (joins_) input.shared_first = b_.rows.begin + setup_.slice->n_local;
    input.shared_scale = layer().shared_scale;
    if (!layer().has_shared_expert_gate) return;
    if (range_.gate_in_combine)
        input.gate = gate_input(sum.x);
    else
        input.shared_gate = b_.shared_gate;
}

// Around the sum in the latent width: norm, LATENT_OUT, and only then what has the hidden width.
void LayerPass::store_latent_sum(const Sum& sum, const CombineOutput& out) {
    CombineInput last{};
    last.top_k = layer().top_k;
    last.scale = 1.0f;
    last.width = layer().hidden;
    if (sum.parts & MOE_FINISH_LATENT) {
        const int64_t latent = layer().latent;
        const moe_type type = latent_type() == MOE_TYPE_F16 ? MOE_TYPE_F16 : MOE_TYPE_F32;
        run_combine(launch_.device, combine_input(sum), tokens_, {b_.routed, type, latent, false},
                    stream());
        if (layer().has_latent_norm)
            run_norm({b_.routed, type, latent, vector(MOE_ROLE_LATENT_NORM),
                      layer().latent_norm_eps, 1.0f, true, layer().latent},
                     tokens_, b_.routed, type, latent, stream());
        list_tokens();
        Projection projection{};
        projection.matrix = weights_.matrices[MOE_ROLE_LATENT_OUT];
        projection.in_columns = layer().latent;
        projection.names = &setup_.launch->latent_out;
        projection.in = {b_.routed, type, latent, nullptr, 1};
        projection.out = {b_.projected, MOE_TYPE_F32, layer().hidden, nullptr, 1};
        projection.blocks = b_.token_blocks;
        projection.rows = token_rows(tokens_.n);
        run_projection(dense_launch(), dense_family_, projection);
        last.routed = b_.projected;
        last.routed_type = MOE_TYPE_F32;
        last.routed_stride = layer().hidden;
    }
    add_shared(last, sum);
    run_combine(launch_.device, last, tokens_, out, stream());
}

void LayerPass::store_sum(const Sum& sum, const CombineOutput& out) {
    if (layer().shared_intermediate && (sum.parts & MOE_FINISH_SHARED)) run_shared(sum.x);
    if (layer().latent && sum.parts) return store_latent_sum(sum, out);
    CombineInput input = combine_input(sum);
    add_shared(input, sum);
    run_combine(launch_.device, input, tokens_, out, stream());
}

void LayerPass::store_gemv_slots(const DeviceRows& x, const RowExperts& experts,
                                 const DeviceRows& out) {
    const float* on_input = layer().weight_on_input ? b_.weights : nullptr;
    run_gemv_rows(call_, b_, {x, n_slots_, experts, on_input, out, false});
}

void LayerPass::run_gemv_slots(const DeviceRows& x, const RowExperts& experts,
                               moe_out_layout layout, const Sum& sum, const CombineOutput& out) {
    if (layout == MOE_OUT_REDUCED) return sum_gemv_slots(x, experts, sum, out);
    const int32_t k = layer().top_k, width = layer().expert_width();
    if (out.stride == int64_t{k} * width && !layer().has_expert_norm)
        return store_gemv_slots(x, experts, dense_rows(out.data, out.type, width));
    store_gemv_slots(x, experts, dense_rows(b_.wide, y_type(), width));
    if (layer().has_expert_norm) normalize_y(n_slots_);
    run_store_slots(launch_.device, b_.wide, y_type(), width, nullptr, k, width, tokens_, out.data,
                    out.type, out.stride, stream());
}

void LayerPass::sum_gemv_slots(const DeviceRows& x, const RowExperts& experts, Sum sum,
                               const CombineOutput& out) {
    store_gemv_slots(x, experts, dense_rows(b_.wide, y_type(), layer().expert_width()));
    if (layer().has_expert_norm) normalize_y(n_slots_);
    sum.is_by_slot = true;
    store_sum(sum, out);
}

void LayerPass::run_gemv_sum(const DeviceRows& x, const int32_t* expert_map, Sum sum,
                             const CombineOutput& out) {
    const FinishTerms terms{sum.parts, sum.identity};
    const bool direct = adds_all(setup_, terms);
    GemvArgs args = expert_gemv_args(call_, b_, x, tokens_.n);
    if (direct) add_finish_terms(call_, terms, args);
    args.ids = b_.ids;
    args.ids_stride = layer().top_k;
    args.local_of = expert_map ? expert_map : setup_.local_of;
    args.weights = b_.weights;
    args.weights_stride = layer().top_k;
    args.out = direct ? out.data : b_.routed;
    args.out_type = direct ? out.type : MOE_TYPE_F32;
    args.out_stride = direct ? out.stride : layer().expert_width();
    args.accumulate = direct && out.accumulate;
    run_gemv(launch_of(expert_launches(setup_, args), args), args, stream());
    if (direct) return;
    sum.has_y = false;
    sum.routed = dense_rows(b_.routed, MOE_TYPE_F32, layer().expert_width());
    store_sum(sum, out);
}

}  // namespace moe::cuda
