// q6_k (ggml type 14): blocks of 210 bytes for 256 columns of a row: 128 bytes ql, 64 bytes qh, 16
// signed bytes sc, f16 d. Sub-block t of 16 columns has the scale sc[t]. Of column 128 h + 32 g + l
// the low four bits are the low (g < 2) or high nibble of ql[64 h + 32 (g % 2) + l], the high two
// are bits 2g, 2g + 1 of qh[32 h + l].
//   W[n, k] = d * sc * (code - 32)                            exact
// Encoding: a sub-block's step is the fitted one of gguf_codes.hpp for codes in [-32, 31], d the
// step of largest magnitude over -128; each sc and code is rounded to nearest against what decodes.
#include "libmoe/formats/k_codes.hpp"

namespace moe {
namespace {

constexpr int sub_blocks = 16;
constexpr int sub_block = 16;

struct Q6_K {
    static constexpr int32_t id = 14;
    static constexpr int32_t columns = k_columns;
    static constexpr int32_t bytes = 210;
    static constexpr int qh_offset = 128;
    static constexpr int sc_offset = 192;
    static constexpr int d_offset = 208;

    static void read_codes(const std::byte* block, BlockColumns part, uint8_t* codes) {
        for (int c = 0; c < part.count; ++c) {
            const int i = part.first + c;
            const int byte = load<uint8_t>(block + i / 128 * 64 + i % 64);
            codes[c] = static_cast<uint8_t>(byte >> i % 128 / 64 * 4 & 15);
        }
        read_two_bits(block + qh_offset, 4, part, codes);
    }

    static void write_codes(const KCodes& codes, std::byte* block) {
        for (int b = 0; b < columns / 2; ++b) {
            const uint8_t* low = codes + b / 64 * 128 + b % 64;
            store(block + b, static_cast<uint8_t>((low[0] & 15) | (low[64] & 15) << 4));
        }
        write_two_bits(codes, 4, block + qh_offset);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block + d_offset);
        KCodes codes;
        read_codes(block, all_k, codes);
        for (int t = 0; t < sub_blocks; ++t) {
            const float scale = d * static_cast<float>(load<int8_t>(block + sc_offset + t));
            for (int i = sub_block * t; i < sub_block * (t + 1); ++i)
                out[i] = scale * static_cast<float>(codes[i] - 32);
        }
    }

    static void encode(const float* values, std::byte* block) {
        float step[sub_blocks];
        for (int t = 0; t < sub_blocks; ++t)
            step[t] = fitted_step(values + sub_block * t, sub_block, 32);
        const float d = store_f16(extreme_step(step, sub_blocks, 128), block + d_offset);
        KCodes codes;
        for (int t = 0; t < sub_blocks; ++t) {
            const int scale = steps(step[t], d, -128, 127);
            store(block + sc_offset + t, static_cast<int8_t>(scale));
            for (int i = sub_block * t; i < sub_block * (t + 1); ++i)
                codes[i] = static_cast<uint8_t>(
                    32 + steps(values[i], d * static_cast<float>(scale), -32, 31));
        }
        write_codes(codes, block);
    }
};

}  // namespace

constinit const FormatTraits q6_k_format = GgufFormat<Q6_K>::traits("q6_k");

}  // namespace moe
