// The activations of experts, 4 values at a time.
#include "libmoe/cpu/neon/gemv_tables.hpp"

#if defined(MOE_AARCH64)

#define MOE_ACTIVATION_LANES 4
#include "libmoe/cpu/gemv/activation.inc"

namespace moe::cpu {

void activate_neon(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                   float* out) {
    Activate::run(how, gates, ups, n, out);
}

}  // namespace moe::cpu
#endif
