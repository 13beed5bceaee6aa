// The packed types that a kernel family has instances for. plan/ chooses by these lists, with or
// without CUDA in the build; a test of builds with CUDA holds them to the instances.
#pragma once

#include "libmoe/cuda/dequant/grid_records.hpp"

namespace moe::cuda {

// gemv, on every architecture.
inline constexpr PackedType gemv_types[] = {
    PackedType::bf16,      PackedType::f16,       PackedType::e4m3,          PackedType::nvfp4,
    PackedType::mxfp4,     PackedType::kbit2,     PackedType::kbit3,         PackedType::kbit4,
    PackedType::kbit5,     PackedType::kbit2_f32, PackedType::kbit3_f32,     PackedType::kbit4_f32,
    PackedType::kbit5_f32, PackedType::q8_0,      PackedType::q4_k,          PackedType::q5_k,
    PackedType::q6_k,      PackedType::q4_0,      PackedType::q4_1,          PackedType::q5_0,
    PackedType::q5_1,      PackedType::iq4_nl,    PackedType::iq4_xs,        PackedType::q3_k,
    PackedType::q2_k,      PackedType::iq2_xxs,   PackedType::iq2_xs,        PackedType::iq3_xxs,
    PackedType::iq3_s,     PackedType::grid_2,    PackedType::grid_3,        PackedType::grid_4,
    PackedType::grid_8,    PackedType::grid_e4m3, PackedType::grid_codebook,
};

// Hopper's grouped GEMM.
inline constexpr PackedType grouped_types[] = {
    PackedType::bf16,      PackedType::f16,       PackedType::e4m3,          PackedType::nvfp4,
    PackedType::mxfp4,     PackedType::kbit2,     PackedType::kbit3,         PackedType::kbit4,
    PackedType::kbit5,     PackedType::kbit2_f32, PackedType::kbit3_f32,     PackedType::kbit4_f32,
    PackedType::kbit5_f32, PackedType::q8_0,      PackedType::q4_k,          PackedType::q5_k,
    PackedType::q6_k,      PackedType::q4_0,      PackedType::q4_1,          PackedType::q5_0,
    PackedType::q5_1,      PackedType::iq4_nl,    PackedType::iq4_xs,        PackedType::q3_k,
    PackedType::q2_k,      PackedType::iq2_xxs,   PackedType::iq2_xs,        PackedType::iq3_xxs,
    PackedType::iq3_s,     PackedType::grid_2,    PackedType::grid_3,        PackedType::grid_4,
    PackedType::grid_8,    PackedType::grid_e4m3, PackedType::grid_codebook,
};

// The same with float16 operands.
inline constexpr PackedType grouped_in_f16_types[] = {
    PackedType::f16,    PackedType::bf16,   PackedType::e4m3,         PackedType::nvfp4,
    PackedType::mxfp4,  PackedType::kbit2,  PackedType::kbit3,        PackedType::kbit4,
    PackedType::kbit5,  PackedType::q8_0,   PackedType::q4_k,         PackedType::q6_k,
    PackedType::grid_4, PackedType::grid_8, PackedType::grid_codebook};

// Hopper's grouped GEMM of E4M3.
inline constexpr PackedType fp8_grouped_types[] = {PackedType::e4m3, PackedType::grid_e4m3,
                                                   PackedType::grid_4, PackedType::nvfp4,
                                                   PackedType::mxfp4};

// The types of most files, for which the portable grouped GEMM has kernels for middle tiles.
inline constexpr PackedType sm80_middle_kinds[] = {PackedType::nvfp4, PackedType::mxfp4,
                                                   PackedType::q4_k,  PackedType::q6_k,
                                                   PackedType::e4m3,  PackedType::grid_4};

// Types whose gemv kernels multiply bfloat16 operands; the others have operands that hold float16
// values as they are.
constexpr bool gemv_has_bf16_operands(PackedType type) {
    return type == PackedType::bf16 || type == PackedType::nvfp4 || type == PackedType::mxfp4;
}

constexpr bool gemv_supports(PackedType type) {
    if (is_grid(type) && !gemv_reads_grid(type)) return false;
    for (const PackedType one : gemv_types)
        if (one == kind_of(type)) return true;
    return false;
}

constexpr bool grouped_supports(PackedType type) {
    if (is_grid(type) && !grouped_reads_grid(type)) return false;
    for (const PackedType one : grouped_types)
        if (one == kind_of(type)) return true;
    return false;
}

constexpr bool grouped_in_f16_supports(PackedType type) {
    if (!grouped_supports(type)) return false;
    for (const PackedType one : grouped_in_f16_types)
        if (one == kind_of(type)) return true;
    return false;
}

constexpr bool is_sm80_middle_kind(PackedType kind) {
    for (const PackedType one : sm80_middle_kinds)
        if (one == kind) return true;
    return false;
}

// Integers have them if their groups are whole blocks of 64 columns.
inline bool sm80_has_middle(PackedType type) {
    return is_sm80_middle_kind(kind_of(type)) &&
           (!is_grid(type) || grid_records_of(type, 64).are_whole);
}

// Kernels of E4M3 with tokens as the rows of A, for weights with a scale for 128 rows.
constexpr bool fp8_has_middle(PackedType type) {
    return type == PackedType::e4m3;
}

constexpr bool fp8_grouped_supports(PackedType type) {
    if (is_grid(type) && !grouped_reads_grid(type)) return false;
    for (const PackedType one : fp8_grouped_types)
        if (one == kind_of(type)) return true;
    return false;
}

}  // namespace moe::cuda
