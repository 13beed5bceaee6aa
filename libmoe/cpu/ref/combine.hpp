// Combine and the per-token parts of finish, for one token: plain loops in slot order.
#pragma once

#include "libmoe/layer/layer.hpp"

namespace moe::cpu {

// out[n] = sum_j w_j rows_j[n], j ascending; with the weight on the input the sum is plain. A slot
// without a row (null) adds nothing.
template <class Real>
void combine_token(const Layer& layer, const Real* const* rows, const float* weights, int64_t n,
                   Real* out);

// out[n] += sum_j w_j x[n] over the identity experts among ids.
template <class Real>
void add_identity_experts(const Layer& layer, const int32_t* ids, const float* weights,
                          const Real* x, int64_t n, Real* out);

// out += sum_j w_j bias[id_j], bias [E, width].
template <class Real>
void add_down_bias(const Layer& layer, const float* bias, const int32_t* ids, const float* weights,
                   Real* out);

// v = v / rms(v) * weight; weight may be null.
template <class Real>
void rms_normalize(Real* v, int64_t n, float eps, const float* weight);

// The norm of an expert's output of n values; weight [n] comes before or after it.
template <class Real>
void normalize_expert_row(const Layer& layer, const float* weight, int64_t n, Real* row);

}  // namespace moe::cpu
