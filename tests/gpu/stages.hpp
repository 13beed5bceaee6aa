// The stages called one by one with host values, on either side.
#pragma once

#include "side.hpp"

namespace moe_gpu {

struct Route {
    int64_t n_tokens = 0;
    moe_routing routing = MOE_ROUTING_COMPUTE;
    Floats x, router_input, logits;
    Ids ids, token_ids;
    std::vector<int32_t> uses_second_bias = {};
    std::optional<int32_t> n_tokens_device = std::nullopt;
    bool wants_logits = true;
};
struct Routed {
    std::vector<int32_t> ids;
    Floats weights, logits;
};
Routed route(const Side& side, const Route& call);

struct Dispatch {
    int64_t n_tokens = 0;
    Ids ids;
    int32_t block_rows = 0;
    std::vector<int32_t> expert_map = {};
    int32_t n_local = 0;
    moe_type ids_type = MOE_TYPE_I32;
    std::optional<int32_t> n_tokens_device = std::nullopt;
    bool wants_row_ids = true;
};
struct Dispatched {
    Ids offsets, counts;
    std::vector<int32_t> row_ids;  // offsets.back() of them, none if they are not wanted
    bool operator==(const Dispatched&) const = default;
};
Dispatched dispatch(const Side& side, const Dispatch& call);

struct Gather {
    int64_t n_tokens = 0;
    Floats x;  // [T, H]
    Ids offsets, counts;
    std::vector<int32_t> row_ids;
    Floats weights;
};
struct Gathered {
    Floats rows;  // NaN where the call leaves them alone
    std::vector<int32_t> tokens;
    Floats weights;
};
Gathered gather(const Side& side, const Gather& call);

struct Experts {
    moe_in_layout in = MOE_IN_TOKENS;
    moe_out_layout out = MOE_OUT_REDUCED;
    bool stops_before_activation = false;
    int64_t n_tokens = 0;
    Floats x;         // [rows, columns]; values, if the plan's x is E4M3
    Floats x_scales;  // of E4M3 x, by row as x
    int64_t x_columns = 0;
    Place x_place, x_scales_place;
    bool x_is_latent = false;
    Ids ids;
    Floats weights, row_weights;
    Ids offsets, counts;
    std::vector<int32_t> row_ids;
    int64_t n_rows = 0, batch_capacity = 0;
    int64_t out_rows = 0, out_columns = 0;  // out_rows is T with output by token
    int poison = 0xFF;                      // of the workspace before the call
    Floats base;
};
// Rows that the call leaves alone come back as NaN.
Floats experts(const Side& side, const Experts& call);

struct Combine {
    moe_in_layout layout = MOE_IN_TOKENS;
    int64_t n_tokens = 0;
    Floats rows, weights, x, base;
    std::vector<int32_t> row_ids;
    Ids ids;
};
Floats combine(const Side& side, const Combine& call);

struct Finish {
    uint32_t parts = 0;
    int64_t n_tokens = 0;
    Floats routed, x, weights, base;
    Ids ids;
};
Floats finish(const Side& side, const Finish& call);

}  // namespace moe_gpu
