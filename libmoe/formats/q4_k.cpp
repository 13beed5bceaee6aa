// q4_k (ggml type 12): blocks of 144 bytes for 256 columns of a row: f16 d, f16 dmin, 12 bytes sc,
// 128 bytes q. Eight sub-blocks j of 32 columns have a 6-bit scale S and a 6-bit minimum M:
//   j < 4:   S = sc[j] & 63                             M = sc[j + 4] & 63
//   j >= 4:  S = (sc[j + 4] & 15) + 16 (sc[j - 4] >> 6)   M = (sc[j + 4] >> 4) + 16 (sc[j] >> 6)
// Byte l of the 32 bytes q of a pair (2p, 2p + 1) of sub-blocks holds column l of 2p in its low
// nibble, of 2p + 1 in its high one.
//   W[n, k] = d * S * nibble - dmin * M                 exact products, one rounding
// Encoding: the superblock scales are those of k_levels.hpp, with 15 steps; each nibble is rounded
// to nearest against what decodes.
#include "libmoe/formats/k_levels.hpp"

namespace moe {
namespace {

constexpr int sub_block = KLevels::sub_block;

void decode_pair(const std::byte* __restrict q, const float (&scale)[2], const float (&minimum)[2],
                 float* __restrict out) {
    for (int l = 0; l < sub_block; ++l) {
        const int byte = load<uint8_t>(q + l);
        out[l] = scale[0] * static_cast<float>(byte & 15) - minimum[0];
        out[l + sub_block] = scale[1] * static_cast<float>(byte >> 4) - minimum[1];
    }
}

struct Q4_K {
    static constexpr int32_t id = 12;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = 144;

    static void decode(const std::byte* block, float* out) {
        const KLevels levels = read_levels(block);
        const std::byte* q = block + KLevels::bytes;
        for (int j = 0; j < KLevels::sub_blocks; j += 2) {
            const float scale[2] = {levels.d * levels.scale[j], levels.d * levels.scale[j + 1]};
            const float minimum[2] = {levels.dmin * levels.minimum[j],
                                      levels.dmin * levels.minimum[j + 1]};
            decode_pair(q + j / 2 * sub_block, scale, minimum, out + j * sub_block);
        }
    }

    static void encode(const float* values, std::byte* block) {
        const KLevels levels = encode_levels(values, 15, block);
        std::byte* q = block + KLevels::bytes;
        const auto nibble = [&](int j, int l) {
            return level_code(levels, j, values[j * sub_block + l], 15);
        };
        for (int j = 0; j < KLevels::sub_blocks; j += 2) {
            for (int l = 0; l < sub_block; ++l) {
                const int byte = nibble(j, l) | nibble(j + 1, l) << 4;
                store(q + j / 2 * sub_block + l, static_cast<uint8_t>(byte));
            }
        }
    }
};

}  // namespace

constinit const FormatTraits q4_k_format = GgufFormat<Q4_K>::traits("q4_k");

}  // namespace moe
