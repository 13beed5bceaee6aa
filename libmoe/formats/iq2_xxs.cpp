// iq2_xxs (ggml type 16): blocks of 66 bytes for 256 columns of a row: f16 d, then for each
// sub-block b of 32 columns four bytes g and a 32-bit word a. Columns 8 j to 8 j + 7 of a sub-block
// have the magnitudes of entry g[j] of the grid; their signs are bits 7j to 7j + 6 of a, and of the
// eighth column what makes the number of negative ones even. s = a >> 28.
//   W[n, k] = d * (s + 1/2) / 4 * (+-magnitude)              exact; magnitudes 8, 25, 43
// Read only. The grid is in iq_grids.hpp, the reading in iq_columns.hpp.
#include "libmoe/formats/iq_block.hpp"

namespace moe {

constinit const FormatTraits iq2_xxs_format =
    GgufFormat<IqBlock<Iq2XxsGrid, 16>>::traits("iq2_xxs");

}  // namespace moe
