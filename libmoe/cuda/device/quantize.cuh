// Quantization of activations to E4M3 with a scale for 128 columns, the rule of
// MOE_ACTIVATION_QUANTIZATION_FP8 in moe.h.
#pragma once

#include <cstdint>

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

}  // namespace moe::cuda
