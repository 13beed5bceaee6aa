// Values and plans of E4M3 x.
#include "e4m3_x.hpp"

#include <algorithm>
#include <cmath>

namespace moe_gpu {

double rounded_to_e4m3(double value) {
    const double size = std::min(std::fabs(value), 448.0);
    const double step = std::ldexp(1.0, std::max(size > 0 ? std::ilogb(size) : -6, -6) - 3);
    return std::copysign(std::nearbyint(size / step) * step, value);
}

Floats take_codes(Floats& x, int64_t n_columns, bool exact) {
    const int64_t of_row = (n_columns + 127) / 128;
    Floats scales(x.size() / static_cast<size_t>(n_columns) * static_cast<size_t>(of_row));
    for (size_t b = 0; b < scales.size(); ++b) {
        const auto exponent = -static_cast<int>(6 + b % 5);
        scales[b] = exact ? std::ldexp(1.0f, exponent)
                          : std::ldexp(1.0f + static_cast<float>(b % 64) / 64, exponent);
    }
    for (size_t i = 0; i < x.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / n_columns,
                   column = static_cast<int64_t>(i) % n_columns;
        const float scale = scales[static_cast<size_t>(row * of_row + column / 128)];
        const double code = exact && column % 128 == row % 16 ? 448 : rounded_to_e4m3(60 * x[i]);
        x[i] = static_cast<float>(code) * scale;
    }
    return scales;
}

void ask_for_e4m3(moe_plan_desc& plan) {
    plan.activation_quantization = MOE_ACTIVATION_QUANTIZATION_FP8;
}

void take_e4m3(moe_plan_desc& plan) {
    plan.x_type = MOE_TYPE_F8_E4M3;
}

PairSpec with_codes(PairSpec spec) {
    spec.subject = [with = spec.subject](moe_plan_desc& plan) {
        if (with) with(plan);
        take_e4m3(plan);
    };
    return spec;
}

}  // namespace moe_gpu
