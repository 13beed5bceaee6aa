// The MLP over the gemv kernels of an instruction family.
#pragma once

#include "libmoe/cpu/gemv/gemv.hpp"
#include "libmoe/cpu/ref/mlp.hpp"
#include "libmoe/cpu/setup.hpp"

namespace moe::cpu {

// The family of an arithmetic; null where it has none.
const GemvFamily* gemv_family(Arithmetic arithmetic);

MlpKernels<float> mlp_gemv(Arithmetic arithmetic);

}  // namespace moe::cpu
