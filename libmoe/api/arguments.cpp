// One function per struct, made of the small checks at the top.
#include "libmoe/api/arguments.hpp"

#include <algorithm>

#include "libmoe/api/structs.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

// A row stride in elements: 0 becomes the width, less than that is an error, and so is one by which
// the last of n rows would lie beyond what an offset in bytes can say.
void check_stride(int64_t& stride, int64_t width, int64_t n, const char* name) {
    require(stride == 0 || stride >= width, "{} is {}, a row has {} elements", name, stride, width);
    require(n <= 1 || stride <= INT64_MAX / 8 / n, "{} is {}, too much for {} rows", name, stride,
            n);
    if (stride == 0) stride = width;
}

void check_pointer(const void* pointer, bool required, const char* name) {
    require(pointer != nullptr || !required, "{} is NULL", name);
}

// Elements are loaded one by one as their type: an address between them would be a caller's
// mistake.
void check_aligned(const void* pointer, moe_type type, const char* name) {
    const uintptr_t size = type == MOE_TYPE_I64                           ? 8
                           : type == MOE_TYPE_F32 || type == MOE_TYPE_I32 ? 4
                                                                          : 2;
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    require(address % size == 0, "{} is at {:#x}, {} needs a multiple of {}", name, address,
            type_name(type), size);
}

template <class Args>
void check_tokens(const moe_plan& plan, const Args& args) {
    require(args.n_tokens >= 0 && args.n_tokens <= plan.max_tokens,
            "n_tokens is {}, the plan takes 0 to {}", args.n_tokens, plan.max_tokens);
    check_aligned(args.n_tokens_device, MOE_TYPE_I32, "n_tokens_device");
}

// Rows that may be left out: without them their stride says nothing.
void check_optional_rows(const void* rows, moe_type type, const char* name, int64_t& stride,
                         int64_t width, int64_t n, const char* stride_name) {
    if (!rows) stride = 0;
    check_aligned(rows, type, name);
    check_stride(stride, width, n, stride_name);
}

void check_index_type(moe_type& type, const char* name) {
    if (type == MOE_TYPE_NONE) type = MOE_TYPE_I32;
    require(type == MOE_TYPE_I32 || type == MOE_TYPE_I64, "{} is {} ({}), must be I32 or I64", name,
            type_name(type), static_cast<int32_t>(type));
}

void check_stages(const moe_plan& plan, uint32_t needed) {
    for (const moe_stage stage : all_stages)
        require(!(needed & stage) || (plan.layout.stages & stage),
                "the plan was made without stage {} (moe_plan_desc.stages is {:#x})",
                stage_name(stage), plan.layout.stages);
}

void check_expert_map(const moe_plan& plan, const int32_t* map, int32_t n) {
    if (!map) return;
    check_aligned(map, MOE_TYPE_I32, "expert_map");
    require(n == plan.layout.layer.n_experts, "n_expert_map is {}, the layer has {} experts", n,
            plan.layout.layer.n_experts);
    if (plan.is_cuda()) return;  // it lies on the device, whose kernels skip what is out of range
    for (int32_t e = 0; e < n; ++e)
        require(map[e] >= -1 && map[e] < plan.layout.slice.n_local,
                "expert_map[{}] is {}, the slice has {} local experts", e, map[e],
                plan.layout.slice.n_local);
}

// n rows of width elements, stride elements apart.
struct Rows {
    const void* data;
    int64_t stride;
    int64_t width;
    moe_type type;
    int64_t n;

    uintptr_t element() const { return type == MOE_TYPE_F32 ? 4 : 2; }
    uintptr_t row() const { return width * element(); }
    uintptr_t pitch() const { return stride * element(); }
    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(data); }
    uintptr_t end() const { return begin() + ((n - 1) * stride + width) * element(); }
};

// Columns of one buffer. The stride of a single row is never taken, so that it may be anything:
// such a row lies among the others as if it had theirs.
bool are_side_by_side(const Rows& a, const Rows& b) {
    if (a.n == 1 && b.n == 1) return false;
    if (a.n > 1 && b.n > 1 && a.pitch() != b.pitch()) return false;
    const uintptr_t pitch = a.n > 1 ? a.pitch() : b.pitch();
    const uintptr_t offset = b.begin() > a.begin() ? (b.begin() - a.begin()) % pitch
                                                   : pitch - (a.begin() - b.begin()) % pitch;
    return offset >= a.row() && offset + b.row() <= pitch;
}

