// How exact activations stay on their way into libmoe's kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "interface.hpp"
#include "problem.hpp"

namespace moe::ggml {

// float32 as ggml has them; rounded to bfloat16 in front of each matrix; or to signed bytes in
// kernels that take such.
enum class Precision : uint8_t { f32, bf16, int8 };

// What MOE_GGML_ACTIVATIONS says. Without it bfloat16 where every matrix is quantized: ggml rounds
// activations to bytes there, which is several times coarser.
Precision precision_of(const Problem& problem);

// Rows of floats at one distance, rounded to the nearest bfloat16, ties to even.
void round_to_bf16(const float* rows, int64_t n_rows, int64_t stride, int64_t width,
                   std::vector<uint16_t>& out);

}  // namespace moe::ggml
