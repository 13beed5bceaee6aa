// Written by bench/fit_costs.py from bench/results/h200.json of commit a36fc0f and
// study-few.json of 874211e. cost.hpp says what the numbers are.
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
    {Family::one_token, PackedType::bf16, {3.836, 1.009, 0.6779, 0, 0, 0}},
    {Family::one_token, PackedType::e4m3, {3.843, 1.074, 0.5353, 0, 0, 0}},
    {Family::one_token, PackedType::kbit2, {3.436, 2.044, 1.786, 0, 0, 0}},
    {Family::one_token, PackedType::kbit3, {4.074, 1.68, 1.472, 0, 0, 0}},
    {Family::one_token, PackedType::kbit4, {4.207, 1.349, 1.137, 0, 0, 0}},
    {Family::one_token, PackedType::kbit5, {7.469, 1.578, 1.49, 0, 0, 0}},
    {Family::one_token, PackedType::mxfp4, {3.912, 1.14, 0.9399, 0, 0, 0}},
    {Family::one_token, PackedType::nvfp4, {4.044, 1.158, 0.9403, 0, 0, 0}},
    {Family::one_token, PackedType::q4_k, {4.114, 1.154, 0.9153, 0, 0, 0}},
    {Family::one_token, PackedType::q8_0, {4.152, 1.047, 0.5552, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {16.22, 1.011, 0, 1e-09, 0.9774, 0.2101}},
    {Family::grouped, PackedType::e4m3, {19.14, 1.201, 0, 0.01591, 1.205, 0.4129}},
    {Family::grouped, PackedType::kbit2, {19.62, 2.195, 0, 0.03596, 1.167, 0.6957}},
    {Family::grouped, PackedType::kbit3, {20.27, 1.854, 0, 0.06155, 1.186, 0.6913}},
    {Family::grouped, PackedType::kbit4, {18.84, 1.42, 0, 0.1422, 1.259, 0.6259}},
    {Family::grouped, PackedType::kbit5, {22.3, 1.644, 0, 0.1607, 1.369, 0.3897}},
    {Family::grouped, PackedType::mxfp4, {17.83, 1.312, 0, 0.02026, 1.116, 0.7757}},
    {Family::grouped, PackedType::nvfp4, {17.84, 1.257, 0, 0.02368, 1.109, 0.8216}},
    {Family::grouped, PackedType::q4_k, {19.6, 1.447, 0, 0.1905, 1.372, 0.343}},
    {Family::grouped, PackedType::q8_0, {19.19, 1.179, 0, 0.008013, 1.219, 0.5495}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
