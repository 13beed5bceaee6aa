// Written by bench/fit_costs.py from bench/results/h200.json of commit d0fa1d7 and
// study-few.json of 25e421b. cost.hpp says what the numbers are.
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
    {Family::grouped, PackedType::bf16, {16.04, 1.012, 0, 1e-09, 0.99, 0.1731}},
    {Family::grouped, PackedType::e4m3, {18.55, 1.211, 0, 0.01173, 1.22, 0.6532}},
    {Family::grouped, PackedType::kbit2, {19.72, 2.202, 0, 0.03528, 1.169, 0.7592}},
    {Family::grouped, PackedType::kbit3, {19.97, 1.855, 0, 0.06141, 1.198, 0.7292}},
    {Family::grouped, PackedType::kbit4, {18.62, 1.418, 0, 0.1418, 1.273, 0.5941}},
    {Family::grouped, PackedType::kbit5, {21.6, 1.645, 0, 0.1628, 1.394, 0.2562}},
    {Family::grouped, PackedType::mxfp4, {18.11, 1.297, 0, 0.02462, 1.112, 0.8826}},
    {Family::grouped, PackedType::nvfp4, {17.58, 1.262, 0, 0.02306, 1.123, 0.881}},
    {Family::grouped, PackedType::q4_k, {21.64, 1.732, 0, 0.1563, 1.374, 0.3451}},
    {Family::grouped, PackedType::q8_0, {19.14, 1.176, 0, 0.01318, 1.223, 0.5263}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
