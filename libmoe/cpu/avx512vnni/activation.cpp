// The activations of experts, 16 values at a time.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)

#define MOE_ACTIVATION_LANES 16
#include "libmoe/cpu/gemv/activation.inc"

namespace moe::cpu {

void activate_avx512vnni(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                         float* out) {
    Activate::run(how, gates, ups, n, out);
}

}  // namespace moe::cpu
#endif
