// Written by bench/fit_costs.py from bench/results/h200.json of commit ad79cf1 and
// study-small_batch.json of c9c2304. cost.hpp says what the numbers are.
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
    {Family::sm90_gemv, PackedType::bf16, {3.82, 1.01, 0.6781, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::e4m3, {3.899, 1.075, 0.5364, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit2, {3.908, 1.477, 1.143, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit3, {4.146, 1.234, 0.9268, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit4, {4.556, 1.293, 1.117, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit5, {6.668, 1.336, 1.245, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::mxfp4, {4.122, 1.138, 0.9489, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::nvfp4, {3.961, 1.165, 0.9158, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_k, {4.409, 1.039, 0.6402, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q8_0, {3.586, 1.024, 0.651, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {16.53, 1.012, 0, 1e-09, 0.982, 0.112}},
    {Family::grouped, PackedType::e4m3, {18.85, 1.206, 0, 0.01401, 1.207, 0.5144}},
    {Family::grouped, PackedType::kbit2, {20.22, 2.18, 0, 0.03839, 1.14, 0.7853}},
    {Family::grouped, PackedType::kbit3, {19.88, 1.827, 0, 0.06413, 1.17, 0.6935}},
    {Family::grouped, PackedType::kbit4, {18.66, 1.429, 0, 0.1244, 1.254, 0.7226}},
    {Family::grouped, PackedType::kbit5, {21.81, 1.653, 0, 0.1616, 1.348, 0.4047}},
    {Family::grouped, PackedType::mxfp4, {17.98, 1.312, 0, 0.02053, 1.105, 0.6499}},
    {Family::grouped, PackedType::nvfp4, {17.88, 1.261, 0, 0.01826, 1.113, 0.8644}},
    {Family::grouped, PackedType::q4_k, {19.34, 1.485, 0, 0.174, 1.354, 0.4342}},
    {Family::grouped, PackedType::q8_0, {19.34, 1.176, 0, 0.007879, 1.208, 0.5431}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
