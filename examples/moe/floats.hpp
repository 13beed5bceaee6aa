// floats.hpp - float32 to and from the 16-bit types of activations and weights, to nearest, ties to
// even.
#pragma once

#include <cstdint>
#include <span>

#include "moe/moe.h"

namespace moe::cli {

// Bytes of one element of F32, F16 or BF16.
uint64_t element_bytes(moe_type type);
// out has source.size() elements of type.
void encode_floats(moe_type type, std::span<const float> source, void* out);
void decode_floats(moe_type type, const void* source, std::span<float> out);

}  // namespace moe::cli
