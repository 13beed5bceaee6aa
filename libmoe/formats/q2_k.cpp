// q2_k (ggml type 10): blocks of 84 bytes for 256 columns of a row: 16 bytes sc, 64 bytes q, f16 d,
// f16 dmin. Sub-block t of 16 columns has its scale in the low nibble of sc[t], its minimum in the
// high one. Two bits of column 128 h + 32 j + l are bits 2j, 2j + 1 of q[32 h + l].
//   W[n, k] = d * (sc & 15) * code - dmin * (sc >> 4)    exact products, one rounding
// Encoding: a sub-block begins as [min(0, least), largest] in three steps; three times its step and
// minimum become those of least square error for the codes that they give, the minimum not
// negative. d and dmin are the largest step and minimum over 15; scales, minima and codes are
// rounded to nearest against what decodes.
#include "libmoe/formats/k_codes.hpp"

namespace moe {
namespace {

constexpr int sub_blocks = 16;
constexpr int sub_block = 16;
constexpr int most = 3;
constexpr int n_fits = 3;

struct Span {
    double step;
    double minimum;  // what is subtracted, not negative
};

// Of the line value = step * code - minimum through the values and their codes under `span`.
Span fit(const float* values, const Span& span) {
    double codes = 0, squares = 0, sum = 0, products = 0;
    for (int i = 0; i < sub_block; ++i) {
        const double value = values[i];
        const double code = steps(value + span.minimum, span.step, 0, most);
        codes += code;
        squares += code * code;
        sum += value;
        products += code * value;
    }
    const double spread = squares - codes * codes / sub_block;
    if (!(spread > 0)) return span;
    const double step = (products - codes * sum / sub_block) / spread;
    return {step, std::max((step * codes - sum) / sub_block, 0.0)};
}

Span span_of(const float* values) {
    const auto [least, largest] = std::minmax_element(values, values + sub_block);
    const double minimum = std::max(-static_cast<double>(*least), 0.0);
    Span span{std::max((static_cast<double>(*largest) + minimum) / most, 0.0), minimum};
    for (int i = 0; i < n_fits; ++i) span = fit(values, span);
    return span;
}

struct Q2_K {
    static constexpr int32_t id = 10;
    static constexpr int32_t columns = k_columns;
    static constexpr int32_t bytes = 84;
    static constexpr int q_offset = 16;
    static constexpr int d_offset = 80;

    static void read_codes(const std::byte* block, BlockColumns part, uint8_t* codes) {
        std::fill_n(codes, part.count, uint8_t{0});
        read_two_bits(block + q_offset, 0, part, codes);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block + d_offset);
        const float dmin = load_f16(block + d_offset + 2);
        KCodes codes;
        read_codes(block, all_k, codes);
        for (int t = 0; t < sub_blocks; ++t) {
            const int sc = load<uint8_t>(block + t);
            const float scale = d * static_cast<float>(sc & 15);
            const float minimum = dmin * static_cast<float>(sc >> 4);
            for (int i = sub_block * t; i < sub_block * (t + 1); ++i)
                out[i] = scale * static_cast<float>(codes[i]) - minimum;
        }
    }

    static void encode(const float* values, std::byte* block) {
        float step[sub_blocks], minimum[sub_blocks];
        for (int t = 0; t < sub_blocks; ++t) {
            const Span span = span_of(values + sub_block * t);
            step[t] = static_cast<float>(span.step);
            minimum[t] = static_cast<float>(span.minimum);
        }
        const float d = store_f16(largest_magnitude(step, sub_blocks) / 15.0f, block + d_offset);
        const float dmin =
            store_f16(largest_magnitude(minimum, sub_blocks) / 15.0f, block + d_offset + 2);
        KCodes codes;
        for (int t = 0; t < sub_blocks; ++t) {
            const int scale = steps(step[t], d, 0, 15);
            const int least = steps(minimum[t], dmin, 0, 15);
            store(block + t, static_cast<uint8_t>(scale | least << 4));
            for (int i = sub_block * t; i < sub_block * (t + 1); ++i)
                codes[i] = static_cast<uint8_t>(steps(values[i] + dmin * static_cast<float>(least),
                                                      d * static_cast<float>(scale), 0, most));
        }
        write_two_bits(codes, 0, block + q_offset);
    }
};

}  // namespace

constinit const FormatTraits q2_k_format = GgufFormat<Q2_K>::traits("q2_k");

}  // namespace moe
