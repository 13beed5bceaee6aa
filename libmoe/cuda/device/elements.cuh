// Single elements of rows in device memory: float32, float16 or bfloat16, decided at run time, and
// where a row lies.
#pragma once

#include "libmoe/base/half.hpp"
#include "libmoe/cuda/device/operand.hpp"
#include "libmoe/cuda/experts/product.hpp"

namespace moe::cuda {

__device__ inline float load_element(const void* data, moe_type type, int64_t i) {
    if (type == MOE_TYPE_F32) return static_cast<const float*>(data)[i];
    const uint16_t half = static_cast<const uint16_t*>(data)[i];
    return type == MOE_TYPE_BF16 ? bf16_to_float(half) : pair_of_f16(half).low;
}

__device__ inline void store_element(void* data, moe_type type, int64_t i, float value) {
    if (type == MOE_TYPE_F32) {
        static_cast<float*>(data)[i] = value;
        return;
    }
    const uint32_t half = type == MOE_TYPE_BF16 ? operand_pair<Operand::bf16>({value, value})
                                                : operand_pair<Operand::f16>({value, value});
    static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(half);
}

// First element of row r of a product, or -1 where there is none.
__device__ inline int64_t row_offset(const DeviceRows& rows, int32_t r) {
    if (!rows.index) return r * rows.stride;
    const int32_t i = rows.index[r];
    return i < 0 ? -1 : i / rows.divisor * rows.stride;
}

}  // namespace moe::cuda
