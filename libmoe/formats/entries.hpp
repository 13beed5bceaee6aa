// The entry of each format in the table of format.cpp, defined in the file of the format.
#pragma once

#include <array>

#include "libmoe/formats/format.hpp"

namespace moe {

extern const std::array<FormatTraits, 3> dense_formats;  // f32 f16 bf16
extern const FormatTraits fp8_128x128_format;
extern const FormatTraits fp8_128x128_e8m0_format;  // powers of two as scales; read only
extern const FormatTraits nvfp4_format;
extern const FormatTraits nvfp4_divide_format;  // compressed-tensors' global scale; read only
extern const FormatTraits mxfp4_format;
// kbit2 .. kbit5, then kbit2_f32 .. kbit5_f32; the same with a codebook given by the caller.
extern const std::array<FormatTraits, 8> kbit_formats;
extern const std::array<FormatTraits, 8> kbit_given_formats;
extern const FormatTraits q8_0_format;
extern const FormatTraits q4_k_format;
extern const FormatTraits mxfp4_gguf_format;
extern const FormatTraits q4_0_format;
extern const FormatTraits q4_1_format;
extern const FormatTraits q5_0_format;
extern const FormatTraits q5_1_format;
extern const FormatTraits q2_k_format;
extern const FormatTraits q3_k_format;
extern const FormatTraits q5_k_format;
extern const FormatTraits q6_k_format;
extern const FormatTraits iq4_nl_format;
extern const FormatTraits iq4_xs_format;
extern const FormatTraits nvfp4_gguf_format;
extern const FormatTraits nvfp4_gguf_alone_format;  // without a global scale; read only
extern const FormatTraits iq2_xxs_format;           // read only, as all of the iq2 and iq3 formats
extern const FormatTraits iq2_xs_format;
extern const FormatTraits iq3_xxs_format;
extern const FormatTraits iq3_s_format;

// Of any group sizes; none has a public name. FP8 is written, too, and so is symmetric
// pack-quantized from 2 bits on.
extern const std::array<FormatTraits, 2> nvfp4_pre_quant_formats;  // multiply, divide
extern const std::array<FormatTraits, 4> fp8_grid_formats;         // f32 f16 bf16 e8m0 scales
extern const FormatTraits int8_grid_format;
extern const std::array<FormatTraits, 8> nibble_grid_formats;  // int4, FP4
extern const std::array<FormatTraits, 5> e5m2_formats;         // alone; f32 f16 bf16 e8m0 scales
extern const FormatTraits gptq_format;
extern const FormatTraits awq_format;
extern const FormatTraits affine_format;
extern const std::array<FormatTraits, 2> pack_quantized_formats;  // written; only read
extern const std::array<FormatTraits, 2> bnb_4bit_formats;        // plain, nested

// The 16 values of E2M1.
const float* e2m1_codebook();
// Of bitsandbytes, 16 values; null for other codebooks.
const float* bnb_codebook(moe_codebook codebook);
// Values of the normal-float codebook of 2 to 5 bits, else null.
const float* normal_float_codebook(int32_t bits);

}  // namespace moe
