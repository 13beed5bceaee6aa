// iq2_xs (ggml type 17): blocks of 74 bytes for 256 columns of a row: f16 d, 32 16-bit words q, 8
// bytes sc. Columns 8 j to 8 j + 7 have the magnitudes of entry q[j] & 511 of the grid; their signs
// are the upper seven bits of q[j], and of the eighth column what makes the number of negative ones
// even. Sub-block t of 16 columns has the scale s = sc[t / 2] >> 4 (t % 2) & 15.
//   W[n, k] = d * (s + 1/2) / 4 * (+-magnitude)              exact; magnitudes 8, 25, 43
// Read only. The grid is in iq_grids.cpp.
#include "libmoe/formats/iq_grids.hpp"

namespace moe {
namespace {

struct Iq2Xs {
    static constexpr int32_t id = 17;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = 74;
    static constexpr int sc_offset = 66;

    static void decode(const std::byte* block, float* out) {
        const float d = load_f16(block);
        for (int j = 0; j < columns / 8; ++j) {
            const int t = j / 2;
            const int s = load<uint8_t>(block + sc_offset + t / 2) >> 4 * (t % 2) & 15;
            const uint32_t q = load<uint16_t>(block + 2 + 2 * j);
            const float scale = d * (static_cast<float>(s) + 0.5f) * 0.25f;
            decode_iq2(iq2_xs_grid[q & 511], iq_signs(q >> 9), scale, out + 8 * j);
        }
    }
};

}  // namespace

constinit const FormatTraits iq2_xs_format = GgufFormat<Iq2Xs>::traits("iq2_xs");

}  // namespace moe
