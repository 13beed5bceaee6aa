// Activation rows in device memory, read or written through an optional index. Types: F32, F16 or
// BF16, of token blocks E4M3 too (fp8_blocks.hpp); a row has `stride` elements from one to the
// next.
#pragma once

#include <cstddef>

#include "libmoe/base/host_device.hpp"
#include "moe/moe.h"

namespace moe::cuda {

// Returns the bytes of an element.
MOE_HOST_DEVICE constexpr int64_t element_size(moe_type type) {
    return type == MOE_TYPE_F32 ? 4 : type == MOE_TYPE_F8_E4M3 ? 1 : 2;
}

// Row r is row index[r] / divisor of data, or row r itself when index is null. A row with a
// negative index is zero when read and is not stored when written.
struct DeviceRows {
    const void* data;
    moe_type type;   // F32, F16, BF16, E4M3
    int64_t stride;  // elements
    const int32_t* index;
    int32_t divisor;
};

// Row r is row r of data.
constexpr DeviceRows dense_rows(const void* data, moe_type type, int64_t stride) {
    return {data, type, stride, nullptr, 1};
}

// Does each of n rows begin on 16 bytes?
inline bool begin_on_16_bytes(const DeviceRows& rows, int64_t n) {
    const int64_t row_bytes = n > 1 ? rows.stride * element_size(rows.type) : 0;
    return row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
}

// The rows of a dense input from row `first` on; null stays null.
inline DeviceRows rows_from(DeviceRows rows, int64_t first) {
    if (rows.data)
        rows.data = static_cast<const std::byte*>(rows.data) +
                    first * rows.stride * element_size(rows.type);
    return rows;
}

}  // namespace moe::cuda