// x and out may not share a byte, whether x is read or not.
void check_apart(const Rows& x, const Rows& out) {
    if (!x.data || x.n == 0 || out.n == 0) return;
    const bool one_behind_the_other = x.end() <= out.begin() || out.end() <= x.begin();
    require(one_behind_the_other || are_side_by_side(x, out), "x and out overlap");
}

// An argument that the call has no use for has no effect: it is not looked at here, and is gone
// afterwards.
template <class Args>
void check_ids(const moe_plan& plan, Args& args, bool used) {
    const int32_t k = plan.layout.layer.top_k;
    if (!used) {
        args.ids = nullptr;
        args.ids_type = MOE_TYPE_I32;
        args.ids_row_stride = k;
        return;
    }
    check_pointer(args.ids, args.n_tokens > 0, "ids");
    check_index_type(args.ids_type, "ids_type");
    check_aligned(args.ids, args.ids_type, "ids");
    check_stride(args.ids_row_stride, k, args.n_tokens, "ids_row_stride");
}

template <class Args>
void check_weights(const moe_plan& plan, Args& args, bool used, bool required, moe_type type) {
    const int32_t k = plan.layout.layer.top_k;
    if (!used) {
        args.weights = nullptr;
        args.weights_row_stride = k;
        return;
    }
    check_pointer(args.weights, required && args.n_tokens > 0, "weights");
    check_aligned(args.weights, type, "weights");
    check_stride(args.weights_row_stride, k, args.n_tokens, "weights_row_stride");
}

template <class Args>
void check_token_ids(const moe_plan& plan, Args& args, bool given_ids) {
    if (plan.layout.layer.routing.selection != MOE_SELECT_HASH || given_ids) {
        args.token_ids = nullptr;
        args.token_ids_type = MOE_TYPE_I32;
        return;
    }
    check_pointer(args.token_ids, args.n_tokens > 0, "token_ids");
    check_index_type(args.token_ids_type, "token_ids_type");
    check_aligned(args.token_ids, args.token_ids_type, "token_ids");
}

template <class Args>
bool routes_from_x(const Args& args) {
    return args.routing == MOE_ROUTING_COMPUTE || (args.routing == MOE_ROUTING_IDS && !args.logits);
}

template <class Args>
void check_router_input(const moe_plan& plan, Args& args) {
    const Layer& layer = plan.layout.layer;
    const bool from_x = routes_from_x(args);
    if (!from_x) args.router_input = nullptr;
    require(!from_x || layer.routing.has_router,
            "routing is {}, but the layer has no router: give logits, or ids and weights",
            static_cast<int32_t>(args.routing));
    check_optional_rows(args.router_input, plan.router_input_type, "router_input",
                        args.router_input_row_stride, layer.hidden, args.n_tokens,
                        "router_input_row_stride");
    require(!from_x || args.router_input || plan.router_input_type == plan.x_type,
            "router_input is NULL, the plan's router_input_type is {} and x is {}",
            type_name(plan.router_input_type), type_name(plan.x_type));
}

// What routing gives.
template <class Args>
void check_routing_out(const moe_plan& plan, Args& args) {
    const Layer& layer = plan.layout.layer;
    if (args.routing == MOE_ROUTING_IDS_AND_WEIGHTS) args.out_logits = nullptr;
    check_optional_rows(args.out_ids, MOE_TYPE_I32, "out_ids", args.out_ids_row_stride, layer.top_k,
                        args.n_tokens, "out_ids_row_stride");
    check_optional_rows(args.out_weights, MOE_TYPE_F32, "out_weights", args.out_weights_row_stride,
                        layer.top_k, args.n_tokens, "out_weights_row_stride");
    check_optional_rows(args.out_logits, MOE_TYPE_F32, "out_logits", args.out_logits_row_stride,
                        layer.n_experts_all(), args.n_tokens, "out_logits_row_stride");
}

