// Gemv kernels and panels of gptq and pack_quantized with act-order.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX2 1

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx2/int8_loops.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/avx2/strip_loops.inc"

#include "libmoe/cpu/dequant/gptq.inc"

#include "libmoe/cpu/avx2/act_order_loops.inc"

namespace moe::cpu {

const FloatKernels* avx2_act_order_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, kernels, Source) \
    case GemvFormat::name:                \
        return &kernels<Source>;
        MOE_FORMAT(gptq2_act_order, act_order_kernels_of_one, GptqSource<2>)
        MOE_FORMAT(gptq3_act_order, act_order_kernels_of_one, GptqSource<3>)
        MOE_FORMAT(gptq4_act_order, act_order_kernels, GptqSource<4>)
        MOE_FORMAT(gptq8_act_order, act_order_kernels_of_one, GptqSource<8>)
        MOE_FORMAT(pack2_act_order, act_order_kernels_of_one, PackSource<2>)
        MOE_FORMAT(pack4_act_order, act_order_kernels_of_one, PackSource<4>)
        MOE_FORMAT(pack8_act_order, act_order_kernels_of_one, PackSource<8>)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
