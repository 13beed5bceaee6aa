// Written by bench/fit_costs.py from bench/results/h200.json of commit f530894 and
// study-few.json of f530894. cost.hpp says what the numbers are.
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
    {Family::one_token, PackedType::bf16, {3.666, 1.01, 0.657, 0, 0, 0}},
    {Family::one_token, PackedType::e4m3, {3.88, 1.063, 0.5788, 0, 0, 0}},
    {Family::one_token, PackedType::kbit2, {3.451, 1.99, 1.652, 0, 0, 0}},
    {Family::one_token, PackedType::kbit3, {3.747, 1.679, 1.457, 0, 0, 0}},
    {Family::one_token, PackedType::kbit4, {3.799, 1.371, 1.095, 0, 0, 0}},
    {Family::one_token, PackedType::kbit5, {7.141, 1.593, 1.422, 0, 0, 0}},
    {Family::one_token, PackedType::mxfp4, {3.542, 1.181, 0.9418, 0, 0, 0}},
    {Family::one_token, PackedType::nvfp4, {3.663, 1.199, 0.8982, 0, 0, 0}},
    {Family::one_token, PackedType::q4_k, {3.738, 1.199, 0.9079, 0, 0, 0}},
    {Family::one_token, PackedType::q8_0, {3.857, 1.06, 0.559, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {15.82, 1.011, 0, 1e-09, 0.9885, 0.1605}},
    {Family::grouped, PackedType::e4m3, {17.97, 1.243, 0, 0.002913, 1.224, 0.5694}},
    {Family::grouped, PackedType::kbit2, {19.34, 2.172, 0, 0.03657, 1.166, 0.8094}},
    {Family::grouped, PackedType::kbit3, {19.79, 1.855, 0, 0.06347, 1.203, 0.6098}},
    {Family::grouped, PackedType::kbit4, {17.59, 1.455, 0, 0.1176, 1.302, 0.6372}},
    {Family::grouped, PackedType::kbit5, {21.14, 1.672, 0, 0.1569, 1.387, 0.319}},
    {Family::grouped, PackedType::mxfp4, {17.1, 1.343, 0, 0.01686, 1.12, 0.7687}},
    {Family::grouped, PackedType::nvfp4, {17.08, 1.282, 0, 0.02107, 1.127, 0.7664}},
    {Family::grouped, PackedType::q4_k, {19.06, 1.489, 0, 0.1743, 1.374, 0.4937}},
    {Family::grouped, PackedType::q8_0, {18.41, 1.214, 0, 1e-09, 1.222, 0.4945}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