// What forward and route have in common.
template <class Args>
void check_routing(const moe_plan& plan, Args& args, bool allow_weights) {
    const Layer& layer = plan.layout.layer;
    const auto routing = static_cast<int32_t>(args.routing);
    require(routing >= 0 && routing <= (allow_weights ? 3 : 2), "routing is {}{}", routing,
            allow_weights ? ", not a moe_routing" : ", must be COMPUTE, LOGITS or IDS");
    const bool given_ids = args.routing >= MOE_ROUTING_IDS;
    const bool computed = args.routing == MOE_ROUTING_COMPUTE;
    require(!computed || !args.logits, "logits are given, but routing is COMPUTE");
    require(!computed || !args.ids, "ids are given, but routing is COMPUTE");
    if (args.routing != MOE_ROUTING_LOGITS && args.routing != MOE_ROUTING_IDS)
        args.logits = nullptr;
    check_pointer(args.logits, args.n_tokens > 0 && args.routing == MOE_ROUTING_LOGITS, "logits");
    check_optional_rows(args.logits, MOE_TYPE_F32, "logits", args.logits_row_stride,
                        layer.n_experts_all(), args.n_tokens, "logits_row_stride");
    check_ids(plan, args, given_ids);
    check_token_ids(plan, args, given_ids);
    check_router_input(plan, args);
    check_routing_out(plan, args);
}

// out must not overlap x, whether x is read or not: its stride always counts, the rest where it is
// read.
template <class Args>
void check_x(const moe_plan& plan, Args& args, bool used) {
    check_pointer(args.x, used && args.n_tokens > 0, "x");
    if (used) check_aligned(args.x, plan.x_type, "x");
    if (!args.x) args.x_row_stride = 0;
    check_stride(args.x_row_stride, plan.layout.layer.hidden, args.n_tokens, "x_row_stride");
}

// Output by token of partial sums, whole results or slots.
int64_t token_row(const moe_plan& plan, moe_out_layout layout, int64_t width) {
    return layout == MOE_OUT_PER_SLOT ? plan.layout.layer.top_k * width : width;
}

}  // namespace

moe_forward_args forward_arguments(const moe_plan& plan, const moe_forward_args* given) {
    moe_forward_args args = read_struct(given, "moe_forward_args");
    const Layer& layer = plan.layout.layer;
    check_tokens(plan, args);
    check_routing(plan, args, true);
    check_stages(plan, MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE |
                           (plan.partial ? 0 : MOE_STAGE_FINISH) |
                           (args.routing == MOE_ROUTING_IDS_AND_WEIGHTS ? 0 : MOE_STAGE_ROUTE));
    if (args.x_scales)
        fail(MOE_ERROR_UNSUPPORTED, "x_scales: fp8 activations are not in this version");
    const bool some = args.n_tokens > 0;
    check_pointer(args.x, some, "x");
    check_aligned(args.x, plan.x_type, "x");
    check_stride(args.x_row_stride, layer.hidden, args.n_tokens, "x_row_stride");
    const bool takes_weights = args.routing == MOE_ROUTING_IDS_AND_WEIGHTS;
    if (args.weights_type == MOE_TYPE_NONE || !takes_weights) args.weights_type = MOE_TYPE_F32;
    require(args.weights_type >= MOE_TYPE_F32 && args.weights_type <= MOE_TYPE_BF16,
            "weights_type is {} ({}), must be F32, F16 or BF16", type_name(args.weights_type),
            static_cast<int32_t>(args.weights_type));
    check_weights(plan, args, takes_weights, true, args.weights_type);
    check_expert_map(plan, args.expert_map, args.n_expert_map);
    require(args.out_layout == MOE_OUT_REDUCED || args.out_layout == MOE_OUT_PER_SLOT,
            "out_layout is {}, must be REDUCED or PER_SLOT", static_cast<int32_t>(args.out_layout));
    check_flag(args.accumulate, "accumulate");
    require(args.out_layout == MOE_OUT_REDUCED || (plan.partial && !args.accumulate),
            "out_layout is PER_SLOT: needs a partial plan, and accumulate 0");
    const int64_t width = plan.partial ? layer.expert_width() : layer.hidden;
    check_pointer(args.out, some, "out");
    check_aligned(args.out, plan.out_type, "out");
    check_stride(args.out_row_stride, token_row(plan, args.out_layout, width), args.n_tokens,
                 "out_row_stride");
    check_apart({args.x, args.x_row_stride, layer.hidden, plan.x_type, args.n_tokens},
                {args.out, args.out_row_stride, token_row(plan, args.out_layout, width),
                 plan.out_type, args.n_tokens});
    check_aligned(args.out_expert_counts, MOE_TYPE_I64, "out_expert_counts");
    return args;
}

