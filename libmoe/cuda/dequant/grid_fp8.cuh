// The grids in the grouped GEMM of E4M3 (Fp8Dequant): E4M3, and integers of 4 bits, of which code
// minus zero point is exact in E4M3. Their scales hold for 128 k or more. Device only, sm_90.
#pragma once

#include "libmoe/cuda/dequant/grid_grouped.cuh"

namespace moe::cuda {

template <>
struct Fp8Dequant<PackedType::grid_e4m3> {
    static constexpr PackedType type = PackedType::grid_e4m3;
    using KeptScales = GridKeptScales;
    static __device__ __forceinline__ void operands(uint32_t codes, uint32_t lane,
                                                    const KeptScales&, uint32_t* a) {
        // A word has two k of row g, then of row g + 8; two words make four k of either.
        uint4 words[2];
        load_byte_codes(codes, lane, words);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t first = word_of(words[i / 2], i % 2 * 2);
            const uint32_t second = word_of(words[i / 2], i % 2 * 2 + 1);
            a[2 * i] = permute_bytes(first, second, 0x5410);
            a[2 * i + 1] = permute_bytes(first, second, 0x7632);
        }
    }
};

// The byte n of E4M3, up to 16, is n 2^-9.
template <>
struct Fp8Dequant<PackedType::grid_4> {
    static constexpr PackedType type = PackedType::grid_4;
    struct KeptScales {
        float2 scale;      // of rows g and g + 8, with the 2^9 that operands lack
        uint32_t zero[2];  // the code that is zero, in every byte

        __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record,
                                             uint32_t lane) {
            GridFactors<4> factors;
            factors.load(grid, record, static_cast<int32_t>(lane >> 2));
            const float2 of_rows = factors.scales.values_by_type();
            const uint2 zeros = factors.zero_codes();
            scale = {of_rows.x * 0x1p9f, of_rows.y * 0x1p9f};
            zero[0] = zeros.x * 0x01010101u;
            zero[1] = zeros.y * 0x01010101u;
        }
    };
    // A word has the codes of a step: of row g in the lower halves of its bytes, of row g + 8 in
    // the upper ones, k in order 0, 2, 1, 3.
    static __device__ __forceinline__ void operands(uint32_t codes, uint32_t lane,
                                                    const KeptScales& kept, uint32_t* a) {
        uint32_t words[4];
        load_shared_codes<4>(codes, lane, words);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int row = 0; row < 2; ++row)
                a[2 * j + row] = levels(words[j] >> 4 * row, kept.zero[row]);
    }

  private:
    static __device__ __forceinline__ uint32_t levels(uint32_t codes, uint32_t zero) {
        constexpr uint32_t signs = 0x80808080u;
        // Zero points are at most 16, so that no byte borrows: 128 + level, then two's complement.
        const uint32_t level = (((codes & 0x0F0F0F0Fu) | signs) - zero) ^ signs;
        const uint32_t sign = level & signs;
        const uint32_t one = sign >> 7;
        const uint32_t magnitude = (level ^ one * 0xFFu) + one;
        return permute_bytes(magnitude | sign, 0, 0x3120);
    }
};

}  // namespace moe::cuda
