// iq3_s (ggml type 21): blocks of 110 bytes for 256 columns of a row: f16 d, 64 bytes g, 8 bytes h,
// 32 bytes of signs, 4 bytes sc. Columns 4 j to 4 j + 3 have the magnitudes of entry g[j] + 256 *
// (h[j / 8] >> j % 8 & 1) of the grid; column i is negative where bit i % 8 of byte i / 8 of the
// signs is set. Sub-block b of 32 columns has the scale s = sc[b / 2] >> 4 (b % 2) & 15.
//   W[n, k] = d * (2 s + 1) * (+-magnitude)         exact; magnitudes 1 3 5 7 9 11 13 15
// Read only. The grid is in iq_grids.hpp, the reading in iq_columns.hpp.
#include "libmoe/formats/iq_block.hpp"

namespace moe {

constinit const FormatTraits iq3_s_format = GgufFormat<IqBlock<Iq3SGrid, 21>>::traits("iq3_s");

}  // namespace moe