moe_route_args route_arguments(const moe_plan& plan, const moe_route_args* given) {
    moe_route_args args = read_struct(given, "moe_route_args");
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_ROUTE);
    check_routing(plan, args, false);
    const bool some = args.n_tokens > 0;
    const bool uses_x = routes_from_x(args) && !args.router_input;
    if (!uses_x) args.x = nullptr;
    check_pointer(args.x, some && uses_x, "x");
    check_optional_rows(args.x, plan.x_type, "x", args.x_row_stride, plan.layout.layer.hidden,
                        args.n_tokens, "x_row_stride");
    check_pointer(args.out_ids, some && args.routing != MOE_ROUTING_IDS, "out_ids");
    check_pointer(args.out_weights, some, "out_weights");
    return args;
}

moe_dispatch_args dispatch_arguments(const moe_plan& plan, const moe_dispatch_args* given) {
    moe_dispatch_args args = read_struct(given, "moe_dispatch_args");
    const int64_t n_local = plan.layout.slice.n_local;
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_DISPATCH);
    require(args.block_rows >= 0, "block_rows is {}", args.block_rows);
    args.block_rows = std::max(args.block_rows, 1);
    check_ids(plan, args, true);
    check_expert_map(plan, args.expert_map, args.n_expert_map);
    check_pointer(args.out_offsets, true, "out_offsets");
    check_aligned(args.out_offsets, MOE_TYPE_I64, "out_offsets");
    check_aligned(args.out_counts, MOE_TYPE_I64, "out_counts");
    check_aligned(args.out_row_ids, MOE_TYPE_I32, "out_row_ids");
    const int64_t rows =
        args.n_tokens * plan.layout.layer.top_k + n_local * (int64_t{args.block_rows} - 1);
    require(!args.out_row_ids || args.row_capacity >= rows,
            "row_capacity is {}, {} tokens in blocks of {} may need {}", args.row_capacity,
            args.n_tokens, args.block_rows, rows);
    return args;
}

