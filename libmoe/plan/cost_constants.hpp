// Written by bench/fit_costs.py from bench/results/h200.json of commit 61bbd0b6,
// study-small_batch.json of c9c2304, gemv-h200.json of 9c4bcaa5 and formats-h200.json of
// 2c8df27f. cost.hpp says what the numbers are.
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
    {Family::sm90_gemv, PackedType::grid_4, {4.942, 1.087, 0.7557, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::bf16, {3.451, 1.025, 0.695, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::e4m3, {3.777, 1.086, 0.5449, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_e4m3, {4.751, 1.056, 0.7427, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_8, {4.528, 1.073, 0.6446, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq2_xs, {1.735, 2.44, 2.176, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq2_xxs, {0.9389, 2.976, 2.327, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq3_s, {2.916, 2.475, 2.217, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq3_xxs, {4.239, 2.024, 2.082, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq4_nl, {5.317, 1.096, 0.9774, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq4_xs, {4.47, 1.2, 1.069, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit2, {3.81, 1.511, 1.154, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit3, {3.953, 1.259, 0.9365, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit4, {4.466, 1.32, 1.158, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit5, {6.363, 1.365, 1.293, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::mxfp4, {3.893, 1.166, 0.9816, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_codebook, {5.298, 1.256, 1.178, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::nvfp4, {3.773, 1.186, 0.9355, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q2_k, {2.199, 1.726, 1.217, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q3_k, {3.844, 1.295, 1.022, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_0, {4.281, 1, 0.4979, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_1, {4.73, 0.9694, 0.4743, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_k, {4.371, 1.06, 0.6527, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_0, {4.611, 1.006, 0.588, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_1, {4.821, 0.9566, 0.5859, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_k, {4.294, 1.101, 0.6713, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q6_k, {3.817, 1.074, 0.5117, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q8_0, {3.491, 1.034, 0.6581, 0, 0, 0}},
    {Family::grouped, PackedType::grid_4, {26.59, 1.256, 0, 0.006186, 1.169, 0.7145}},
    {Family::grouped, PackedType::bf16, {17.09, 1.005, 0, 1e-09, 0.9265, 0.4583}},
    {Family::grouped, PackedType::e4m3, {19.87, 1.181, 0, 1.003e-09, 1.093, 0.8653}},
    {Family::grouped, PackedType::grid_e4m3, {20.34, 1.135, 0, 0.003443, 1.203, 0.7537}},
    {Family::grouped, PackedType::grid_8, {23.72, 0.9788, 0, 1e-09, 1.16, 0.9312}},
    {Family::grouped, PackedType::iq2_xs, {24.55, 3.305, 0, 1e-09, 1.209, 0.7955}},
    {Family::grouped, PackedType::iq2_xxs, {15.72, 4.627, 0, 1e-09, 1.146, 0.9405}},
    {Family::grouped, PackedType::iq3_s, {20.7, 3.305, 0, 1.024e-09, 1.131, 0.9405}},
    {Family::grouped, PackedType::iq3_xxs, {24.28, 3.118, 0, 1e-09, 1.234, 0.9129}},
    {Family::grouped, PackedType::iq4_nl, {16.17, 1.35, 0, 0.03915, 1.077, 0.9595}},
    {Family::grouped, PackedType::iq4_xs, {19.03, 1.486, 0, 0.04406, 1.202, 0.8065}},
    {Family::grouped, PackedType::kbit2, {19.6, 2.222, 0, 0.01598, 1.032, 0.9929}},
    {Family::grouped, PackedType::kbit3, {20.32, 1.813, 0, 0.04278, 1.052, 0.9036}},
    {Family::grouped, PackedType::kbit4, {18.58, 1.451, 0, 0.1172, 1.145, 0.8229}},
    {Family::grouped, PackedType::kbit5, {21.86, 1.672, 0, 0.1426, 1.201, 0.6136}},
    {Family::grouped, PackedType::mxfp4, {17.93, 1.341, 0, 1.016e-09, 0.9995, 1.144}},
    {Family::grouped, PackedType::grid_codebook, {26.03, 1.563, 0, 0.0003255, 1.348, 0.8388}},
    {Family::grouped, PackedType::nvfp4, {17.93, 1.285, 0, 0.002668, 1.008, 0.9276}},
    {Family::grouped, PackedType::q2_k, {15.54, 2.751, 0, 1e-09, 1.083, 0.9405}},
    {Family::grouped, PackedType::q3_k, {19.56, 1.994, 0, 1e-09, 1.093, 0.9405}},
    {Family::grouped, PackedType::q4_0, {12.91, 1.243, 0, 0.06497, 1.082, 0.6884}},
    {Family::grouped, PackedType::q4_1, {16.4, 1.317, 0, 0.01218, 1.073, 0.9439}},
    {Family::grouped, PackedType::q4_k, {18.94, 1.535, 0, 0.03119, 1.165, 0.6902}},
    {Family::grouped, PackedType::q5_0, {18.01, 1.17, 0, 0.03733, 1.067, 0.9405}},
    {Family::grouped, PackedType::q5_1, {23.29, 1.175, 0, 0.04527, 1.087, 0.9405}},
    {Family::grouped, PackedType::q5_k, {19.53, 1.39, 0, 0.03011, 1.261, 0.5465}},
    {Family::grouped, PackedType::q6_k, {21.54, 1.185, 0, 1e-09, 1.244, 0.8463}},
    {Family::grouped, PackedType::q8_0, {21.22, 1.131, 0, 1e-09, 1.09, 0.8889}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
