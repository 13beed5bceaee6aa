// Written by bench/fit_costs.py from bench/results/h200.json of commit 6f4bffd9 and
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
    {Family::sm90_gemv, PackedType::bf16, {3.816, 1.01, 0.6782, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::e4m3, {3.966, 1.075, 0.5366, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit2, {3.973, 1.473, 1.145, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit3, {4.079, 1.242, 0.9217, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit4, {4.727, 1.292, 1.117, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit5, {6.68, 1.336, 1.247, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::mxfp4, {4.127, 1.141, 0.9467, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::nvfp4, {3.955, 1.168, 0.9135, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_k, {4.585, 1.041, 0.6363, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q8_0, {3.646, 1.024, 0.6506, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {16.8, 1.009, 0, 1e-09, 0.9702, 0.3574}},
    {Family::grouped, PackedType::e4m3, {20.01, 1.164, 0, 1e-09, 1.18, 0.9158}},
    {Family::grouped, PackedType::kbit2, {19.76, 2.229, 0, 0.01304, 1.105, 1.073}},
    {Family::grouped, PackedType::kbit3, {20.22, 1.825, 0, 0.03488, 1.131, 0.9572}},
    {Family::grouped, PackedType::kbit4, {18.57, 1.446, 0, 0.1098, 1.244, 0.9092}},
    {Family::grouped, PackedType::kbit5, {21.9, 1.668, 0, 0.1446, 1.361, 0.5725}},
    {Family::grouped, PackedType::mxfp4, {17.99, 1.336, 0, 1e-09, 1.071, 1.118}},
    {Family::grouped, PackedType::nvfp4, {18.02, 1.275, 0, 1.018e-09, 1.076, 1.105}},
    {Family::grouped, PackedType::q4_k, {19.04, 1.519, 0, 0.04702, 1.27, 0.5446}},
    {Family::grouped, PackedType::q8_0, {21.38, 1.12, 0, 1e-09, 1.168, 0.8799}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
