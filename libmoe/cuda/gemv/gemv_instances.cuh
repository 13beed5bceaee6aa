// The gemv kernels as table entries, for the packed types of a group and a pipeline
// (stream_pipeline.cuh). A slice of translation for each group and pipeline.
#pragma once

#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/dequant/grid_gemv.cuh"
#include "libmoe/cuda/dequant/iq.cuh"
#include "libmoe/cuda/dequant/iq4_nl.cuh"
#include "libmoe/cuda/dequant/iq4_xs.cuh"
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/dequant/q2_k.cuh"
#include "libmoe/cuda/dequant/q3_k.cuh"
#include "libmoe/cuda/dequant/q4_0.cuh"
#include "libmoe/cuda/dequant/q4_1.cuh"
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/dequant/q5_0.cuh"
#include "libmoe/cuda/dequant/q5_1.cuh"
#include "libmoe/cuda/dequant/q5_k.cuh"
#include "libmoe/cuda/dequant/q6_k.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"
#include "libmoe/cuda/gemv/gemv_down.cuh"
#include "libmoe/cuda/gemv/gemv_gate_up.cuh"
#include "libmoe/cuda/kernel_types.hpp"

namespace moe::cuda {

// Dequantizers of a grid may be for scales of one type.
template <class Dequant>
constexpr bool reads_scales_of(PackedType type) {
    if constexpr (is_grid(Dequant::type)) return has_grid_form(type, Dequant::form);
    return true;
}

template <class Pipeline, class Dequant>
void take_kernels(PackedType type, CodebookMode codebook_mode, GemvKernels& found) {
    static_assert(gemv_has_bf16_operands(Dequant::type) != Dequant::Operand::has_block_exponent);
    if (kind_of(type) != Dequant::type || codebook_mode != Dequant::codebook_mode ||
        !reads_scales_of<Dequant>(type))
        return;
    found = {reinterpret_cast<const void*>(&gemv_gate_up<Dequant, Pipeline, WholeBlock>), nullptr,
             reinterpret_cast<const void*>(&gemv_down<Dequant, Pipeline>),
             Dequant::Operand::has_block_exponent ? 0 : Dequant::x_exponent};
    found.gate_up_split_k =
        reinterpret_cast<const void*>(&gemv_gate_up<Dequant, Pipeline, SplitKGroup>);
}

// Those of the type, if it is one of the group.
template <class Pipeline, class... Dequant>
GemvKernels kernels_among(PackedType type, CodebookMode codebook_mode) {
    GemvKernels found;
    (take_kernels<Pipeline, Dequant>(type, codebook_mode, found), ...);
    return found;
}

template <class Pipeline>
GemvKernels plain_kernels(PackedType type, CodebookMode codebook_mode) {
    return kernels_among<Pipeline, GemvDequant<PackedType::bf16>, GemvDequant<PackedType::f16>,
                         GemvDequant<PackedType::e4m3>>(type, codebook_mode);
}

template <class Pipeline>
GemvKernels fp4_kernels(PackedType type, CodebookMode codebook_mode) {
    return kernels_among<Pipeline, GemvDequant<PackedType::nvfp4>, GemvDequant<PackedType::mxfp4>>(
        type, codebook_mode);
}

template <class Pipeline, PackedType two, PackedType three, PackedType four, PackedType five>
GemvKernels kernels_of_bits(PackedType type, CodebookMode codebook_mode) {
    return kernels_among<
        Pipeline, GemvDequant<two, CodebookMode::per_expert>,
        GemvDequant<three, CodebookMode::per_expert>, GemvDequant<four, CodebookMode::per_expert>,
        GemvDequant<five, CodebookMode::per_expert>, GemvDequant<two, CodebookMode::shared_bytes>,
        GemvDequant<three, CodebookMode::shared_bytes>,
        GemvDequant<four, CodebookMode::shared_lanes>,
        GemvDequant<five, CodebookMode::shared_lanes>>(type, codebook_mode);
}

// With scales of one byte or float32. Together their instances take fewer bytes of the library: a
// file is compressed as one.
template <class Pipeline>
GemvKernels kbit_kernels(PackedType type, CodebookMode codebook_mode) {
    const GemvKernels of_bytes =
        kernels_of_bits<Pipeline, PackedType::kbit2, PackedType::kbit3, PackedType::kbit4,
                        PackedType::kbit5>(type, codebook_mode);
    if (of_bytes.gate_up) return of_bytes;
    return kernels_of_bits<Pipeline, PackedType::kbit2_f32, PackedType::kbit3_f32,
                           PackedType::kbit4_f32, PackedType::kbit5_f32>(type, codebook_mode);
}

template <class Pipeline>
GemvKernels gguf_kernels(PackedType type, CodebookMode codebook_mode) {
    return kernels_among<Pipeline, GemvDequant<PackedType::q8_0>, GemvDequant<PackedType::q4_0>,
                         GemvDequant<PackedType::q4_1>, GemvDequant<PackedType::q5_0>,
                         GemvDequant<PackedType::q5_1>, GemvDequant<PackedType::iq4_nl>>(
        type, codebook_mode);
}

template <class Pipeline>
GemvKernels gguf_k_kernels(PackedType type, CodebookMode codebook_mode) {
    return kernels_among<Pipeline, GemvDequant<PackedType::q4_k>, GemvDequant<PackedType::q5_k>,
                         GemvDequant<PackedType::q6_k>, GemvDequant<PackedType::q3_k>,
                         GemvDequant<PackedType::q2_k>, GemvDequant<PackedType::iq4_xs>>(
        type, codebook_mode);
}

// Hopper alone copies the entries of tables, as GemvTuning has it.
template <class Pipeline>
GemvKernels iq_kernels(PackedType type, CodebookMode codebook_mode) {
    constexpr bool has_copies = std::is_same_v<Pipeline, BulkPipeline>;
    return kernels_among<Pipeline, GemvIqDequant<PackedType::iq2_xxs, has_copies>,
                         GemvIqDequant<PackedType::iq2_xs, has_copies>,
                         GemvIqDequant<PackedType::iq3_xxs, has_copies>,
                         GemvIqDequant<PackedType::iq3_s, has_copies>>(type, codebook_mode);
}

template <class Pipeline>
GemvKernels grid_kernels(PackedType type, CodebookMode codebook_mode) {
    return kernels_among<Pipeline, GemvDequant<PackedType::grid_2>, GemvDequant<PackedType::grid_3>,
                         GemvDequant<PackedType::grid_4>, GemvDequant<PackedType::grid_8>,
                         GemvDequant<PackedType::grid_e4m3>,
                         GemvDequant<PackedType::grid_codebook, CodebookMode::per_expert>,
                         GemvDequant<PackedType::grid_codebook, CodebookMode::shared_lanes>>(
        type, codebook_mode);
}

// The grids that most files have, by the type of their scales.
template <class Pipeline>
GemvKernels grid_form_kernels(PackedType type, CodebookMode codebook_mode) {
    using enum PackedType;
    return kernels_among<
        Pipeline, GemvGrid<grid_4, GridForm::f16>, GemvGrid<grid_4, GridForm::bf16>,
        GemvGrid<grid_8, GridForm::f16>, GemvGrid<grid_8, GridForm::bf16>,
        GemvGrid<grid_8, GridForm::f32>, GemvGrid<grid_e4m3, GridForm::f32>,
        GemvGrid<grid_e4m3, GridForm::e8m0>,
        GemvGrid<grid_codebook, GridForm::f32_by_block, CodebookMode::shared_lanes>>(type,
                                                                                     codebook_mode);
}

}  // namespace moe::cuda
