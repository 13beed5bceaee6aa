// Host memory under the name LIBMOE: llama.cpp puts the weights of experts there because the device
// of this buffer type is an accelerator that can compute MUL_MAT_ID with them.
#pragma once

#include <cstddef>

#include "interface.hpp"

namespace moe::ggml {

// Makes the buffer type of a device.
BufferType buffer_type_for(Device* device);

// Makes a buffer of weights that lie in the memory of a mapped file. The memory stays the caller's.
Buffer* buffer_at(BufferType* type, void* memory, size_t bytes);

// Whether a tensor, or what it is a view of, is in a buffer of this type.
bool is_in(const Tensor* tensor, const BufferType* type);

}  // namespace moe::ggml
