// A ggml block whose codes are entries of a grid, of 256 columns.
#pragma once

#include "libmoe/base/iq_columns.hpp"
#include "libmoe/formats/gguf_block.hpp"

namespace moe {

template <class Grid, int32_t type>
struct IqBlock {
    static constexpr int32_t id = type;
    static constexpr int32_t columns = 256;
    static constexpr int32_t bytes = Grid::bytes;

    static void decode(const std::byte* block, float* __restrict out) {
        for (int32_t t = 0; t < columns / iq_group; ++t) {
            const IqColumns sixteen = Grid::columns(block, t);
            for (int32_t i = 0; i < iq_group; ++i)
                out[iq_group * t + i] = iq_value<Grid>(sixteen, i);
        }
    }
};

}  // namespace moe
