// How the one-token kernels of codebook types come to values.
#pragma once

#include "libmoe/weights/packed.hpp"

namespace moe::cuda {

// By tables of every slot's expert, or by one where all experts have the same codebook, so that it
// is there before ids are (raw_fragment_kbit.cuh).
enum class Book : int32_t {
    none,
    of_expert,  // 2 and 3 bits: pairs of neighbours, which come to registers; else look-ups
    lanes,      // one of 4 bits, or 5 that is its own mirror: a table for every lane
                // (codebook_lanes.cuh)
    bytes,      // one of 2 or 3 bits, whose values are bytes times one number: these
};

constexpr Book book_of(const PackedMatrix& matrix) {
    if (!has_codebook(matrix.type)) return Book::none;
    const int32_t bits = code_bits(matrix.type);
    if (!matrix.has_one_codebook) return Book::of_expert;
    if (bits <= 3) return matrix.byte_codebook.unit != 0.0f ? Book::bytes : Book::of_expert;
    return bits == 4 || matrix.has_mirrored_codebook ? Book::lanes : Book::of_expert;
}

// Room for one table, and for those of n_slots.
MOE_HOST_DEVICE constexpr int32_t table_bytes(PackedType type, Book book) {
    const int32_t bits = code_bits(type);
    if (book == Book::none) return 0;
    if (book == Book::lanes) return 32768;
    if (book == Book::bytes) return 8;
    return 2 * 4 << (bits <= 3 ? bits - 1 : bits);
}
constexpr int32_t tables_bytes(PackedType type, Book book, int32_t n_slots) {
    return (book == Book::of_expert ? n_slots : 1) * table_bytes(type, book);
}

}  // namespace moe::cuda
