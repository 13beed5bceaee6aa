// Quantization of activations to E4M3 with a scale for 128 columns, the rule of
// MOE_ACTIVATION_QUANTIZATION_FP8 in moe.h; and codes that a caller has quantized.
#pragma once

#include <cstdint>

#include "libmoe/cuda/device/memory.cuh"

namespace moe::cuda {

// The scale of 128 columns whose largest magnitude is `largest`.
struct Fp8Scale {
    float scale, inverse;

    __device__ __forceinline__ explicit Fp8Scale(float largest) {
        constexpr float least = 0x1p-100f;  // zeros have a scale, too
        largest = fmaxf(largest, least);
        scale = largest * (1.0f / 448.0f);
        inverse = 448.0f / largest;
    }

    // Four quantized values, the first in the lowest byte.
    __device__ __forceinline__ uint32_t word(float v0, float v1, float v2, float v3) const {
        return pair(v0, v1) | pair(v2, v3) << 16;
    }

  private:
    __device__ __forceinline__ uint32_t pair(float low, float high) const {
#if __CUDA_ARCH__ >= 890
        uint16_t bytes;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(bytes)
            : "f"(high * inverse), "f"(low * inverse));
        return bytes;
#else
        __trap();  // no kernel of these GPUs reads such rows
        return 0;
#endif
    }
};

// Sixteen codes at any address, the first in the lowest byte.
__device__ __forceinline__ uint4 load_16_codes(const uint8_t* codes) {
    if (reinterpret_cast<uintptr_t>(codes) % 16 == 0) return load_global_16(codes);
    uint32_t word[4] = {};
#pragma unroll 1
    for (int i = 0; i < 16; i++) word[i / 4] |= static_cast<uint32_t>(codes[i]) << 8 * (i % 4);
    return make_uint4(word[0], word[1], word[2], word[3]);
}

}  // namespace moe::cuda
