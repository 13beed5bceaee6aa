// iq3_s (ggml type 21): blocks of 110 bytes for 256 columns of a row: f16 d, 64 bytes g, 8 bytes h,
// 32 bytes of signs, 4 bytes sc. Columns 4 j to 4 j + 3 have the magnitudes of entry g[j] + 256 *
// (h[j / 8] >> j % 8 & 1) of the grid; column i is negative where bit i % 8 of byte i / 8 of the
// signs is set. Sub-block b of 32 columns has the scale s = sc[b / 2] >> 4 (b % 2) & 15.
//   W[n, k] = d * (2 s + 1) * (+-magnitude)         exact; magnitudes 1 3 5 7 9 11 13 15
// Read only. The grid is in iq_grids.cpp.
#include "libmoe/formats/iq_grids.hpp"

namespace moe {
namespace {

struct Iq3S {
    static constexpr int32_t id = 21;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = 110;
    static constexpr int h_offset = 66;
    static constexpr int sign_offset = 74;
    static constexpr int sc_offset = 106;

    static uint16_t entry(const std::byte* block, int j) {
        const int high = load<uint8_t>(block + h_offset + j / 8) >> j % 8 & 1;
        return iq3_s_grid[static_cast<size_t>(load<uint8_t>(block + 2 + j) + 256 * high)];
    }

    static void decode(const std::byte* block, float* out) {
        const float d = load_f16(block);
        for (int j = 0; j < columns / 4; ++j) {
            const int b = j / 8;
            const int s = load<uint8_t>(block + sc_offset + b / 2) >> 4 * (b % 2) & 15;
            const int signs = load<uint8_t>(block + sign_offset + j / 2) >> j % 2 * 4;
            const float scale = d * static_cast<float>(2 * s + 1);
            decode_iq3(entry(block, j), iq3_s_magnitudes, signs, scale, out + 4 * j);
        }
    }
};

}  // namespace

constinit const FormatTraits iq3_s_format = GgufFormat<Iq3S>::traits("iq3_s");

}  // namespace moe
