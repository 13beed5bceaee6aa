// Eight neighbouring values of a row of the router's operands, as they lie in memory, then as
// float32. Whether they take two or four bytes each is fixed by the kernel, F16 or BF16 is not.
#pragma once

#include "libmoe/cuda/device/element.cuh"

namespace moe::cuda {

// Rows in device memory, read eight columns at a time.
struct OctetRows {
    const void* data;
    moe_type type;
    int64_t stride;
    bool packets;  // 16-byte loads are possible
};

template <bool is_wide>
struct Octet {
    uint32_t word[is_wide ? 8 : 4];

    __device__ void load(const OctetRows& rows, int64_t row, int32_t column) {
        const int64_t index = row * rows.stride + column;
        if (rows.packets) {
            Packet<is_wide ? MOE_TYPE_F32 : MOE_TYPE_BF16, 8> packet;
            packet.load(element_at(rows.data, rows.type, index));
            for (int i = 0; i < (is_wide ? 8 : 4); i++) word[i] = packet.word[i];
        } else if constexpr (is_wide) {
            for (int i = 0; i < 8; i++)
                word[i] = static_cast<const uint32_t*>(rows.data)[index + i];
        } else {
            const auto* halves = static_cast<const uint16_t*>(rows.data) + index;
            for (int i = 0; i < 4; i++)
                word[i] = halves[2 * i] | static_cast<uint32_t>(halves[2 * i + 1]) << 16;
        }
    }

    __device__ void decode(moe_type type, float (&v)[8]) const {
        if constexpr (is_wide) {
            for (int i = 0; i < 8; i++) v[i] = __uint_as_float(word[i]);
        } else if (type == MOE_TYPE_BF16) {
            for (int i = 0; i < 4; i++) {
                v[2 * i] = __uint_as_float(word[i] << 16);
                v[2 * i + 1] = __uint_as_float(word[i] & 0xFFFF0000u);
            }
        } else {
            for (int i = 0; i < 8; i++)
                v[i] = widen(static_cast<uint16_t>(word[i / 2] >> (i % 2 * 16)), MOE_TYPE_F16);
        }
    }
};

}  // namespace moe::cuda
