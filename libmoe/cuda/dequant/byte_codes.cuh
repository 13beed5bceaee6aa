// Building blocks of the types whose codes are bytes. Those of q8_0 and grids lie in turns: bytes
// 2 a and 2 a + 1 of a lane's step are register a. Those of e4m3 lie by rows: of rows 0 to 7, then
// 8 to 15, step j is a matrix of 128 bytes.
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_operands.cuh"
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#endif

namespace moe::cuda {

// value(code): what a byte says before its scale.
template <class Value>
MOE_HOST_DEVICE inline FloatPair scaled_byte_pair(const ScaledWords<8>& words, int step, int reg,
                                                  const Value& value) {
    const uint32_t two = words.code[2 * step + reg / 2] >> 16 * (reg & 1);
    const float scale = words.scale[reg & 1];
    return {value(two & 0xFFu) * scale, value(two >> 8 & 0xFFu) * scale};
}

#if defined(__CUDACC__)

// A lane's 32 bytes of a block are two vectors of two steps.
template <int n>
struct GemvByteCodes {
    uint4 codes[2 * n];

    __device__ __forceinline__ void load(uint32_t at, int32_t bytes_of_block, int32_t lane) {
#pragma unroll
        for (int i = 0; i < 2 * n; ++i)
            codes[i] = load_shared_16(at + i / 2 * bytes_of_block + i % 2 * 512 + 16 * lane);
    }
    // Registers 0 and 1, or 2 and 3, of a step.
    __device__ __forceinline__ uint32_t word(int j, int pair) const {
        return word_of(codes[j / 2], j % 2 * 2 + pair);
    }
    // Bytes as operands (GemvDequant). A word has two k of row g, then of row g + 8.
    __device__ __forceinline__ void two_steps(int i, uint32_t (&a)[4]) const {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t first = word(2 * i + j, 0), second = word(2 * i + j, 1);
            a[2 * j] = __byte_perm(first, second, 0x5140);
            a[2 * j + 1] = __byte_perm(first, second, 0x7362);
        }
    }
};

// The bytes by rows of a block. Every lane of the warp calls load.
struct RowBytes {
    uint32_t words[2][4];  // of rows g and g + 8: four codes of each step

    __device__ __forceinline__ void load(uint32_t codes, uint32_t lane) {
        load_matrices(codes + 16 * lane, words[0]);
        load_matrices(codes + 512 + 16 * lane, words[1]);
    }
};

struct GroupedByteWords {
    uint4 codes[2];  // steps 0, 1; steps 2, 3
    float2 scale;    // of rows g and g + 8
};

__device__ __forceinline__ void load_byte_codes(uint32_t codes, uint32_t lane, uint4 (&words)[2]) {
    words[0] = load_shared_16(codes + 16 * lane);
    words[1] = load_shared_16(codes + 512 + 16 * lane);
}

#endif

}  // namespace moe::cuda
