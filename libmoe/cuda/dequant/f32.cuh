// f32: a code is a float32, and there are no scales. Used by the exact kernel alone.
#pragma once

#include "libmoe/cuda/dequant/dense.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::f32> : DenseValueDequant<PackedType::f32> {
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const int i = 2 * (4 * step + reg);
        return {std::bit_cast<float>(words.code[i]), std::bit_cast<float>(words.code[i + 1])};
    }
};

}  // namespace moe::cuda
