// The gemv and gemm kernels of AVX2: which formats they read. The kernels themselves are in the
// files beside this one, by kind of format.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)

namespace moe::cpu {
namespace {

// Rows from which on panels of words and of float32 pay: few where the gemv looks codes up for
// every four rows, many where it reads values as they are.
int64_t min_word_rows(GemvFormat format) {
    switch (format) {
        case GemvFormat::iq4_nl:
        case GemvFormat::iq4_xs:
        case GemvFormat::iq4_nl_x16:
        case GemvFormat::iq4_xs_x16:
        case GemvFormat::iq2_xxs:
        case GemvFormat::iq2_xs:
        case GemvFormat::iq3_xxs:
        case GemvFormat::iq3_s:
            return 3;
        default:
            return 5;
    }
}
int64_t min_value_rows(GemvFormat format) {
    switch (format) {
        case GemvFormat::f32:
        case GemvFormat::f16:
        case GemvFormat::bf16:
            return 16;
        case GemvFormat::fp8:
            return 8;
        default:
            return 12;
    }
}

const WordKernels* word_kernels(GemvFormat format) {
    if (const WordKernels* found = avx2_blocks_kernels(format)) return found;
    if (const WordKernels* found = avx2_k_kernels(format)) return found;
    if (const WordKernels* found = avx2_strip_kernels(format)) return found;
    if (const WordKernels* found = avx2_interleaved_kernels(format)) return found;
    return avx2_grid_kernels(format);
}

const FloatKernels* float_kernels(GemvFormat format) {
    const FloatKernels* found = avx2_float_kernels(format);
    return found ? found : avx2_act_order_kernels(format);
}

const GemvKernels* kernels(GemvFormat format, int32_t parts) {
    if (parts == 0) {
        const FloatKernels* found = float_kernels(format);
        return found ? &found->gemv : avx2_transposed_kernels(format);
    }
    if (parts == 1) return nullptr;
    const WordKernels* found = word_kernels(format);
    return found ? &found->gemv[parts - 2] : nullptr;
}

GemmKernels gemm_of_words(GemvFormat format, const WordPanels& panels, const Quantization& rows) {
    if (!panels.dequantize || !rows.has_words || rows.parts < 2) return {};
    return {.dequantize = panels.dequantize,
            .multiply = word_panel_multiply_avx2(rows.parts, panels),
            .rows = RowForm::words,
            .scale_columns = panels.scale_columns,
            .min_rows = min_word_rows(format)};
}

GemmKernels gemm(GemvFormat format, const Quantization& rows) {
    if (const WordKernels* found = word_kernels(format))
        return gemm_of_words(format, found->panels, rows);
    const FloatKernels* found = float_kernels(format);
    if (!found) return {};
    if (!found->dequantize) return gemm_of_words(format, found->words, rows);
    return {.dequantize = found->dequantize,
            .multiply = multiply_value_panel_avx2,
            .rows = RowForm::floats,
            .min_rows = min_value_rows(format)};
}

}  // namespace

const GemvFamily gemv_avx2 = {kernels, quantize_avx2, gemm, true, nullptr, activate_avx2};

}  // namespace moe::cpu
#endif
