// Both kernels of one token, as a table entry for a packed type.
#pragma once

#include "libmoe/cuda/experts/one_token_down.cuh"
#include "libmoe/cuda/experts/one_token_gate_up.cuh"

namespace moe::cuda {

template <class Raw>
OneTokenKernels one_token_kernels() {
    return {reinterpret_cast<const void*>(&one_token_gate_up<Raw>),
            reinterpret_cast<const void*>(&one_token_down<Raw>),
            Raw::Operand::rebased ? 0 : Raw::x_exponent};
}

}  // namespace moe::cuda
