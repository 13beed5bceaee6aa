// Activations as E4M3, the token blocks of the FP8 policy (moe.h). Block b of 128 columns is
// [capacity][128] bytes; behind all blocks lie the scales, float32 [blocks][capacity]: of every row
// and block one.
//
// The bytes of a row are in the order of the packed weights' fragments. Of each 64 columns the
// four-byte word of k = 16 t + 4 j, ..., + 3 is word t of the 16-byte vector j; vector c of row r
// of a block (c = 4 of the second 64 columns) is stored at c ^ (r & 7).
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmoe/base/host_device.hpp"

namespace moe::cuda {

constexpr int32_t fp8_block_columns = 128;

MOE_HOST_DEVICE constexpr int32_t fp8_blocks(int64_t columns) {
    return static_cast<int32_t>((columns + fp8_block_columns - 1) / fp8_block_columns);
}

// Bytes of a row with its scales.
MOE_HOST_DEVICE constexpr int64_t fp8_row_bytes(int64_t columns) {
    return int64_t{fp8_blocks(columns)} * (fp8_block_columns + 4);
}

// Where the scales of all rows begin.
template <class Byte>
MOE_HOST_DEVICE Byte* fp8_scales(Byte* blocks, int64_t columns, int32_t capacity) {
    return blocks + int64_t{fp8_blocks(columns)} * capacity * fp8_block_columns;
}

}  // namespace moe::cuda
