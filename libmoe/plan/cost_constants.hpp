// Written by bench/fit_costs.py from bench/results/h200.json of commit 75426d3 and
// study-few.json of 3a8f91b. cost.hpp says what the numbers are.
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
    {Family::one_token, PackedType::bf16, {3.815, 1.008, 0.6799, 0, 0, 0}},
    {Family::one_token, PackedType::e4m3, {3.833, 1.072, 0.5369, 0, 0, 0}},
    {Family::one_token, PackedType::kbit2, {3.269, 1.706, 1.401, 0, 0, 0}},
    {Family::one_token, PackedType::kbit3, {4.097, 1.364, 1.118, 0, 0, 0}},
    {Family::one_token, PackedType::kbit4, {5.826, 1.274, 1.134, 0, 0, 0}},
    {Family::one_token, PackedType::kbit5, {7.362, 1.317, 1.242, 0, 0, 0}},
    {Family::one_token, PackedType::mxfp4, {4.027, 1.137, 0.9647, 0, 0, 0}},
    {Family::one_token, PackedType::nvfp4, {3.755, 1.181, 0.911, 0, 0, 0}},
    {Family::one_token, PackedType::q4_k, {4.352, 1.042, 0.6112, 0, 0, 0}},
    {Family::one_token, PackedType::q8_0, {3.583, 1.022, 0.6506, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {16.12, 1.011, 0, 1e-09, 0.9817, 0.2063}},
    {Family::grouped, PackedType::e4m3, {19, 1.18, 0, 0.01347, 1.191, 0.4988}},
    {Family::grouped, PackedType::kbit2, {19.92, 2.191, 0, 0.0356, 1.145, 0.7342}},
    {Family::grouped, PackedType::kbit3, {20.28, 1.845, 0, 0.06176, 1.187, 0.6617}},
    {Family::grouped, PackedType::kbit4, {18.54, 1.42, 0, 0.116, 1.284, 0.5881}},
    {Family::grouped, PackedType::kbit5, {22, 1.632, 0, 0.163, 1.351, 0.3883}},
    {Family::grouped, PackedType::mxfp4, {18.15, 1.304, 0, 0.01666, 1.113, 0.7466}},
    {Family::grouped, PackedType::nvfp4, {17.97, 1.249, 0, 0.02029, 1.116, 0.7608}},
    {Family::grouped, PackedType::q4_k, {19.8, 1.467, 0, 0.1816, 1.353, 0.3904}},
    {Family::grouped, PackedType::q8_0, {19.23, 1.173, 0, 0.001925, 1.207, 0.4697}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
