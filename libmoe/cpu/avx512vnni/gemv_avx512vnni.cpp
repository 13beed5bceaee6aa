// The gemv kernels of AVX-512 with VNNI and VBMI: which formats they read. The kernels themselves
// are in the files beside this one, by kind of format.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)

namespace moe::cpu {
namespace {

const IntegerKernels* integer_kernels(GemvFormat format) {
    if (const IntegerKernels* found = avx512vnni_small_kernels(format)) return found;
    if (const IntegerKernels* found = avx512vnni_k_kernels(format)) return found;
    if (const IntegerKernels* found = avx512vnni_strip_kernels(format)) return found;
    if (const IntegerKernels* found = avx512vnni_interleaved_kernels(format)) return found;
    return avx512vnni_grid_kernels(format);
}

const ValueKernels* value_kernels(GemvFormat format) {
    const ValueKernels* found = avx512vnni_float_kernels(format);
    return found ? found : avx512vnni_act_order_kernels(format);
}

}  // namespace

const GemvKernels* avx512vnni_kernels(GemvFormat format, int32_t parts) {
    if (parts == 0) {
        const ValueKernels* found = value_kernels(format);
        return found ? &found->gemv : avx512vnni_transposed_kernels(format);
    }
    if (parts == 2)
        if (const GemvKernels* found = avx512vnni_codebook_kernels(format)) return found;
    const IntegerKernels* found = integer_kernels(format);
    return found ? &found->gemv[parts - 1] : nullptr;
}

GemmKernels avx512vnni_gemm(GemvFormat format, const Quantization& rows) {
    if (rows.parts)
        if (const IntegerKernels* found = integer_kernels(format))
            return {.dequantize = found->dequantize,
                    .multiply = integer_panel_multiply_avx512vnni(rows.parts, found->scale_columns),
                    .rows = RowForm::integers,
                    .scale_columns = found->scale_columns,
                    .min_rows = rows.parts == 1   ? found->min_rows_of_one_part
                                : rows.parts == 2 ? found->min_rows
                                                  : min_panel_rows};
    if (rows.has_bf16 && !(format == GemvFormat::f16 && rows.has_computed))
        if (const GemmKernels found = gemm_avx512bf16(format, false); found.dequantize)
            return found;
    if (const ValueKernels* found = value_kernels(format))
        return {found->dequantize, multiply_value_panel_avx512, RowForm::floats};
    return {};
}

const GemvFamily gemv_avx512vnni = {avx512vnni_kernels,
                                    quantize_avx512vnni,
                                    avx512vnni_gemm,
                                    true,
                                    gemv_avx512bf16,
                                    activate_avx512vnni,
                                    true};

}  // namespace moe::cpu
#endif
