// Forms that kernels may give a codebook that serves all experts.
#pragma once

#include <span>

#include "libmoe/packed/layout.hpp"

namespace moe {

// Have codes c and c + 16 of sign codes (layout.hpp) the same value but for the sign, in float16?
bool is_mirrored(std::span<const float, 32> values);

// The values of 2^bits codes, 2 or 3 bits, as bytes times one number; none if that is further from
// them than bfloat16 is from what it rounds, in the mean of squares, or from one of them by more
// than 1/64 of it.
ByteCodebook byte_codebook(std::span<const float, 32> values, int32_t bits);

}  // namespace moe
