// The 16 values of iq4_nl and iq4_xs, with the step of 32 columns that serves them best: of two,
// one that takes the value of largest magnitude to -127 and one that takes it to 113, each then
// fitted once to the codes that it gives, the one with the smaller square error.
#pragma once

#include "libmoe/formats/gguf_small.hpp"

namespace moe {

inline constexpr int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// The code whose value is nearest, the lower of two as near.
inline int nearest_iq4(double value) {
    int code = 0;
    while (code < 15 && 2 * value > iq4_values[code] + iq4_values[code + 1]) ++code;
    return code;
}

inline int iq4_code(float value, float step) {
    return nearest_iq4(step == 0 ? 0.0 : static_cast<double>(value) / static_cast<double>(step));
}

struct Iq4Fit {
    double step;
    double error;  // sum of squares
};

inline Iq4Fit fit_iq4(const float* values, double first) {
    double products = 0, squares = 0, magnitude = 0;
    for (int i = 0; i < small_columns; ++i) {
        const double value = values[i];
        const double level = iq4_values[nearest_iq4(value / first)];
        products += value * level;
        squares += level * level;
        magnitude += value * value;
    }
    return {products / squares, magnitude - products * products / squares};
}

inline float iq4_step(const float* values) {
    const double extreme = signed_extreme(values, small_columns);
    if (extreme == 0) return 0.0f;
    const Iq4Fit down = fit_iq4(values, extreme / -127.0);
    const Iq4Fit up = fit_iq4(values, extreme / 113.0);
    return static_cast<float>(up.error < down.error ? up.step : down.step);
}

}  // namespace moe
