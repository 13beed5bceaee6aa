// Written by bench/fit_costs.py from bench/results/h200.json of commit 61bbd0b6,
// study-small_batch.json of c9c2304, gemv-h200.json of 9c4bcaa5 and formats-h200.json of
// 9c4bcaa5. cost.hpp says what the numbers are.
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
    {Family::sm90_gemv, PackedType::grid_4, {4.926, 1.088, 0.7631, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::bf16, {3.451, 1.025, 0.695, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::e4m3, {3.777, 1.086, 0.5449, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_e4m3, {4.768, 1.06, 0.7388, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_8, {4.568, 1.074, 0.6435, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq2_xs, {1.836, 2.472, 2.118, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq2_xxs, {0.9916, 2.973, 2.322, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq3_s, {3.25, 2.468, 2.217, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq3_xxs, {4.433, 2.011, 2.093, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq4_nl, {5.378, 1.097, 0.97, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq4_xs, {4.213, 1.223, 1.039, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit2, {3.81, 1.511, 1.154, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit3, {3.953, 1.259, 0.9365, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit4, {4.466, 1.32, 1.158, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit5, {6.363, 1.365, 1.293, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::mxfp4, {3.893, 1.166, 0.9816, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_codebook, {7.712, 1.263, 1.121, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::nvfp4, {3.773, 1.186, 0.9355, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q2_k, {2.216, 1.728, 1.213, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q3_k, {3.668, 1.303, 1.021, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_0, {4.251, 1.006, 0.4938, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_1, {4.838, 0.9717, 0.4705, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_k, {4.371, 1.06, 0.6527, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_0, {4.73, 0.9979, 0.5784, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_1, {4.806, 0.9601, 0.5833, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_k, {4.41, 1.105, 0.6665, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q6_k, {3.792, 1.081, 0.5038, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q8_0, {3.491, 1.034, 0.6581, 0, 0, 0}},
    {Family::grouped, PackedType::grid_4, {25.53, 1.276, 0, 0.01335, 1.174, 0.7198}},
    {Family::grouped, PackedType::bf16, {17.09, 1.005, 0, 1e-09, 0.9265, 0.4583}},
    {Family::grouped, PackedType::e4m3, {19.87, 1.181, 0, 1.003e-09, 1.093, 0.8653}},
    {Family::grouped, PackedType::grid_e4m3, {19.3, 1.152, 0, 1.684e-09, 1.226, 0.8316}},
    {Family::grouped, PackedType::grid_8, {23.71, 0.9808, 0, 1e-09, 1.181, 0.8085}},
    {Family::grouped, PackedType::iq2_xs, {20.09, 3.54, 0, 1e-09, 1.21, 0.6748}},
    {Family::grouped, PackedType::iq2_xxs, {15.18, 4.656, 0, 1e-09, 1.174, 0.9405}},
    {Family::grouped, PackedType::iq3_s, {20.43, 3.315, 0, 1e-09, 1.176, 0.9564}},
    {Family::grouped, PackedType::iq3_xxs, {24, 3.138, 0, 1e-09, 1.265, 0.7047}},
    {Family::grouped, PackedType::iq4_nl, {15.69, 1.359, 0, 0.04038, 1.088, 0.9595}},
    {Family::grouped, PackedType::iq4_xs, {20, 1.455, 0, 0.05274, 1.207, 0.704}},
    {Family::grouped, PackedType::kbit2, {19.6, 2.222, 0, 0.01598, 1.032, 0.9929}},
    {Family::grouped, PackedType::kbit3, {20.32, 1.813, 0, 0.04278, 1.052, 0.9036}},
    {Family::grouped, PackedType::kbit4, {18.58, 1.451, 0, 0.1172, 1.145, 0.8229}},
    {Family::grouped, PackedType::kbit5, {21.86, 1.672, 0, 0.1426, 1.201, 0.6136}},
    {Family::grouped, PackedType::mxfp4, {17.93, 1.341, 0, 1.016e-09, 0.9995, 1.144}},
    {Family::grouped, PackedType::grid_codebook, {25.25, 1.585, 0, 1e-09, 1.358, 0.686}},
    {Family::grouped, PackedType::nvfp4, {17.93, 1.285, 0, 0.002668, 1.008, 0.9276}},
    {Family::grouped, PackedType::q2_k, {15.44, 2.755, 0, 1e-09, 1.109, 0.9405}},
    {Family::grouped, PackedType::q3_k, {16.33, 2.111, 0, 1e-09, 1.121, 0.9405}},
    {Family::grouped, PackedType::q4_0, {12.55, 1.257, 0, 0.06491, 1.077, 0.6299}},
    {Family::grouped, PackedType::q4_1, {15.91, 1.33, 0, 0.01797, 1.068, 0.9595}},
    {Family::grouped, PackedType::q4_k, {18.94, 1.535, 0, 0.03119, 1.165, 0.6902}},
    {Family::grouped, PackedType::q5_0, {18.42, 1.161, 0, 0.05953, 1.088, 0.9595}},
    {Family::grouped, PackedType::q5_1, {19.01, 1.267, 0, 0.04801, 1.083, 0.9556}},
    {Family::grouped, PackedType::q5_k, {11.97, 1.557, 0, 0.02835, 1.256, 0.7145}},
    {Family::grouped, PackedType::q6_k, {18.04, 1.262, 0, 1e-09, 1.248, 0.9235}},
    {Family::grouped, PackedType::q8_0, {21.22, 1.131, 0, 1e-09, 1.09, 0.8889}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
