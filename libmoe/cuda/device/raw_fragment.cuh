// From the packed layout in shared memory to A fragments whose scales are applied after the product,
// for one token: codes become 16-bit pairs without a multiplication, and B is laid out so that
// column n of the result is the partial sum of columns k of lane n % 4 (16 contiguous k) of block
// n / 4 of two consecutive blocks of 64 k. A scale then meets its group once per row, in float32.
// One struct per packed type:
//   span         blocks of 64 k of one accumulation: 2, or 1 where there are no scales
//   grain        blocks of 64 k that cannot be parted, grain_bytes their bytes
//   Operand      Bf16 or F16: the type of the pairs and of x
//   x_exponent   x is multiplied by this power of two before it is rounded to Operand
//   leftover     multiplies the sums, and makes up for powers of two that were left out
//   Words<n>     what a lane holds of n <= span blocks
//   load         chunk: shared address of whole grains; block: the first block, in the chunk
//   step         the A registers of step j of 4 n
//   add          adds a lane's four partial sums, scaled, to those of rows g and g + 8
#pragma once

#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/weights/packed.hpp"

namespace moe::cuda {

// The value of the low half.
__device__ __forceinline__ float f16_value(uint32_t bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(static_cast<uint16_t>(bits)));
    return v;
}

struct Bf16 {
    static constexpr bool rebased = false;
    static __device__ __forceinline__ uint32_t pair(float low, float high) {
        uint32_t v;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
        return v;
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_bf16(c, a, b0, b1);
    }
};

template <PackedType packed>
struct RawType {
    static constexpr PackedType type = packed;
    using Operand = Bf16;
    static constexpr int32_t span = 2;
    static constexpr int32_t grain = 1;
    static constexpr int32_t grain_bytes = block_bytes(packed, 4);
    static constexpr int32_t x_exponent = 0;
    static constexpr float leftover = 1.0f;
    static constexpr int32_t scales = block_code_bytes(packed, 4);  // offset in a block
};

// The block of a lane's two columns 2t and 2t + 1, and the first of their groups of 16 in it.
__device__ __forceinline__ int32_t column_block(int32_t lane, int32_t n) {
    return n == 1 ? 0 : lane >> 1 & 1;
}

struct RawBf16 : RawType<PackedType::bf16> {
    static constexpr int32_t span = 1;
    template <int n>
    struct Words {
        uint4 step[4];
    };
    static __device__ __forceinline__ void load(Words<1>& words, uint32_t chunk, int32_t block,
                                                int32_t lane) {
        const uint32_t codes = chunk + block * grain_bytes + 16 * lane;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_16(codes + 512 * j);
    }
    static __device__ __forceinline__ void step(const Words<1>& words, int j, uint32_t (&a)[4]) {
        a[0] = words.step[j].x;
        a[1] = words.step[j].y;
        a[2] = words.step[j].z;
        a[3] = words.step[j].w;
    }
    static __device__ __forceinline__ void add(const Words<1>&, const float (&c)[4],
                                               float (&sum)[2]) {
        sum[0] += c[0] + c[1];
        sum[1] += c[2] + c[3];
    }
};

__device__ __forceinline__ uint32_t word_of(const uint4& v, int j) {
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

// Eight e2m1 codes to bfloat16: sign and the lowest bits of exponent and mantissa in place, which
// is their value times 2^-126.
__device__ __forceinline__ void e2m1_pairs(uint32_t word, uint32_t (&a)[4]) {
    constexpr uint32_t sign_and_magnitude = 0x81C081C0u;
    a[0] = word & sign_and_magnitude;
    a[1] = word << 6 & sign_and_magnitude;
    a[2] = __funnelshift_r(word, word, 4) & sign_and_magnitude;
    const uint32_t low_bits = word << 2 & 0x80C080C0u;
    a[3] = low_bits | (__funnelshift_r(word, word, 6) & 0x01000100u);
}

template <int n>
struct FourBitWords {
    uint4 codes[n];
    uint32_t scales;
};

struct RawNvfp4 : RawType<PackedType::nvfp4> {
    static constexpr int32_t x_exponent = 96;
    static constexpr float leftover = 524288.0f;  // 2^(126 - 96 - 11)
    template <int n>
    using Words = FourBitWords<n>;
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t chunk, int32_t block,
                                                int32_t lane) {
        const uint32_t at = chunk + block * grain_bytes;
        words.scales = load_shared_4(at + scales + column_block(lane, n) * grain_bytes +
                                     (lane >> 2) * 8 + (lane & 1) * 4);
#pragma unroll
        for (int i = 0; i < n; ++i) words.codes[i] = load_shared_16(at + i * grain_bytes + 16 * lane);
    }
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t (&a)[4]) {
        e2m1_pairs(word_of(words.codes[j / 4], j % 4), a);
    }
    // A byte of exponent and mantissa moves into a float of 2^11 times its value.
    template <int n>
    static __device__ __forceinline__ void add(const Words<n>& words, const float (&c)[4],
                                               float (&sum)[2]) {
        const uint32_t q = words.scales;  // bytes: group, row half
        sum[0] = fmaf(c[0], scale<0>(q), sum[0]);
        sum[1] = fmaf(c[2], scale<1>(q), sum[1]);
        sum[0] = fmaf(c[1], scale<2>(q), sum[0]);
        sum[1] = fmaf(c[3], scale<3>(q), sum[1]);
    }

  private:
    // Multiplication shifts: it does not wait for the units that the codes are busy with.
    template <int byte>
    static __device__ __forceinline__ float scale(uint32_t bytes) {
        uint32_t bits;
        if constexpr (byte < 3)
            asm("mad.lo.u32 %0, %1, %2, %3;"
                : "=r"(bits)
                : "r"(bytes & 0xFFu << 8 * byte), "n"(1u << (20 - 8 * byte)), "r"(0x40000000u));
        else
            asm("mad.hi.u32 %0, %1, %2, %3;"
                : "=r"(bits)
                : "r"(bytes & 0xFF000000u), "n"(1u << 28), "r"(0x40000000u));
        return __uint_as_float(bits);
    }
};

}  // namespace moe::cuda
