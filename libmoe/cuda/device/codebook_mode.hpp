// How the gemv kernels look up the values of codebook types.
#pragma once

#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

// A table for every slot's expert, or one where all experts have the same codebook, so that it
// is there before ids are (dequant/kbit.cuh).
enum class CodebookMode : int32_t {
    none,
    per_expert,    // 2 and 3 bits: pairs of neighbours, which come to registers; else look-ups
    shared_lanes,  // one of 4 bits, or 5 that is its own mirror: a table for every lane
                   // (dequant/codebook_lanes.cuh)
    shared_bytes,  // one of 2 or 3 bits, whose values are bytes times one number: these
};

constexpr CodebookMode codebook_mode_of(const PackedMatrix& matrix) {
    if (!has_codebook(matrix.type)) return CodebookMode::none;
    const int32_t bits = code_bits(matrix.type);
    if (!matrix.has_one_codebook) return CodebookMode::per_expert;
    if (bits <= 3)
        return matrix.byte_codebook.scale != 0.0f ? CodebookMode::shared_bytes
                                                  : CodebookMode::per_expert;
    return bits == 4 || matrix.has_mirrored_codebook ? CodebookMode::shared_lanes
                                                     : CodebookMode::per_expert;
}

// The tables in shared memory of a type whose codes name entries of a fixed grid, iq2 and iq3
// (dequant/iq_gemv.cuh): entries of the grid and of signs, four bytes each, and each of them
// `copies` times side by side, where an SM has shared memory for them: with 32 copies every lane
// has a bank of its own, with 16 two lanes share two, so that gate and up fit an SM beside down. No
// entries: no tables.
struct IqTableShape {
    int32_t entries, entry_copies;
    int32_t signs, sign_copies;

    MOE_HOST_DEVICE constexpr int32_t signs_at() const { return 4 * entries * entry_copies; }
    MOE_HOST_DEVICE constexpr int32_t bytes() const { return signs_at() + 4 * signs * sign_copies; }
};
MOE_HOST_DEVICE constexpr IqTableShape iq_table_shape(PackedType type, bool has_copies) {
    const int32_t full = has_copies ? 32 : 1, half = has_copies ? 16 : 1;
    switch (type) {
        case PackedType::iq2_xxs:
        case PackedType::iq3_xxs:
            return {256, full, 128, full};
        case PackedType::iq2_xs:
            return {512, half, 128, full};
        case PackedType::iq3_s:
            return {512, half, 256, half};
        default:
            return {0, 0, 0, 0};
    }
}
// Bytes of the tables that Hopper's grouped GEMM has of types whose codes name fixed values: of iq2
// and iq3 without copies, which take stages from it and made it no faster (bench/notes/gemv.md); of
// iq4 the levels of pairs of codes (dequant/iq4_levels.cuh).
MOE_HOST_DEVICE constexpr int32_t grouped_table_bytes(PackedType type) {
    if (type == PackedType::iq4_nl || type == PackedType::iq4_xs) return 32768;
    return iq_table_shape(type, false).bytes();
}

// Bytes of one table, and of those of n_slots.
MOE_HOST_DEVICE constexpr int32_t table_bytes(PackedType type, CodebookMode codebook_mode,
                                              bool has_copies = false) {
    const int32_t bits = code_bits(type);
    if (codebook_mode == CodebookMode::none) return iq_table_shape(type, has_copies).bytes();
    if (codebook_mode == CodebookMode::shared_lanes) return 32768;
    if (codebook_mode == CodebookMode::shared_bytes) return 8;
    return 2 * 4 << (bits <= 3 ? bits - 1 : bits);
}
constexpr int32_t tables_bytes(PackedType type, CodebookMode codebook_mode, int32_t n_slots,
                               bool has_copies) {
    return (codebook_mode == CodebookMode::per_expert ? n_slots : 1) *
           table_bytes(type, codebook_mode, has_copies);
}

}  // namespace moe::cuda
