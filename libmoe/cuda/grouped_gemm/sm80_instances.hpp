// The kernels of the portable grouped GEMM, two or three per packed type and type of operands. They
// are spread over translation files by the cost of compiling them.
#pragma once

#include "libmoe/cuda/device/operand.hpp"
#include "libmoe/cuda/grouped_gemm/sm80_tile_shape.hpp"

namespace moe::cuda {

struct Sm80Kernel {
    const void* function;  // of an Sm80Call (sm80_call.cuh)
    int32_t threads;
    int32_t static_bytes;  // of shared memory
    Sm80Config (*config)(const DeviceFacts& device, PackedType type, int32_t static_bytes);
};

// Null functions: the type is in another file, or has no kernel for middle tiles.
struct Sm80Kernels {
    Sm80Kernel wide, narrow, middle;
};

Sm80Kernels sm80_grouped_16bit(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_8bit(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_fp4(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_kbit(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_k_quants(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_ggml_32(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_iq(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_int_low(PackedType type, Operand operand);
Sm80Kernels sm80_grouped_int_high(PackedType type, Operand operand);

}  // namespace moe::cuda
