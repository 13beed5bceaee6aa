// The kernels of the sm90 grouped GEMM, a pair per packed type and shape. Few files of types that
// are alike: a file is compressed as one.
#pragma once

#include <cstdint>

#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

// The tiles of a launch, and its order among the launches of a GEMM.
enum class TilePart : int32_t {
    all,
    large,  // the first launch of two: the second one may begin once this one has
    small,  // the second one: begins beside the first one and ends after it
};

struct GroupedKernel {
    const void* linear;
    const void* activated;
    uint32_t threads;
    uint32_t blocks_per_sm;
    uint32_t shared_bytes;
};

// sm90_tile_shape.cuh describes the shapes.
struct GroupedKernels {
    GroupedKernel wide, middle, narrow;  // null functions: the type is in another file
};

GroupedKernels grouped_16bit(PackedType type);
GroupedKernels grouped_fp4(PackedType type);
GroupedKernels grouped_8bit(PackedType type);
GroupedKernels grouped_kbit(PackedType type);
GroupedKernels grouped_gguf(PackedType type);
GroupedKernels grouped_gguf_k(PackedType type);
GroupedKernels grouped_iq(PackedType type);
GroupedKernels grouped_grid(PackedType type);
// With float16 operands.
GroupedKernels grouped_in_f16(PackedType type);
GroupedKernels grouped_in_f16_codes(PackedType type);

}  // namespace moe::cuda
