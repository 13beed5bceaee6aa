// The formats of the cases: the named ones, and some that have no name in moe.h.
#pragma once

#include <vector>

#include "handles.hpp"
#include "numbers.hpp"

namespace moe_gpu {

// Of a public name, or of one of unnamed_formats().
moe_format format_named(const char* name);
// All with a public name; CUDA packs them.
std::vector<const char*> packed_formats();
// GPTQ, AWQ, compressed-tensors, bitsandbytes and grids of scales that CUDA packs.
std::vector<const char*> unnamed_formats();
// kbit with codebooks that come with the tensors; no other list has them.
std::vector<const char*> given_codebooks();
// Some kernels round its weights to 16 bits, by more than the limit of 16-bit activations was made
// for.
bool has_rounded_weights(const char* name);

// One matrix, buffers as moe_tensor has them.
struct FormatBuffers {
    Bytes data, scales, zero_points;
    Floats nested_scales;
    std::vector<int32_t> permutation;  // of all matrices of a stack
    Floats pre_quant_scale;            // likewise
    Floats codebook;                   // likewise
    float global_scale = 1;

    // Sets what the format has, for one matrix or a stack of them.
    void describe(moe_tensor& tensor) const;
    void append(const FormatBuffers& next);
};

// Values of about `spread` around `middle`: through moe_quantize, or, of formats that it does not
// write, random codes under scales that give `spread`. A codebook that the format wants is that of
// `codebook`, and an order of columns or their factors are those of `table`.
FormatBuffers random_matrix(const moe_format& format, int64_t rows, int64_t columns, uint64_t seed,
                            float spread, float middle, uint64_t codebook = 0, uint64_t table = 0);

}  // namespace moe_gpu
