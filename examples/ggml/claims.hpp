// Which operations the backend says it computes: MUL_MAT_ID with weights in its buffers, and what
// follows from it up to the weighted sum of a token's experts. llama.cpp's scheduler then hands
// over the whole chain at once.
#pragma once

#include "interface.hpp"

namespace moe::ggml {

bool claims(const Tensor* op, const BufferType* ours);

}  // namespace moe::ggml
