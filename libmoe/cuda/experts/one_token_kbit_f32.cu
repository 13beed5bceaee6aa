// The one-token kernels of codebook types with scales of float32. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/device/raw_fragment_kbit.cuh"
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_kbit_f32(PackedType type) {
    if (type == PackedType::kbit2_f32) return one_token_kernels<RawKbit<PackedType::kbit2_f32>>();
    if (type == PackedType::kbit3_f32) return one_token_kernels<RawKbit<PackedType::kbit3_f32>>();
    if (type == PackedType::kbit4_f32) return one_token_kernels<RawKbit<PackedType::kbit4_f32>>();
    if (type == PackedType::kbit5_f32) return one_token_kernels<RawKbit<PackedType::kbit5_f32>>();
    return {};
}

}  // namespace moe::cuda
