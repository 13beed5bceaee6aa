// The kernels of one token as table entries, for the packed types of a group and a ring
// (stream_ring.cuh). A unit of translation for each group and ring.
#pragma once

#include "libmoe/cuda/device/raw_fragment_gguf.cuh"
#include "libmoe/cuda/device/raw_fragment_kbit.cuh"
#include "libmoe/cuda/experts/one_token_down.cuh"
#include "libmoe/cuda/experts/one_token_gate_up.cuh"

namespace moe::cuda {

template <class Ring, class Raw>
void take_kernels(PackedType type, Book book, OneTokenKernels& found) {
    if (type != Raw::type || book != Raw::book) return;
    found = {reinterpret_cast<const void*>(&one_token_gate_up<Raw, Ring, WholeBlock>), nullptr,
             reinterpret_cast<const void*>(&one_token_down<Raw, Ring>),
             Raw::Operand::rebased ? 0 : Raw::x_exponent};
    found.gate_up_in_teams = reinterpret_cast<const void*>(&one_token_gate_up<Raw, Ring, WarpTeam>);
}

// Those of the type, if it is one of the group.
template <class Ring, class... Raw>
OneTokenKernels kernels_among(PackedType type, Book book) {
    OneTokenKernels found;
    (take_kernels<Ring, Raw>(type, book, found), ...);
    return found;
}

template <class Ring>
OneTokenKernels plain_kernels(PackedType type, Book book) {
    return kernels_among<Ring, RawBf16, RawF16, RawE4m3>(type, book);
}

template <class Ring>
OneTokenKernels fp4_kernels(PackedType type, Book book) {
    return kernels_among<Ring, RawNvfp4, RawMxfp4>(type, book);
}

template <class Ring, PackedType two, PackedType three, PackedType four, PackedType five>
OneTokenKernels kernels_of_bits(PackedType type, Book book) {
    return kernels_among<Ring, RawKbit<two, Book::of_expert>, RawKbit<three, Book::of_expert>,
                         RawKbit<four, Book::of_expert>, RawKbit<five, Book::of_expert>,
                         RawKbit<two, Book::bytes>, RawKbit<three, Book::bytes>,
                         RawKbit<four, Book::lanes>, RawKbit<five, Book::lanes>>(type, book);
}

template <class Ring>
OneTokenKernels kbit_kernels(PackedType type, Book book) {
    return kernels_of_bits<Ring, PackedType::kbit2, PackedType::kbit3, PackedType::kbit4,
                           PackedType::kbit5>(type, book);
}

template <class Ring>
OneTokenKernels kbit_f32_kernels(PackedType type, Book book) {
    return kernels_of_bits<Ring, PackedType::kbit2_f32, PackedType::kbit3_f32,
                           PackedType::kbit4_f32, PackedType::kbit5_f32>(type, book);
}

template <class Ring>
OneTokenKernels gguf_kernels(PackedType type, Book book) {
    return kernels_among<Ring, RawQ8_0, RawQ4K>(type, book);
}

}  // namespace moe::cuda
