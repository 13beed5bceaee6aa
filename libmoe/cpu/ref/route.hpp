// Routing of one token in plain loops: logits in, ids and weights out, all in float32. This is the
// specification that the kernels of every device are held to; its functions and the order of its
// sums are those of layer/routing_math.hpp.
#pragma once

#include <cstdint>

#include "libmoe/layer/layer.hpp"

namespace moe {

struct RouteVectors {
    const float* selection_bias = nullptr;  // [E_all] of the token, or null
    const float* expert_scale = nullptr;    // [n_experts], or null
    int32_t n_experts = 0;                  // ids from here on are identity experts, of scale one
};

// NaN becomes -FLT_MAX, infinities the largest finite values.
void sanitize_logits(float* logits, int64_t n);

// Floats of scratch that route_token needs.
int64_t route_scratch_floats(const Routing& routing);

// Routes one token.
//   logits     [E_all], router and bias applied; left rounded, capped and sanitised as the scores
//   saw them scratch    route_scratch_floats(routing) given_ids  [k], instead of selecting; may be
//   ids itself. Required for hash selection: null gives the token no expert round_to   the type of
//   x for round_logits and round_weights, or NONE ids        [k]; -1 where a given id is -1 or out
//   of range, with weight zero and no part in any sum weights    [k]
// Returns the number of given ids that were out of range, -1 not counted. Neither allocates nor
// keeps anything.
int32_t route_token(const Routing& routing, const RouteVectors& vectors, float* logits,
                    float* scratch, const int32_t* given_ids, moe_type round_to, int32_t* ids,
                    float* weights);

}  // namespace moe
