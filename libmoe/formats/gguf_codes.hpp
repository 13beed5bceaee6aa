// What ggml's blocks share when they are written: a scale as it will be read, codes as whole steps
// of it, and how large a step is.
#pragma once

#include "libmoe/formats/gguf_block.hpp"

namespace moe {

inline float load_f16(const std::byte* address) {
    return f16_to_float(load<uint16_t>(address));
}

// Stores the finite f16 nearest to value and returns what it decodes to.
inline float store_f16(float value, std::byte* address) {
    const uint16_t code = float_to_f16(std::clamp(value, -65504.0f, 65504.0f));
    store(address, code);
    return f16_to_float(code);
}

// value / unit as a whole number of [least, most], halves away from zero; 0 when there is no unit.
template <class Real>
int steps(Real value, Real unit, int least, int most) {
    if (unit == 0) return 0;
    const Real whole = std::round(value / unit);
    return static_cast<int>(std::clamp(whole, static_cast<Real>(least), static_cast<Real>(most)));
}

// The first of the values whose magnitude is largest, with its sign.
inline float signed_extreme(const float* values, int count) {
    return *std::max_element(values, values + count,
                             [](float a, float b) { return std::abs(a) < std::abs(b); });
}

// A step, of either sign, whose code -most is the extreme of the values.
inline float extreme_step(const float* values, int count, int most) {
    return 0.0f - signed_extreme(values, count) / static_cast<float>(most);
}

// The same, then the step of least square error for the codes in [-most, most - 1] that it gives.
inline float fitted_step(const float* values, int count, int most) {
    const float step = extreme_step(values, count, most);
    double products = 0, squares = 0;
    for (int i = 0; i < count; ++i) {
        const double code = steps(values[i], step, -most, most - 1);
        products += code * static_cast<double>(values[i]);
        squares += code * code;
    }
    return squares > 0 ? static_cast<float>(products / squares) : step;
}

}  // namespace moe
