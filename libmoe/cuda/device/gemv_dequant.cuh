// From the packed layout in shared memory to A fragments whose scales are applied after the
// product, for one token: codes become 16-bit pairs, and B is laid out so that column n of the
// result is the partial acc of columns k of lane n % 4 (16 contiguous k) of block n / 4 of two
// consecutive blocks of 64 k. Codes that are whole numbers stay bytes, and x becomes two bytes
// (OperandPlaces). A scale then meets its group once per row, in float32. One struct per packed
// type:
//   span         blocks of 64 k of one accumulation: 2, or 1 where there are no scales
//   min_split        blocks of 64 k that cannot be parted, min_split_bytes their bytes
//   Operand      Bf16 or F16: the type of the pairs and of x; Bytes: both are bytes
//   x_exponent   x is multiplied by this power of two before it is rounded to Operand
//   residual_scale     multiplies the sums, and makes up for powers of two that were left out
//   Words<n>     what a lane holds of n <= span blocks
//   load         k_block: shared address of whole splits; block: the first block, in the k_block
//   Table        what step needs of a codebook, made from its shared address
//   step         the A registers of step j of 4 n
//   two_steps    of bytes: those of steps 2 i and 2 i + 1, rows g and g + 8 of the one, then of the
//                other, k 0, 2, 1, 3 of a step
//   Factors      a lane's scales of n blocks as numbers
//   factors      made from Words; of a min_split of several blocks, from its GroupScales and the
//   first block GroupScales         what the blocks of such a min_split share add          adds a
//   lane's four partial sums, scaled, to those of rows g and g + 8 codebook_mode         how codes
//   that are indices become values table_of     the address that a lane makes Table from
//   starts_next_early     may the next kernel start at once? where that was the faster, one token
//   from ids ones         a register of codes 1, for types with minima: their add takes the sums of
//   x as
//                well; 0: none
// 16-bit codes may be subnormal numbers: the tensor cores take them exactly.
#pragma once

#include "libmoe/cuda/device/codebook_mode.hpp"
#include "libmoe/cuda/device/e2m1.hpp"
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
    using Accumulator = float;
    static constexpr bool are_bytes = false;
    static constexpr bool has_block_exponent = false;
    static __device__ __forceinline__ uint32_t pair(float low, float high) {
        uint32_t v;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
        return v;
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_16x8x16<Operand::bf16>(c, a, b0, b1);
    }
};

// x is multiplied by a power of two that brings its largest element below 2^15, so that the 11 bits
// of float16 hold all of a bfloat16 x over 29 binades.
struct F16 {
    using Accumulator = float;
    static constexpr bool are_bytes = false;
    static constexpr bool has_block_exponent = true;
    static constexpr int32_t top = 15;  // elements are below 2^top
    static __device__ __forceinline__ uint32_t pair(float low, float high) {
        uint32_t v;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
        return v;
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_16x8x16<Operand::f16>(c, a, b0, b1);
    }
};

