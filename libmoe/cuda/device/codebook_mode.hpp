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

// Bytes of the tables that every thread block of gemv makes for a type of its own accord: of iq2
// and iq3 (dequant/iq_gemv.cuh).
MOE_HOST_DEVICE constexpr int32_t fixed_table_bytes(PackedType type) {
    switch (type) {
        case PackedType::iq2_xxs:
            return 256 * 4 + 128 * 4;
        case PackedType::iq2_xs:
            return 512 * 4 + 128 * 4;
        case PackedType::iq3_xxs:
            return 256 * 4 + 128 * 4;
        case PackedType::iq3_s:
            return 512 * 4 + 256 * 4;
        default:
            return 0;
    }
}

// Bytes of one table, and of those of n_slots.
MOE_HOST_DEVICE constexpr int32_t table_bytes(PackedType type, CodebookMode codebook_mode) {
    const int32_t bits = code_bits(type);
    if (codebook_mode == CodebookMode::none) return fixed_table_bytes(type);
    if (codebook_mode == CodebookMode::shared_lanes) return 32768;
    if (codebook_mode == CodebookMode::shared_bytes) return 8;
    return 2 * 4 << (bits <= 3 ? bits - 1 : bits);
}
constexpr int32_t tables_bytes(PackedType type, CodebookMode codebook_mode, int32_t n_slots) {
    return (codebook_mode == CodebookMode::per_expert ? n_slots : 1) *
           table_bytes(type, codebook_mode);
}

}  // namespace moe::cuda
