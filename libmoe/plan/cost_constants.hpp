// Written by bench/fit_costs.py from bench/results/h200.json of commit d0fa1d7 and
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
    {Family::grouped, PackedType::bf16, {16.22, 1.011, 0, 1e-09, 0.9901, 0.1733}},
    {Family::grouped, PackedType::e4m3, {19.03, 1.204, 0, 0.01305, 1.22, 0.6554}},
    {Family::grouped, PackedType::kbit2, {19.54, 2.199, 0, 0.03597, 1.169, 0.7577}},
    {Family::grouped, PackedType::kbit3, {20.15, 1.86, 0, 0.06076, 1.199, 0.7277}},
    {Family::grouped, PackedType::kbit4, {18.87, 1.42, 0, 0.1422, 1.273, 0.5889}},
    {Family::grouped, PackedType::kbit5, {22.22, 1.647, 0, 0.1619, 1.394, 0.2541}},
    {Family::grouped, PackedType::mxfp4, {17.88, 1.31, 0, 0.02257, 1.112, 0.884}},
    {Family::grouped, PackedType::nvfp4, {17.74, 1.263, 0, 0.02285, 1.123, 0.8801}},
    {Family::grouped, PackedType::q4_k, {18.37, 1.515, 0, 0.1883, 1.367, 0.3743}},
    {Family::grouped, PackedType::q8_0, {19.15, 1.18, 0, 0.01195, 1.223, 0.5261}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
