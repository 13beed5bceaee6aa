// q3_k (ggml type 11): blocks of 110 bytes for 256 columns of a row: 32 bytes hm, 64 bytes q, 12
// bytes sc, f16 d. Sub-block t of 16 columns has a 6-bit scale S:
//   S = (sc[t % 8] >> 4 (t / 8) & 15) + 16 (sc[8 + t % 4] >> 2 (t / 4) & 3) - 32
// The low two bits of column 128 h + 32 j + l are bits 2j, 2j + 1 of q[32 h + l], its third is bit
// 4h + j of hm[l].
//   W[n, k] = d * S * (code - 4)                              exact
// Encoding: a sub-block's step is the fitted one of gguf_codes.hpp for codes in [-4, 3], d the step
// of largest magnitude over -32; each S and code is rounded to nearest against what decodes.
#include "libmoe/formats/k_codes.hpp"

namespace moe {
namespace {

constexpr int sub_blocks = 16;
constexpr int sub_block = 16;

int scale_of(const std::byte* sc, int t) {
    const int low = load<uint8_t>(sc + t % 8) >> t / 8 * 4 & 15;
    const int high = load<uint8_t>(sc + 8 + t % 4) >> t / 4 * 2 & 3;
    return low + 16 * high - 32;
}

// Bits of bytes that are zero.
void set_scale(std::byte* sc, int t, int scale) {
    const int bits = scale + 32;
    sc[t % 8] |= static_cast<std::byte>((bits & 15) << t / 8 * 4);
    sc[8 + t % 4] |= static_cast<std::byte>(bits >> 4 << t / 4 * 2);
}

struct Q3_K {
    static constexpr int32_t id = 11;
    static constexpr int32_t columns = k_columns;
    static constexpr int32_t bytes = 110;
    static constexpr int q_offset = 32;
    static constexpr int sc_offset = 96;
    static constexpr int d_offset = 108;

    static void read_codes(const std::byte* block, BlockColumns part, uint8_t* codes) {
        std::fill_n(codes, part.count, uint8_t{0});
        read_two_bits(block + q_offset, 0, part, codes);
        read_one_bit(block, 2, part, codes);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block + d_offset);
        KCodes codes;
        read_codes(block, all_k, codes);
        for (int t = 0; t < sub_blocks; ++t) {
            const float scale = d * static_cast<float>(scale_of(block + sc_offset, t));
            for (int i = sub_block * t; i < sub_block * (t + 1); ++i)
                out[i] = scale * static_cast<float>(codes[i] - 4);
        }
    }

    static void encode(const float* values, std::byte* block) {
        float step[sub_blocks];
        for (int t = 0; t < sub_blocks; ++t)
            step[t] = fitted_step(values + sub_block * t, sub_block, 4);
        const float d = store_f16(extreme_step(step, sub_blocks, 32), block + d_offset);
        std::memset(block + sc_offset, 0, 12);
        KCodes codes;
        for (int t = 0; t < sub_blocks; ++t) {
            const int scale = steps(step[t], d, -32, 31);
            set_scale(block + sc_offset, t, scale);
            for (int i = sub_block * t; i < sub_block * (t + 1); ++i)
                codes[i] = static_cast<uint8_t>(
                    4 + steps(values[i], d * static_cast<float>(scale), -4, 3));
        }
        write_two_bits(codes, 0, block + q_offset);
        write_one_bit(codes, 2, block);
    }
};

}  // namespace

constinit const FormatTraits q3_k_format = GgufFormat<Q3_K>::traits("q3_k");

}  // namespace moe
