// iq3_xxs (ggml type 18): blocks of 98 bytes for 256 columns of a row: f16 d, 64 bytes g, 8 32-bit
// words a, one for each sub-block b of 32 columns. Columns 4 j to 4 j + 3 have the magnitudes of
// entry g[j] of the grid. The signs of columns 8 j to 8 j + 7 of a sub-block are bits 7j to 7j + 6
// of a, and of the eighth what makes the number of negative ones even. s = a >> 28.
//   W[n, k] = d * (s + 1/2) / 2 * (+-magnitude)    exact; magnitudes 4 12 20 28 36 44 52 62
// Read only. The grid is in iq_grids.cpp.
#include "libmoe/formats/iq_grids.hpp"

namespace moe {
namespace {

struct Iq3Xxs {
    static constexpr int32_t id = 18;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = 98;
    static constexpr int a_offset = 66;

    static void decode_sub_block(const std::byte* g, uint32_t a, float d, float* out) {
        const float scale = d * (static_cast<float>(a >> 28) + 0.5f) * 0.5f;
        for (int j = 0; j < 8; ++j) {
            const uint16_t entry = iq3_xxs_grid[load<uint8_t>(g + j)];
            const int signs = iq_signs(a >> j / 2 * 7 & 127) >> j % 2 * 4;
            decode_iq3(entry, iq3_xxs_magnitudes, signs, scale, out + 4 * j);
        }
    }

    static void decode(const std::byte* block, float* out) {
        const float d = load_f16(block);
        for (int b = 0; b < columns / 32; ++b) {
            const uint32_t a = load<uint32_t>(block + a_offset + 4 * b);
            decode_sub_block(block + 2 + 8 * b, a, d, out + 32 * b);
        }
    }
};

}  // namespace

constinit const FormatTraits iq3_xxs_format = GgufFormat<Iq3Xxs>::traits("iq3_xxs");

}  // namespace moe
