// Loads and stores of activations (F32, F16 or BF16) in device memory as float32, one or eight at a
// time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "libmoe/cuda/device_rows.hpp"

namespace moe::cuda {

__host__ __device__ inline const std::byte* element_at(const void* data, moe_type type,
                                                       int64_t index) {
    return static_cast<const std::byte*>(data) + index * element_size(type);
}

__host__ __device__ inline std::byte* element_at(void* data, moe_type type, int64_t index) {
    return static_cast<std::byte*>(data) + index * element_size(type);
}

__device__ inline float widen(uint16_t bits, moe_type type) {
    if (type == MOE_TYPE_BF16) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
    return __half2float(__ushort_as_half(bits));
}

__device__ inline uint16_t narrow(float value, moe_type type) {
    if (type == MOE_TYPE_BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return __half_as_ushort(__float2half_rn(value));
}

// Packs two values in a word, the first in the low half.
__device__ inline uint32_t narrow_pair(float first, float second, moe_type type) {
    return narrow(first, type) | static_cast<uint32_t>(narrow(second, type)) << 16;
}

// Holds n values as memory has them; n is 8 (aligned to 16 bytes) or 1. Load and conversion are
// separate, so that several loads can be in flight.
template <moe_type type, int n>
struct Packet {
    static_assert(n == 8 || n == 1);
    static constexpr bool is_wide = type == MOE_TYPE_F32;
    static constexpr int n_words = n == 1 ? 1 : is_wide ? 8 : 4;

    uint32_t word[n_words];

    __device__ void load(const std::byte* from) {
        if constexpr (n == 1) {
            word[0] = is_wide ? *reinterpret_cast<const uint32_t*>(from)
                              : *reinterpret_cast<const uint16_t*>(from);
        } else {
#pragma unroll
            for (int i = 0; i < n_words; i += 4) {
                const uint4 v = *reinterpret_cast<const uint4*>(from + 4 * i);
                word[i] = v.x;
                word[i + 1] = v.y;
                word[i + 2] = v.z;
                word[i + 3] = v.w;
            }
        }
    }

    __device__ float value(int i) const {
        if constexpr (is_wide) return __uint_as_float(word[i]);
        return widen(static_cast<uint16_t>(word[i / 2] >> (i % 2 * 16)), type);
    }
};

template <moe_type type, int n>
__device__ void load_as(const std::byte* from, float (&out)[n]) {
    Packet<type, n> packet;
    packet.load(from);
#pragma unroll
    for (int i = 0; i < n; i++) out[i] = packet.value(i);
}

// The type is a run-time value and uniform over the warp.
template <int n>
__device__ void load_values(const void* data, moe_type type, int64_t index, float (&out)[n]) {
    const std::byte* from = element_at(data, type, index);
    if (type == MOE_TYPE_F32) return load_as<MOE_TYPE_F32>(from, out);
    if (type == MOE_TYPE_F16) return load_as<MOE_TYPE_F16>(from, out);
    load_as<MOE_TYPE_BF16>(from, out);
}

__device__ inline float load_value(const void* data, moe_type type, int64_t index) {
    float value[1];
    load_values(data, type, index, value);
    return value[0];
}

template <int n>
__device__ void store_values(void* data, moe_type type, int64_t index, const float (&values)[n]) {
    std::byte* to = element_at(data, type, index);
    if constexpr (n == 1) {
        if (type == MOE_TYPE_F32)
            *reinterpret_cast<float*>(to) = values[0];
        else
            *reinterpret_cast<uint16_t*>(to) = narrow(values[0], type);
    } else if (type == MOE_TYPE_F32) {
#pragma unroll
        for (int i = 0; i < n; i += 4)
            *reinterpret_cast<float4*>(to + 4 * i) =
                make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(
            narrow_pair(values[0], values[1], type), narrow_pair(values[2], values[3], type),
            narrow_pair(values[4], values[5], type), narrow_pair(values[6], values[7], type));
    }
}

__device__ inline void store_value(void* data, moe_type type, int64_t index, float value) {
    const float values[1] = {value};
    store_values(data, type, index, values);
}

// True if rows at data, `stride` elements apart, can be read eight elements at a time.
inline bool takes_packets(const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace moe::cuda
