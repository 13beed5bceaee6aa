// iq2_xxs (ggml type 16): blocks of 66 bytes for 256 columns of a row: f16 d, then for each
// sub-block b of 32 columns four bytes g and a 32-bit word a. Columns 8 j to 8 j + 7 of a sub-block
// have the magnitudes of entry g[j] of the grid; their signs are bits 7j to 7j + 6 of a, and of the
// eighth column what makes the number of negative ones even. s = a >> 28.
//   W[n, k] = d * (s + 1/2) / 4 * (+-magnitude)              exact; magnitudes 8, 25, 43
// Read only. The grid is in iq_grids.cpp.
#include "libmoe/formats/iq_grids.hpp"

namespace moe {
namespace {

struct Iq2Xxs {
    static constexpr int32_t id = 16;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = 66;

    static void decode_sub_block(const std::byte* g, float d, float* out) {
        const uint32_t a = load<uint32_t>(g + 4);
        const float scale = d * (static_cast<float>(a >> 28) + 0.5f) * 0.25f;
        for (int j = 0; j < 4; ++j) {
            const uint16_t entry = iq2_xxs_grid[load<uint8_t>(g + j)];
            decode_iq2(entry, iq_signs(a >> 7 * j & 127), scale, out + 8 * j);
        }
    }

    static void decode(const std::byte* block, float* out) {
        const float d = load_f16(block);
        for (int b = 0; b < columns / 32; ++b) decode_sub_block(block + 2 + 8 * b, d, out + 32 * b);
    }
};

}  // namespace

constinit const FormatTraits iq2_xxs_format = GgufFormat<Iq2Xxs>::traits("iq2_xxs");

}  // namespace moe
