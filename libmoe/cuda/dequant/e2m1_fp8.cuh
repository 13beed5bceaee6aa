// nvfp4 and mxfp4 in the grouped GEMM of E4M3 (Fp8Dequant): codes times their own scale, over the
// largest scale of the row in 128 k, become E4M3. Those of mxfp4 are exact where their scale is at
// least 2^-9 of the largest, since scales are powers of two; those of nvfp4 are rounded. Device
// only, sm_90.
#pragma once

#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/device/fast_activation.cuh"

namespace moe::cuda {

// Operands are twice code times scale over the largest scale: at most 12.
template <PackedType packed, class Rules>
struct Fp8E2m1 : GroupedE2m1<packed> {
    static constexpr PackedType type = packed;
    static constexpr bool finds_scales = true;

    // of_block(i): the shared address of block i. Returns the factors of the accumulators of rows g
    // and g + 8.
    template <int n_blocks, class OfBlock>
    static __device__ __forceinline__ float2 operands(OfBlock of_block, uint32_t lane,
                                                      uint32_t (&a)[8 * n_blocks]) {
        uint4 codes[n_blocks];
        float scale[n_blocks][2];
        float largest[2] = {least_scale, least_scale};
#pragma unroll
        for (int i = 0; i < n_blocks; ++i) {
            const uint32_t at = of_block(i);
            codes[i] = load_shared_16(at + 16 * lane);
            const uint32_t bytes = load_shared_2(
                at + block_code_bytes(packed, 4) +
                2 * static_cast<uint32_t>(Rules::scale_pair(static_cast<int32_t>(lane))));
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                scale[i][row] = Rules::scale(bytes >> 8 * row & 0xFFu);
                largest[row] = fmaxf(largest[row], scale[i][row]);
            }
        }
#pragma unroll
        for (float& value : largest) {
            value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
            value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
        }
        const float inverse[2] = {0x1p15f * fast_reciprocal(largest[0]),
                                  0x1p15f * fast_reciprocal(largest[1])};
#pragma unroll
        for (int i = 0; i < n_blocks; ++i) {
            uint32_t factor[2];
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                const float of_row = scale[i][row] * inverse[row];
                factor[row] = f16_pair(of_row, of_row);
            }
            uint32_t pairs[16];  // as float16: 2^-14 of a code times 2^15 of its scale
            GroupedE2m1<packed>::template multiply_scales<Operand::f16>(codes[i], factor, pairs);
#pragma unroll
            for (int j = 0; j < 8; ++j)
                a[8 * i + j] = e4m3_word(pairs[j / 2 * 4 + j % 2], pairs[j / 2 * 4 + j % 2 + 2]);
        }
        return {0.5f * largest[0], 0.5f * largest[1]};
    }

  private:
    static constexpr float least_scale = 0x1p-100f;  // rows of zeros have one

    static __device__ __forceinline__ uint32_t e4m3_word(uint32_t first, uint32_t second) {
        uint16_t low, high;
        asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(low) : "r"(first));
        asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(high) : "r"(second));
        return low | static_cast<uint32_t>(high) << 16;
    }
};

template <>
struct Fp8Dequant<PackedType::nvfp4> : Fp8E2m1<PackedType::nvfp4, Nvfp4Rules> {};
template <>
struct Fp8Dequant<PackedType::mxfp4> : Fp8E2m1<PackedType::mxfp4, Mxfp4Rules> {};

}  // namespace moe::cuda
