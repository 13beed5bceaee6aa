// Random packed weights, generated on the device.
#pragma once

#include <cstdint>

#include "libmoe/weights/device_weights.hpp"

namespace moe::bench {

// Fills the whole block of a layout: random codes, scales of a size that keeps activations near
// one, random router and vectors.
void fill_weights(const WeightsLayout& layout, const DevicePlacement& placement, std::byte* block,
                  uint32_t seed);

// Values in [-1, 1).
void fill_bf16(void* data, int64_t count, uint32_t seed);
void fill_f16(void* data, int64_t count, uint32_t seed);
void fill_f32(void* data, int64_t count, float scale, uint32_t seed);

}  // namespace moe::bench
