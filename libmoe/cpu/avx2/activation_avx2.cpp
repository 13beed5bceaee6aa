// The activations of experts, 8 values at a time.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)

#define MOE_ACTIVATION_LANES 8
#include "libmoe/cpu/gemv/activation.inc"

namespace moe::cpu {

void activate_avx2(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                   float* out) {
    Activate::run(how, gates, ups, n, out);
}

}  // namespace moe::cpu
#endif
