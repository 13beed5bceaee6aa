// The kernels of the grouped family, one per packed type, spread over translation units by the cost
// of compiling them.
#pragma once

#include <cstdint>

#include "libmoe/weights/packed.hpp"

namespace moe::cuda {

struct GroupedKernel {
    const void* linear;  // null: the unit does not have the type
    const void* activated;
    uint32_t shared_bytes;
};

GroupedKernel grouped_16bit(PackedType type);
GroupedKernel grouped_fp4(PackedType type);
GroupedKernel grouped_8bit(PackedType type);
GroupedKernel grouped_kbit(PackedType type);
GroupedKernel grouped_kbit_f32(PackedType type);
GroupedKernel grouped_q4_k(PackedType type);

}  // namespace moe::cuda