bool has_work(const moe_experts_args& args) {
    const bool by_rows = args.out_layout == MOE_OUT_ROWS;
    if (args.in_layout == MOE_IN_BATCHED) return args.batch_capacity > 0;
    if (args.in_layout == MOE_IN_SORTED) return args.n_rows > 0 || (!by_rows && args.n_tokens > 0);
    return args.n_tokens > 0 || (by_rows && args.n_rows > 0);
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

// Numbers and pointers of rows where rows neither come in nor go out, and the like: what the
// layouts have no use for has no effect. Ids and weights are cleared where they are checked.
void drop_unused(const moe_plan& plan, moe_experts_args& args) {
    const bool from_tokens = args.in_layout == MOE_IN_TOKENS;
    const bool batched = args.in_layout == MOE_IN_BATCHED;
    const bool by_rows = args.out_layout == MOE_OUT_ROWS;
    if (from_tokens && !by_rows) {
        args.counts = nullptr;
        args.row_ids = nullptr;
        args.row_weights = nullptr;
    }
    if (batched || (from_tokens && !by_rows)) args.offsets = nullptr;
    const bool has_row_arrays = args.row_ids || args.row_weights;
    if (batched ? !has_row_arrays : from_tokens && !by_rows) args.n_rows = 0;
    if (!batched) args.batch_capacity = 0;
    if (by_rows) args.n_tokens_device = nullptr;
    if (by_rows && !from_tokens && !weighs_by_slot(plan, args)) args.n_tokens = 0;
    if (by_rows || !from_tokens) args.expert_map = nullptr;
}

int64_t batch_rows(const moe_plan& plan, const moe_experts_args& args) {
    return plan.layout.slice.n_local * args.batch_capacity;
}

void check_rows_in(const moe_plan& plan, moe_experts_args& args) {
    const bool sorted = args.in_layout == MOE_IN_SORTED;
    const bool by_rows = args.out_layout == MOE_OUT_ROWS;
    const bool some = has_work(args);
    const bool has_offsets = sorted || (by_rows && args.in_layout == MOE_IN_TOKENS);
    require(args.n_rows >= 0 && args.n_rows <= INT32_MAX, "n_rows is {}", args.n_rows);
    require(args.batch_capacity >= 0 && args.batch_capacity <= INT32_MAX, "batch_capacity is {}",
            args.batch_capacity);
    check_pointer(args.offsets, some && has_offsets, "offsets");
    check_pointer(args.counts, some && args.in_layout == MOE_IN_BATCHED, "counts");
    require(args.in_layout != MOE_IN_BATCHED || !(args.row_ids || args.row_weights) ||
                args.n_rows == batch_rows(plan, args),
            "n_rows is {}, row_ids or row_weights of BATCHED rows are {} (local experts times "
            "batch_capacity)",
            args.n_rows, batch_rows(plan, args));
    const bool needs_row_ids = args.in_layout == MOE_IN_TOKENS ? by_rows : sorted && !by_rows;
    check_pointer(args.row_ids, needs_row_ids && args.n_rows > 0, "row_ids");
    check_aligned(args.offsets, MOE_TYPE_I64, "offsets");
    check_aligned(args.counts, MOE_TYPE_I64, "counts");
    check_aligned(args.row_ids, MOE_TYPE_I32, "row_ids");
    check_ids(plan, args, args.in_layout == MOE_IN_TOKENS && !by_rows);
}

void check_row_weights(const moe_plan& plan, moe_experts_args& args) {
    const bool on_input = plan.layout.layer.weight_on_input;
    if (!on_input) args.row_weights = nullptr;
    check_aligned(args.row_weights, MOE_TYPE_F32, "row_weights");
    check_weights(plan, args, weighs_by_slot(plan, args), args.out_layout == MOE_OUT_REDUCED,
                  MOE_TYPE_F32);
    if (!on_input || args.row_weights || !has_work(args)) return;
    require(args.weights != nullptr && (args.in_layout == MOE_IN_TOKENS || args.row_ids),
            "the layer has its weights on the input: give row_weights, or weights and row_ids");
}

void check_x_and_out(const moe_plan& plan, moe_experts_args& args) {
    const Layer& layer = plan.layout.layer;
    const int64_t rows = args.in_layout == MOE_IN_BATCHED ? batch_rows(plan, args) : args.n_rows;
    const int64_t n_in = args.in_layout == MOE_IN_TOKENS ? args.n_tokens : rows;
    const int64_t n_out = args.out_layout == MOE_OUT_ROWS ? rows : args.n_tokens;
    const int64_t features = plan.layout.slice.intermediate_count;
    const int64_t in_width = args.x_is_latent ? layer.latent : layer.hidden;
    const int64_t width = !args.stop_before_activation ? layer.expert_width()
                          : layer.activation.gated     ? 2 * features
                                                       : features;
    const int64_t out_width = token_row(plan, args.out_layout, width);
    check_pointer(args.x, has_work(args), "x");
    check_aligned(args.x, plan.x_type, "x");
    check_stride(args.x_row_stride, in_width, n_in, "x_row_stride");
    check_pointer(args.out, has_work(args), "out");
    check_aligned(args.out, plan.out_type, "out");
    check_stride(args.out_row_stride, out_width, n_out, "out_row_stride");
    check_apart({args.x, args.x_row_stride, in_width, plan.x_type, n_in},
                {args.out, args.out_row_stride, out_width, plan.out_type, n_out});
}

}  // namespace

moe_experts_args experts_arguments(const moe_plan& plan, const moe_experts_args* given) {
    moe_experts_args args = read_struct(given, "moe_experts_args");
    check_stages(plan, MOE_STAGE_EXPERTS);
    check_layouts(plan, args);
    drop_unused(plan, args);
    check_tokens(plan, args);
    check_rows_in(plan, args);
    check_row_weights(plan, args);
    check_expert_map(plan, args.expert_map, args.n_expert_map);
    check_x_and_out(plan, args);
    return args;
}

