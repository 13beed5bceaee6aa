// The one-token kernels of codebook types with scales of one byte. Contracts:
// one_token_gate_up.cuh, one_token_down.cuh.
#include "libmoe/cuda/device/raw_fragment_kbit.cuh"
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_kbit(PackedType type) {
    if (type == PackedType::kbit2) return one_token_kernels<RawKbit<PackedType::kbit2>>();
    if (type == PackedType::kbit3) return one_token_kernels<RawKbit<PackedType::kbit3>>();
    if (type == PackedType::kbit4) return one_token_kernels<RawKbit<PackedType::kbit4>>();
    if (type == PackedType::kbit5) return one_token_kernels<RawKbit<PackedType::kbit5>>();
    return {};
}

}  // namespace moe::cuda
