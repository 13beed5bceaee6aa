// Activation rows as integers, for NEON; the bits are those of avx512vnni/quantize.cpp.
#include "libmoe/cpu/neon/gemv_tables.hpp"

#if defined(MOE_AARCH64)
#include <arm_neon.h>

#include "libmoe/cpu/neon/vectors.inc"

namespace moe::cpu {
namespace {

// Scales are normal numbers with a finite inverse.
constexpr float least_scale = 0x1p-120f;

// 32 columns of which `x` has the values: integers that the largest magnitude takes to `largest`.
// Returns the scale; an infinity or a NaN makes it NaN and the integers 0.
float quantize_group(const Floats (&x)[8], float largest, Sums (&codes)[8]) {
    Floats most = vdupq_n_f32(0.0f), differences = vdupq_n_f32(0.0f);
    for (const Floats v : x) {
        most = vmaxq_f32(most, vabsq_f32(v));
        differences = vaddq_f32(differences, vsubq_f32(v, v));
    }
    const bool is_finite = vminvq_u32(vceqq_f32(differences, differences)) != 0;
    const float wanted = vmaxvq_f32(most) * (1.0f / largest);
    const float scale = wanted > least_scale ? wanted : least_scale;
    const float inverse = 1.0f / scale;
    for (int i = 0; i < 8; ++i)
        codes[i] = is_finite ? vcvtnq_s32_f32(vmulq_n_f32(x[i], inverse)) : vdupq_n_s32(0);
    return is_finite ? scale : __builtin_nanf("");
}

float sum_of(Sums a, Sums b, Sums c, Sums d) {
    return static_cast<float>(vaddvq_s32(vaddq_s32(vaddq_s32(a, b), vaddq_s32(c, d))));
}

// The least significant byte of 16 integers.
Codes low_bytes(const Sums* codes) {
    const int16x8_t low = vcombine_s16(vmovn_s32(codes[0]), vmovn_s32(codes[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(codes[2]), vmovn_s32(codes[3]));
    return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

// 256 columns: scales and sums, the same of 32 columns, and the parts in their natural order, the
// least significant first.
template <int parts>
void quantize_step(const float* row, int64_t columns, float* scales, float* sums, float* of_32,
                   int8_t (&bytes)[parts][quantized_step]) {
    constexpr float largest = parts == 2 ? 32512.0f : 8323072.0f;
    for (int64_t k = 0; k < quantized_step; k += 32) {
        Floats x[8];
        for (int64_t i = 0; i < 8; ++i)
            x[i] = k + 4 * i < columns ? vld1q_f32(row + k + 4 * i) : vdupq_n_f32(0.0f);
        Sums codes[8];
        const float scale = quantize_group(x, largest, codes);
        scales[k / 16] = scales[k / 16 + 1] = scale;
        sums[k / 16] = sum_of(codes[0], codes[1], codes[2], codes[3]) * scale;
        sums[k / 16 + 1] = sum_of(codes[4], codes[5], codes[6], codes[7]) * scale;
        of_32[k / 32] = scale;
        of_32[k / 32 + 8] = sums[k / 16] + sums[k / 16 + 1];
        for (auto& part : bytes) {
            vst1q_s8(part + k, low_bytes(codes));
            vst1q_s8(part + k + 16, low_bytes(codes + 4));
            for (Sums& code : codes) code = vshrq_n_s32(vaddq_s32(code, vdupq_n_s32(128)), 8);
        }
    }
}

// 16 of 256 bytes, by their columns.
Codes look_up_256(const int8_t* bytes, Bytes column) {
    Codes found = vqtbl4q_s8(vld1q_s8_x4(bytes), column);
    for (int i = 1; i < 4; ++i)
        found = vqtbx4q_s8(found, vld1q_s8_x4(bytes + 64 * i),
                           vsubq_u8(column, vdupq_n_u8(static_cast<uint8_t>(64 * i))));
    return found;
}

template <int parts>
void quantize(const float* row, int64_t columns, uint32_t orders, std::byte* out) {
    const int64_t padded = (columns + quantized_step - 1) / quantized_step * quantized_step;
    auto* scales = reinterpret_cast<float*>(out);
    float* sums = scales + padded / 16;
    float* of_32 = sums + padded / 16;
    auto* integers = reinterpret_cast<int8_t*>(of_32 + padded / 16);
    int8_t bytes[parts][quantized_step];
    for (int64_t begin = 0; begin < padded; begin += quantized_step) {
        quantize_step<parts>(row + begin, columns - begin, scales + begin / 16, sums + begin / 16,
                             of_32 + begin / 16, bytes);
        int8_t* to = integers + begin * parts;
        for (uint32_t order = 0; orders >> order; ++order) {
            if (!(orders >> order & 1)) continue;
            for (int i = 0; i < quantized_step; i += 16) {
                const Bytes column = load_bytes(column_orders.column[order] + i);
                for (int part = 0; part < parts; ++part)
                    vst1q_s8(to + i / 64 * (64 * parts) + 64 * part + i % 64,
                             look_up_256(bytes[parts - 1 - part], column));
            }
            to += padded * parts;
        }
    }
}

}  // namespace

void quantize_neon(const float* row, int64_t columns, const Quantization& how, std::byte* out) {
    if (how.parts == 2)
        quantize<2>(row, columns, how.orders, out);
    else
        quantize<3>(row, columns, how.orders, out);
}

}  // namespace moe::cpu
#endif
