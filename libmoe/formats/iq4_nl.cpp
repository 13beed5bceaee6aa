// iq4_nl (ggml type 20): blocks of 18 bytes for 32 columns of a row: f16 d, 16 bytes q. Byte j
// holds column j in its low nibble, column j + 16 in its high one.
//   W[n, k] = d * T[nibble]                                  exact
//   T = -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
// Encoding: d is the step of iq4_values.hpp; each nibble is the nearest value against the f16 d.
#include "libmoe/formats/iq4_values.hpp"

namespace moe {
namespace {

struct Iq4Nl {
    static constexpr int32_t id = 20;
    static constexpr int32_t columns = small_columns;
    static constexpr int32_t bytes = 18;

    static void read_codes(const std::byte* block, BlockColumns, uint8_t* codes) {
        read_nibbles(block + 2, codes);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block);
        SmallCodes codes;
        read_codes(block, all_small, codes);
        for (int i = 0; i < columns; ++i) out[i] = d * static_cast<float>(iq4_values[codes[i]]);
    }

    static void encode(const float* values, std::byte* block) {
        const float d = store_f16(iq4_step(values), block);
        SmallCodes codes;
        for (int i = 0; i < columns; ++i) codes[i] = static_cast<uint8_t>(iq4_code(values[i], d));
        write_nibbles(codes, block + 2);
    }
};

}  // namespace

constinit const FormatTraits iq4_nl_format = GgufFormat<Iq4Nl>::traits("iq4_nl");

}  // namespace moe
