// Written by bench/fit_costs.py from bench/results/h200.json. cost.hpp says what the numbers are.
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
    {Family::one_token, PackedType::bf16, {4.086, 1.003, 0, 0, 0}},
    {Family::one_token, PackedType::e4m3, {3.443, 1.219, 0, 0, 0}},
    {Family::one_token, PackedType::kbit2, {1.165, 2.601, 0, 0, 0}},
    {Family::one_token, PackedType::kbit3, {1.544, 2.358, 0, 0, 0}},
    {Family::one_token, PackedType::kbit4, {5.5, 1.8, 0, 0, 0}},
    {Family::one_token, PackedType::mxfp4, {3.917, 1.216, 0, 0, 0}},
    {Family::one_token, PackedType::nvfp4, {4.048, 1.19, 0, 0, 0}},
    {Family::one_token, PackedType::q4_k, {2.848, 1.397, 0, 0, 0}},
    {Family::one_token, PackedType::q8_0, {3.883, 1.124, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {20.98, 0.9951, 1e-09, 0.9184, 0.2996}},
    {Family::grouped, PackedType::e4m3, {16.48, 1.195, 0.02862, 1.173, 0.4644}},
    {Family::grouped, PackedType::kbit2, {20.91, 2.519, 0.007053, 1.193, 0.4111}},
    {Family::grouped, PackedType::kbit3, {24.1, 2.16, 0.02895, 1.194, 0.7124}},
    {Family::grouped, PackedType::kbit4, {19.33, 1.537, 0.1275, 1.318, 0.2145}},
    {Family::grouped, PackedType::mxfp4, {16.66, 1.329, 0.01502, 1.121, 0.6077}},
    {Family::grouped, PackedType::nvfp4, {16.21, 1.283, 0.009183, 1.149, 0.6463}},
    {Family::grouped, PackedType::q4_k, {22.28, 1.702, 0.148, 1.268, 0.7988}},
    {Family::grouped, PackedType::q8_0, {15.13, 1.169, 0.02007, 1.181, 0.5817}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "dsv3", "gpt-oss-120b"};

}  // namespace moe