// Codes are bytes, two steps to a product. x is multiplied by a power of two likewise and rounded
// to 256 high + low, signed bytes: within 2^-14 of its largest element, bfloat16 within 2^-9 of
// each.
template <bool codes_signed>
struct Bytes {
    using Accumulator = int32_t;
    static constexpr bool are_bytes = true;
    static constexpr bool has_block_exponent = true;
    static constexpr int32_t top = 14;
    static __device__ __forceinline__ void multiply(int32_t (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_16x8x32<codes_signed>(c, a, b0, b1);
    }
};

// Of two columns that have x's high and its low bytes.
__device__ __forceinline__ float high_and_low(int32_t high, int32_t low) {
    return static_cast<float>(256 * high + low);
}

// Where a lane's two columns share the scales of its two rows.
struct RowScales {
    float first, second;
};

template <PackedType packed>
struct GemvDequantBase {
    static constexpr PackedType type = packed;
    using Operand = Bf16;
    static constexpr int32_t span = 2;
    static constexpr int32_t min_split = 1;
    static constexpr int32_t min_split_bytes = block_bytes(packed, 4);
    static constexpr int32_t x_exponent = 0;
    static constexpr float residual_scale = 1.0f;
    static constexpr uint32_t ones = 0;
    static constexpr CodebookMode codebook_mode = CodebookMode::none;
    static constexpr bool starts_next_early = false;
    using Table = uint32_t;
    static __device__ __forceinline__ uint32_t table_of(uint32_t tables, int32_t) { return tables; }
    static constexpr int32_t scales = block_code_bytes(packed, 4);  // offset in a block
    struct GroupScales {
        __device__ __forceinline__ GroupScales(uint32_t, int32_t, int32_t) {}
    };
    using Factors = RowScales;
    static __device__ __forceinline__ void add(const RowScales& factors, const float (&c)[4],
                                               float (&acc)[2]) {
        acc[0] = fmaf(c[0] + c[1], factors.first, acc[0]);
        acc[1] = fmaf(c[2] + c[3], factors.second, acc[1]);
    }
    static __device__ __forceinline__ void add(const RowScales& factors, const int32_t (&c)[4],
                                               float (&acc)[2]) {
        acc[0] = fmaf(high_and_low(c[0], c[1]), factors.first, acc[0]);
        acc[1] = fmaf(high_and_low(c[2], c[3]), factors.second, acc[1]);
    }
};

// The block of a lane's two columns 2t and 2t + 1, and the first of their groups of 16 in it.
__device__ __forceinline__ int32_t column_block(int32_t lane, int32_t n) {
    return n == 1 ? 0 : lane >> 1 & 1;
}

// 16-bit types: codes are operands, and there are no scales.
template <PackedType packed, class OperandType>
struct Gemv16Bit : GemvDequantBase<packed> {
    using Operand = OperandType;
    static constexpr int32_t span = 1;
    template <int n>
    struct Words {
        uint4 step[4];
    };
    static __device__ __forceinline__ void load(Words<1>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t codes = k_block + block * block_bytes(packed, 4) + 16 * lane;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_16(codes + 512 * j);
    }
    static __device__ __forceinline__ void step(const Words<1>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
        a[0] = words.step[j].x;
        a[1] = words.step[j].y;
        a[2] = words.step[j].z;
        a[3] = words.step[j].w;
    }
    struct Factors {};
    static __device__ __forceinline__ Factors factors(const Words<1>&) {
        return {};
    }
    static __device__ __forceinline__ void add(const Factors&, const float (&c)[4],
                                               float (&acc)[2]) {
        acc[0] += c[0] + c[1];
        acc[1] += c[2] + c[3];
    }
};

using GemvBf16 = Gemv16Bit<PackedType::bf16, Bf16>;
using GemvF16 = Gemv16Bit<PackedType::f16, F16>;

__device__ __forceinline__ uint32_t word_of(const uint4& v, int j) {
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

// Where a lane's two columns have their scales among `bytes` per row and group of 32 k: behind
// those of row half 0 lie those of half 1.
__device__ __forceinline__ uint32_t scales_of_32(uint32_t block_scales, int32_t lane,
                                                 int32_t bytes) {
    return block_scales + ((lane >> 2) * 2 + (lane & 1)) * 2 * bytes;
}

template <int n>
struct FourBitWords {
    uint4 codes[n];
    uint32_t scales;
};

// Codes of e2m1: values times 2^-126, which x and residual_scale make up for.
template <PackedType packed>
struct GemvE2m1 : GemvDequantBase<packed> {
    static constexpr bool starts_next_early = true;
    static constexpr int32_t x_exponent = 96;
    template <int n>
    using Words = FourBitWords<n>;
    template <int n>
    static __device__ __forceinline__ void load_codes(Words<n>& words, uint32_t at, int32_t lane) {
#pragma unroll
        for (int i = 0; i < n; ++i)
            words.codes[i] =
                load_shared_16(at + i * GemvDequantBase<packed>::min_split_bytes + 16 * lane);
    }
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
        const uint32_t word = word_of(words.codes[j / 4], j % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = spread_e2m1(word, i);
    }
};

struct GemvNvfp4 : GemvE2m1<PackedType::nvfp4> {
    static constexpr float residual_scale = 524288.0f;  // 2^(126 - 96 - 11)
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales = load_shared_4(at + scales + column_block(lane, n) * min_split_bytes +
                                     (lane >> 2) * 8 + (lane & 1) * 4);
        load_codes(words, at, lane);
    }
    struct Factors {
        float of[4];  // column, row half
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
    // A byte of exponent and mantissa, where a float has them: 2^11 times its value.
    static __device__ __forceinline__ float factor(uint32_t byte) {
        return __uint_as_float(byte + 0x40000000u);
    }
};

struct GemvMxfp4 : GemvE2m1<PackedType::mxfp4> {
    static constexpr float residual_scale = 1073741824.0f;  // 2^(126 - 96)
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales = load_shared_2(
            scales_of_32(at + scales + column_block(lane, n) * min_split_bytes, lane, 1));
        load_codes(words, at, lane);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        const uint32_t q = words.scales;
        return {__uint_as_float((q & 0xFFu) << 23), __uint_as_float(q >> 8 << 23)};
    }
};

// Codes of a byte: a lane's 32 bytes of a block as two vectors of two steps.
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
};

// Two bytes of e4m3 as float16, in which they are exact. Without the instruction sign and magnitude
// move, which makes 2^-8 of the value, and NaN codes become 480.
__device__ __forceinline__ uint32_t f16_of_e4m3(uint32_t word, int pair) {
    uint32_t values;
#if __CUDA_ARCH__ >= 890
    const auto bytes = static_cast<uint16_t>(pair ? word >> 16 : word);
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(values) : "h"(bytes));
#else
    const uint32_t high = __byte_perm(word, 0, pair ? 0x3424 : 0x1404);
    const uint32_t moved = (high & 0x80008000u) | (high >> 1 & 0x3F803F80u);
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(values) : "r"(moved), "r"(0x5C005C00u));  // 2^8
#endif
    return values;
}

struct GemvE4m3 : GemvDequantBase<PackedType::e4m3> {
    using Operand = F16;
    template <int n>
    struct Words : GemvByteCodes<n> {
        uint2 scales;  // float32 of the two row halves
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales =
            load_shared_8(at + scales + column_block(lane, n) * min_split_bytes + (lane & 1) * 8);
        words.GemvByteCodes<n>::load(at, min_split_bytes, lane);
    }
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = f16_of_e4m3(words.word(j, i / 2), i % 2);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        return {__uint_as_float(words.scales.x), __uint_as_float(words.scales.y)};
    }
};

}  // namespace moe::cuda
