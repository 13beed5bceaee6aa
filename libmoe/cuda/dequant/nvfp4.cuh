// nvfp4: e2m1 codes, and a scale byte per row and 16 k, behind the codes of a block: exponent 5
// bits (bias 10), mantissa 3, so 2^(e-10) (1 + m/8). A lane has its two scales at byte 2 lane.
// Used by all kernels.
#pragma once

#include "libmoe/cuda/dequant/e2m1.cuh"

namespace moe::cuda {

// A byte shifted by 4 has exponent and mantissa where bfloat16 has them. This constant moves
// exponents up by 223, to 254 at most: 2^106 times the scale. Codes are 2^-126 of their value, so
// operands lack 2^20.
constexpr uint32_t nvfp4_bf16_exponent = 223 << 7;
constexpr float nvfp4_bf16_residual_scale = 0x1p20f;

MOE_HOST_DEVICE constexpr float nvfp4_scale(uint32_t byte) {
    return std::bit_cast<float>((byte << 20) + (117u << 23));
}

struct Nvfp4Rules {
    static MOE_HOST_DEVICE float scale(uint32_t byte) { return nvfp4_scale(byte); }
    static MOE_HOST_DEVICE uint32_t bf16_factor(uint32_t byte) {
        return byte * 0x00100010u + nvfp4_bf16_exponent * 0x00010001u;
    }
    static MOE_HOST_DEVICE int32_t scale_pair(int32_t lane) { return scale_pair_of_16(lane); }
};

template <>
struct ValueDequant<PackedType::nvfp4> : E2m1ValueDequant<Nvfp4Rules> {
    static constexpr float bf16_residual_scale = nvfp4_bf16_residual_scale;
    static constexpr float f16_residual_scale = 0x1p9f;
};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::nvfp4> : GemvE2m1<PackedType::nvfp4> {
    static constexpr float residual_scale = 0x1p19f;  // 2^(126 - 96 - 11)
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales = load_shared_4(at + scales + column_block(lane, n) * min_split_bytes +
                                     (lane >> 2) * 8 + (lane & 1) * 4);
        load_codes(words, at, lane);
    }
    // A lane's two columns are two groups of 16, so that four scales meet four accumulators.
    struct Factors {
        float of[4];  // of row g and row g + 8, first column; then of the second column
    };
    template <int n>
    static __device__ __forceinline__ Factors factors(const Words<n>& words) {
        const uint32_t q = words.scales;
        return {{factor((q & 0xFFu) << 20), factor((q & 0xFF00u) << 12),
                 factor((q & 0xFF0000u) << 4), factor((q & 0xFF000000u) >> 4)}};
    }
    static __device__ __forceinline__ void add(const Factors& factors, const float (&c)[4],
                                               float (&acc)[2]) {
        acc[0] = fmaf(c[0], factors.of[0], acc[0]);
        acc[1] = fmaf(c[2], factors.of[1], acc[1]);
        acc[0] = fmaf(c[1], factors.of[2], acc[0]);
        acc[1] = fmaf(c[3], factors.of[3], acc[1]);
    }

  private:
    // The byte where float32 has exponent and mantissa: 2^11 times its value.
    static __device__ __forceinline__ float factor(uint32_t byte) {
        return __uint_as_float(byte + 0x40000000u);
    }
};

template <>
struct GroupedDequant<PackedType::nvfp4> : GroupedE2m1<PackedType::nvfp4> {
    static constexpr float residual_scale = nvfp4_bf16_residual_scale;
    // Codes are 2^-14 of their value. A scale byte with 12 more in its exponent is 2^7 times the
    // scale, and finite up to 480, the largest scale that a format has.
    static constexpr float f16_residual_scale = 0x1p7f;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_16(codes + 16 * lane), load_shared_2(scales + 2 * lane)};
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        uint32_t scale[2];
        if constexpr (operand == Operand::bf16)
            scale_pairs<4, nvfp4_bf16_exponent>(words.scales, scale);
        else
            scale_pairs<7, 12 << 10>(words.scales, scale);
        multiply_scales<operand>(words.codes, scale, a);
    }
};

#endif

}  // namespace moe::cuda
