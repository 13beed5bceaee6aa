// iq4_xs (ggml type 23): blocks of 136 bytes for 256 columns of a row: f16 d, 16 bits sh, 4 bytes
// sl, 128 bytes q. Eight sub-blocks b of 32 columns have a 6-bit scale S, its low nibble in sl
// (even b low), its high two bits in sh:
//   S = (sl[b / 2] >> 4 (b % 2) & 15) + 16 (sh >> 2b & 3) - 32
// Byte j of the 16 bytes q of a sub-block holds its column j in the low nibble, j + 16 in the high
// one.
//   W[n, k] = d * S * T[nibble]                              exact, T that of iq4_nl
// Encoding: a sub-block's step is that of iq4_values.hpp, d the step of largest magnitude over -32;
// each S and nibble is rounded to nearest against what decodes.
#include "libmoe/formats/iq4_values.hpp"

namespace moe {
namespace {

struct Iq4Xs {
    static constexpr int32_t id = 23;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = 136;
    static constexpr int sub_blocks = columns / small_columns;

    static int scale_of(const std::byte* block, int b) {
        const int low = load<uint8_t>(block + 4 + b / 2) >> 4 * (b % 2) & 15;
        const int high = load<uint16_t>(block + 2) >> 2 * b & 3;
        return low + 16 * high - 32;
    }

    // Bits of a block of zeros.
    static void set_scale(std::byte* block, int b, int scale) {
        const int bits = scale + 32;
        const int low = load<uint8_t>(block + 4 + b / 2) | (bits & 15) << 4 * (b % 2);
        const int high = load<uint16_t>(block + 2) | bits >> 4 << 2 * b;
        store(block + 4 + b / 2, static_cast<uint8_t>(low));
        store(block + 2, static_cast<uint16_t>(high));
    }

    static void read_codes(const std::byte* block, BlockColumns part, uint8_t* codes) {
        for (int c = 0; c < part.count; c += small_columns)
            read_nibbles(block + 8 + (part.first + c) / 2, codes + c);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block);
        for (int b = 0; b < sub_blocks; ++b) {
            const float scale = d * static_cast<float>(scale_of(block, b));
            SmallCodes codes;
            read_codes(block, {small_columns * b, small_columns}, codes);
            for (int i = 0; i < small_columns; ++i)
                out[small_columns * b + i] = scale * static_cast<float>(iq4_values[codes[i]]);
        }
    }

    static void encode_sub_block(const float* values, float scale, std::byte* q) {
        SmallCodes codes;
        for (int i = 0; i < small_columns; ++i)
            codes[i] = static_cast<uint8_t>(iq4_code(values[i], scale));
        write_nibbles(codes, q);
    }

    static void encode(const float* values, std::byte* block) {
        float step[sub_blocks];
        for (int b = 0; b < sub_blocks; ++b) step[b] = iq4_step(values + small_columns * b);
        const float d = store_f16(extreme_step(step, sub_blocks, 32), block);
        std::memset(block + 2, 0, 6);
        for (int b = 0; b < sub_blocks; ++b) {
            const int scale = steps(step[b], d, -32, 31);
            set_scale(block, b, scale);
            encode_sub_block(values + small_columns * b, d * static_cast<float>(scale),
                             block + 8 + 16 * b);
        }
    }
};

}  // namespace

constinit const FormatTraits iq4_xs_format = GgufFormat<Iq4Xs>::traits("iq4_xs");

}  // namespace moe
