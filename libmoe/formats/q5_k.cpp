// q5_k (ggml type 13): blocks of 176 bytes for 256 columns of a row: superblock scales of
// k_levels.hpp (f16 d, f16 dmin, and a 6-bit scale S and minimum M for each of eight sub-blocks j
// of 32 columns), 32 bytes qh, 128 bytes q. Byte l of the 32 bytes q of a pair (2p, 2p + 1) of
// sub-blocks holds the low four bits of column l of 2p in its low nibble, of 2p + 1 in its high
// one; the fifth bit of column l of sub-block j is bit j of qh[l].
//   W[n, k] = d * S * code - dmin * M                   exact products, one rounding
// Encoding: the superblock scales are those of k_levels.hpp, with 31 steps; each code is rounded to
// nearest against what decodes.
#include "libmoe/formats/k_codes.hpp"
#include "libmoe/formats/k_levels.hpp"

namespace moe {
namespace {

constexpr int sub_block = KLevels::sub_block;

void decode_sub_block(const uint8_t* __restrict codes, float scale, float minimum,
                      float* __restrict out) {
    for (int l = 0; l < sub_block; ++l) out[l] = scale * static_cast<float>(codes[l]) - minimum;
}

struct Q5_K {
    static constexpr int32_t id = 13;
    static constexpr int32_t columns = k_columns;
    static constexpr int32_t bytes = 176;
    static constexpr int qh_offset = 16;
    static constexpr int q_offset = 48;

    static void read_codes(const std::byte* block, BlockColumns part, uint8_t* codes) {
        for (int c = 0; c < part.count; ++c) {
            const int i = part.first + c;
            const int byte = load<uint8_t>(block + q_offset + i / 64 * 32 + i % 32);
            codes[c] = static_cast<uint8_t>(byte >> i / 32 % 2 * 4 & 15);
        }
        read_one_bit(block + qh_offset, 4, part, codes);
    }

    static void write_codes(const KCodes& codes, std::byte* block) {
        for (int b = 0; b < columns / 2; ++b) {
            const uint8_t* low = codes + b / 32 * 64 + b % 32;
            const int byte = (low[0] & 15) | (low[sub_block] & 15) << 4;
            store(block + q_offset + b, static_cast<uint8_t>(byte));
        }
        write_one_bit(codes, 4, block + qh_offset);
    }

    static void decode(const std::byte* block, float* out) {
        const KLevels levels = read_levels(block);
        KCodes codes;
        read_codes(block, all_k, codes);
        for (int j = 0; j < KLevels::sub_blocks; ++j) {
            decode_sub_block(codes + j * sub_block, levels.d * levels.scale[j],
                             levels.dmin * levels.minimum[j], out + j * sub_block);
        }
    }

    static void encode(const float* values, std::byte* block) {
        const KLevels levels = encode_levels(values, 31, block);
        KCodes codes;
        for (int i = 0; i < columns; ++i)
            codes[i] = level_code(levels, i / sub_block, values[i], 31);
        write_codes(codes, block);
    }
};

}  // namespace

constinit const FormatTraits q5_k_format = GgufFormat<Q5_K>::traits("q5_k");

}  // namespace moe
