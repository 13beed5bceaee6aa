// iq3_xxs (ggml type 18): blocks of 98 bytes for 256 columns of a row: f16 d, 64 bytes g, 8 32-bit
// words a, one for each sub-block b of 32 columns. Columns 4 j to 4 j + 3 have the magnitudes of
// entry g[j] of the grid. The signs of columns 8 j to 8 j + 7 of a sub-block are bits 7j to 7j + 6
// of a, and of the eighth what makes the number of negative ones even. s = a >> 28.
//   W[n, k] = d * (s + 1/2) / 2 * (+-magnitude)    exact; magnitudes 4 12 20 28 36 44 52 62
// Read only. The grid is in iq_grids.hpp, the reading in iq_columns.hpp.
#include "libmoe/formats/iq_block.hpp"

namespace moe {

constinit const FormatTraits iq3_xxs_format =
    GgufFormat<IqBlock<Iq3XxsGrid, 18>>::traits("iq3_xxs");

}  // namespace moe