moe_combine_args combine_arguments(const moe_plan& plan, const moe_combine_args* given) {
    moe_combine_args args = read_struct(given, "moe_combine_args");
    const Layer& layer = plan.layout.layer;
    const int64_t width = layer.expert_width();
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_COMBINE);
    const bool some = args.n_tokens > 0;
    require(args.rows_layout == MOE_IN_TOKENS || args.rows_layout == MOE_IN_SORTED,
            "rows_layout is {}, must be TOKENS or SORTED", static_cast<int32_t>(args.rows_layout));
    const bool sorted = args.rows_layout == MOE_IN_SORTED;
    check_flag(args.accumulate, "accumulate");
    if (!sorted) {
        args.row_ids = nullptr;
        args.n_rows = 0;
    }
    require(args.n_rows >= 0 && args.n_rows <= INT32_MAX, "n_rows is {}", args.n_rows);
    check_pointer(args.row_ids, args.n_rows > 0, "row_ids");
    check_aligned(args.row_ids, MOE_TYPE_I32, "row_ids");
    check_pointer(args.rows, sorted ? args.n_rows > 0 : some, "rows");
    check_aligned(args.rows, plan.out_type, "rows");
    check_stride(args.rows_row_stride, sorted ? width : layer.top_k * width,
                 sorted ? args.n_rows : args.n_tokens, "rows_row_stride");
    check_ids(plan, args, true);
    check_weights(plan, args, true, true, MOE_TYPE_F32);
    const bool uses_x = layer.n_identity_experts > 0 && !plan.partial;
    check_x(plan, args, uses_x);
    check_pointer(args.out, some, "out");
    check_aligned(args.out, plan.out_type, "out");
    check_stride(args.out_row_stride, width, args.n_tokens, "out_row_stride");
    check_apart({args.x, args.x_row_stride, layer.hidden, plan.x_type, args.n_tokens},
                {args.out, args.out_row_stride, width, plan.out_type, args.n_tokens});
    if (!uses_x) args.x = nullptr;
    return args;
}

moe_finish_args finish_arguments(const moe_plan& plan, const moe_finish_args* given) {
    moe_finish_args args = read_struct(given, "moe_finish_args");
    const Layer& layer = plan.layout.layer;
    check_tokens(plan, args);
    check_stages(plan, MOE_STAGE_FINISH);
    require((args.parts & ~cpu::every_finish_part) == 0,
            "parts is {:#x}, has bits beyond MOE_FINISH_", args.parts);
    check_flag(args.accumulate, "accumulate");
    if (args.parts == MOE_FINISH_ALL) args.parts = cpu::every_finish_part;
    const bool some = args.n_tokens > 0;
    const bool identity =
        plan.partial && layer.n_identity_experts > 0 && (args.parts & MOE_FINISH_IDENTITY);
    const bool bias = plan.layout.down_bias_in_finish() && (args.parts & MOE_FINISH_DOWN_BIAS);
    const bool shared = layer.shared_intermediate > 0 && (args.parts & MOE_FINISH_SHARED);
    require(!layer.latent || !(args.routed || bias) || (args.parts & MOE_FINISH_LATENT),
            "{} [T, {}] of a latent: parts must have MOE_FINISH_LATENT",
            args.routed ? "routed is" : "DOWN_BIAS gives", layer.latent);
    // Nothing to project. With a down bias there is: the biases alone.
    if (layer.latent && !args.routed && !bias) args.parts &= ~uint32_t{MOE_FINISH_LATENT};
    check_optional_rows(args.routed, plan.out_type, "routed", args.routed_row_stride,
                        layer.expert_width(), args.n_tokens, "routed_row_stride");
    check_x(plan, args, shared || identity);
    check_ids(plan, args, bias || identity);
    check_weights(plan, args, bias || identity, true, MOE_TYPE_F32);
    check_pointer(args.out, some, "out");
    require(!layer.latent || !args.routed || args.out != args.routed,
            "out is routed, which a layer with a latent does not allow");
    check_aligned(args.out, plan.out_type, "out");
    check_stride(args.out_row_stride, layer.hidden, args.n_tokens, "out_row_stride");
    check_apart({args.x, args.x_row_stride, layer.hidden, plan.x_type, args.n_tokens},
                {args.out, args.out_row_stride, layer.hidden, plan.out_type, args.n_tokens});
    if (!(shared || identity)) args.x = nullptr;
    return args;
}

}  // namespace moe
