// Written by bench/fit_costs.py from bench/results/h200.json of commit 0e923e2. cost.hpp says what
// the numbers are.
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
    {Family::one_token, PackedType::bf16, {4.152, 0.9987, 0, 0, 0}},
    {Family::one_token, PackedType::e4m3, {4.076, 1.159, 0, 0, 0}},
    {Family::one_token, PackedType::kbit2, {1.598, 2.49, 0, 0, 0}},
    {Family::one_token, PackedType::kbit3, {2.507, 2.201, 0, 0, 0}},
    {Family::one_token, PackedType::kbit4, {6.199, 1.866, 0, 0, 0}},
    {Family::one_token, PackedType::mxfp4, {3.68, 1.229, 0, 0, 0}},
    {Family::one_token, PackedType::nvfp4, {3.679, 1.215, 0, 0, 0}},
    {Family::one_token, PackedType::q4_k, {3.12, 1.34, 0, 0, 0}},
    {Family::one_token, PackedType::q8_0, {3.46, 1.135, 0, 0, 0}},
    {Family::grouped, PackedType::bf16, {22.43, 0.9946, 1e-09, 0.9518, 0.1931}},
    {Family::grouped, PackedType::e4m3, {12.09, 1.25, 0.02437, 1.231, 0.4291}},
    {Family::grouped, PackedType::kbit2, {24.26, 2.077, 0.0355, 1.142, 0.8512}},
    {Family::grouped, PackedType::kbit3, {22.24, 2.079, 0.02988, 1.24, 0.6436}},
    {Family::grouped, PackedType::kbit4, {16.65, 1.459, 0.1353, 1.294, 0.4684}},
    {Family::grouped, PackedType::mxfp4, {14.79, 1.359, 0.01675, 1.113, 0.7952}},
    {Family::grouped, PackedType::nvfp4, {13.01, 1.342, 0.007914, 1.146, 0.7078}},
    {Family::grouped, PackedType::q4_k, {18.95, 1.769, 0.1299, 1.284, 0.8608}},
    {Family::grouped, PackedType::q8_0, {10.38, 1.225, 0.01959, 1.218, 0.3851}},
};

// The models whose cases were fitted.
inline constexpr const char* fitted_models[] = {"qwen3next", "dsv3", "gpt-oss-120b"};

}  // namespace moe
