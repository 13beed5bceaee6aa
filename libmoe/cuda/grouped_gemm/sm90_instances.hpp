// The kernels of the grouped family, one per packed type, spread over translation instance_tables
// by the cost of compiling them.
#pragma once

#include <cstdint>

#include "libmoe/weights/packed.hpp"

namespace moe::cuda {

// Which tiles a launch takes, and where it stands among the launches of a gemm.
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

// For tiles of many and of few rows, see sm90_tile_shape.cuh.
struct GroupedKernels {
    GroupedKernel wide, narrow;  // null functions: the table does not have the type
};

GroupedKernels grouped_16bit(PackedType type);
GroupedKernels grouped_fp4(PackedType type);
GroupedKernels grouped_8bit(PackedType type);
GroupedKernels grouped_kbit(PackedType type);
GroupedKernels grouped_kbit_f32(PackedType type);
GroupedKernels grouped_q4_k(PackedType type);

}  // namespace moe::cuda
