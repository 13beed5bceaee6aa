// Written by bench/fit_costs.py from bench/results/h200.json of commit 6f4bffd9,
// study-small_batch.json of c9c2304, gemv-h200.json of f06fc106 and formats-h200.json of
// 57fec70d. cost.hpp says what the numbers are.
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
    {Family::sm90_gemv, PackedType::grid_4, {4.96, 1.088, 0.7463, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::bf16, {3.413, 1.027, 0.6972, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::e4m3, {3.751, 1.088, 0.5467, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_e4m3, {4.562, 1.076, 0.6489, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_8, {4.621, 1.067, 0.621, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq2_xs, {0.5, 2.35, 2.1, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq2_xxs, {0.5, 2.6, 2.4, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq3_s, {1.0, 2.45, 2.35, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq3_xxs, {1.0, 2.05, 1.95, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq4_nl, {5.297, 1.104, 0.9302, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::iq4_xs, {4.241, 1.215, 1.076, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit2, {3.868, 1.503, 1.142, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit3, {4.037, 1.252, 0.9184, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit4, {4.526, 1.313, 1.15, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::kbit5, {6.432, 1.359, 1.28, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::mxfp4, {3.99, 1.157, 0.9648, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::grid_codebook, {7.679, 1.255, 1.094, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::nvfp4, {3.89, 1.175, 0.9206, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q2_k, {2.144, 1.768, 1.276, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q3_k, {3.642, 1.338, 1.08, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_0, {4.159, 1.022, 0.4078, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_1, {4.55, 1.002, 0.4231, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q4_k, {4.462, 1.05, 0.6455, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_0, {4.62, 1.006, 0.4995, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_1, {4.582, 1.001, 0.4848, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q5_k, {4.503, 1.104, 0.7175, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q6_k, {3.974, 1.069, 0.5168, 0, 0, 0}},
    {Family::sm90_gemv, PackedType::q8_0, {3.456, 1.036, 0.6607, 0, 0, 0}},
    {Family::grouped, PackedType::grid_4, {25.8, 1.252, 0, 0.005422, 1.18, 1.093}},
    {Family::grouped, PackedType::bf16, {16.8, 1.009, 0, 1e-09, 0.9702, 0.3574}},
    {Family::grouped, PackedType::e4m3, {20.01, 1.164, 0, 1e-09, 1.18, 0.9158}},
    {Family::grouped, PackedType::grid_e4m3, {20.83, 1.129, 0, 1e-09, 1.187, 0.9995}},
    {Family::grouped, PackedType::grid_8, {23.31, 0.9691, 0, 1e-09, 1.161, 0.9939}},
    {Family::grouped, PackedType::iq2_xs, {20.6, 3.476, 0, 1e-09, 1.18, 1.175}},
    {Family::grouped, PackedType::iq2_xxs, {16.31, 4.607, 0, 1e-09, 1.243, 0.9595}},
    {Family::grouped, PackedType::iq3_s, {21.06, 3.379, 0, 1e-09, 1.349, 0.9595}},
    {Family::grouped, PackedType::iq3_xxs, {22.07, 3.327, 0, 1e-09, 1.294, 1.121}},
    {Family::grouped, PackedType::iq4_nl, {21.69, 1.899, 0, 1e-09, 1.233, 0.9595}},
    {Family::grouped, PackedType::iq4_xs, {19.6, 2.288, 0, 1e-09, 1.268, 0.9236}},
    {Family::grouped, PackedType::kbit2, {19.76, 2.229, 0, 0.01304, 1.105, 1.073}},
    {Family::grouped, PackedType::kbit3, {20.22, 1.825, 0, 0.03488, 1.131, 0.9572}},
    {Family::grouped, PackedType::kbit4, {18.57, 1.446, 0, 0.1098, 1.244, 0.9092}},
    {Family::grouped, PackedType::kbit5, {21.9, 1.668, 0, 0.1446, 1.361, 0.5725}},
    {Family::grouped, PackedType::mxfp4, {17.99, 1.336, 0, 1e-09, 1.071, 1.118}},
    {Family::grouped, PackedType::grid_codebook, {27.38, 1.548, 0, 1e-09, 1.347, 1.046}},
    {Family::grouped, PackedType::nvfp4, {18.02, 1.275, 0, 1.018e-09, 1.076, 1.105}},
    {Family::grouped, PackedType::q2_k, {17.83, 2.606, 0, 1e-09, 1.249, 0.9595}},
    {Family::grouped, PackedType::q3_k, {17.87, 2.098, 0, 1e-09, 1.18, 0.9595}},
    {Family::grouped, PackedType::q4_0, {13.41, 1.244, 0, 0.05968, 1.092, 0.7493}},
    {Family::grouped, PackedType::q4_1, {18.24, 1.292, 0, 0.0005594, 1.142, 0.9595}},
    {Family::grouped, PackedType::q4_k, {19.04, 1.519, 0, 0.04702, 1.27, 0.5446}},
    {Family::grouped, PackedType::q5_0, {21.45, 1.126, 0, 0.03219, 1.167, 0.9405}},
    {Family::grouped, PackedType::q5_1, {21.94, 1.221, 0, 0.01745, 1.209, 0.9405}},
    {Family::grouped, PackedType::q5_k, {18.22, 1.557, 0, 1e-09, 1.247, 1.029}},
    {Family::grouped, PackedType::q6_k, {15.68, 1.237, 0, 1e-09, 1.261, 1.415}},
    {Family::grouped, PackedType::q8_0, {21.38, 1.12, 0, 1e-09, 1.168, 0.8799}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "mixtral", "dsv3"};

}  // namespace moe
