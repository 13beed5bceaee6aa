// iq2_xs (ggml type 17): blocks of 74 bytes for 256 columns of a row: f16 d, 32 16-bit words q, 8
// bytes sc. Columns 8 j to 8 j + 7 have the magnitudes of entry q[j] & 511 of the grid; their signs
// are the upper seven bits of q[j], and of the eighth column what makes the number of negative ones
// even. Sub-block t of 16 columns has the scale s = sc[t / 2] >> 4 (t % 2) & 15.
//   W[n, k] = d * (s + 1/2) / 4 * (+-magnitude)              exact; magnitudes 8, 25, 43
// Read only. The grid is in iq_grids.hpp, the reading in iq_columns.hpp.
#include "libmoe/formats/iq_block.hpp"

namespace moe {

constinit const FormatTraits iq2_xs_format = GgufFormat<IqBlock<Iq2XsGrid, 17>>::traits("iq2_xs");

}  // namespace moe
