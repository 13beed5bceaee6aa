// Written by bench/fit_costs.py from bench/results/h200.json of commit f5f2e73,
// study-few.json of 25e421b and study-bits.json of 0e923e2. cost.hpp says what the
// numbers are.
#pragma once

#include "libmoe/plan/cost.hpp"

namespace moe {

struct KernelCost {
    cuda::Family family;
    PackedType type;
    CostConstants constants;
};

using cuda::Family;
inline constexpr KernelCost kernel_costs[] = {
    {Family::one_token, PackedType::bf16, {3.796, 1.01, 0.6763, 0, 0, 0}},
    {Family::one_token, PackedType::e4m3, {3.846, 1.076, 0.5303, 0, 0, 0}},
    {Family::one_token, PackedType::kbit2, {3.351, 2.047, 1.784, 0, 0, 0}},
    {Family::one_token, PackedType::kbit3, {4.088, 1.667, 1.475, 0, 0, 0}},
    {Family::one_token, PackedType::kbit4, {4.976, 1.324, 1.12, 0, 0, 0}},
    {Family::one_token, PackedType::kbit5, {7.406, 1.575, 1.493, 0, 0, 0}},
    {Family::one_token, PackedType::mxfp4, {3.79, 1.151, 0.9447, 0, 0, 0}},
    {Family::one_token, PackedType::nvfp4, {4.003, 1.15, 0.9404, 0, 0, 0}},
    {Family::one_token, PackedType::q4_k, {4.008, 1.283, 1.109, 0, 0, 0}},
    {Family::one_token, PackedType::q8_0, {4.126, 1.052, 0.5494, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {16.04, 1.012, 0, 1e-09, 0.9436, 0.2995}},
    {Family::grouped, PackedType::e4m3, {19.51, 1.168, 0, 0.01444, 1.21, 0.5795}},
    {Family::grouped, PackedType::kbit2, {20.14, 2.181, 0, 0.04076, 1.131, 0.7623}},
    {Family::grouped, PackedType::kbit3, {20.47, 1.832, 0, 0.06803, 1.153, 0.8575}},
    {Family::grouped, PackedType::kbit4, {18.62, 1.42, 0, 0.1404, 1.257, 0.5932}},
    {Family::grouped, PackedType::kbit5, {22.1, 1.606, 0, 0.1605, 1.344, 1.595}},
    {Family::grouped, PackedType::mxfp4, {18.33, 1.287, 0, 0.01903, 1.127, 0.7709}},
    {Family::grouped, PackedType::nvfp4, {17.92, 1.247, 0, 0.01411, 1.135, 0.6617}},
    {Family::grouped, PackedType::q4_k, {21.93, 1.72, 0, 0.1634, 1.365, 0.4382}},
    {Family::grouped, PackedType::q8_0, {19.67, 1.149, 0, 1e-09, 1.223, 0.4877}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
