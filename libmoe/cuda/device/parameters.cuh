// Prefetch of kernel parameters. They are read through a cache that is cold when a kernel starts,
// in lines of 64 bytes, and a warp stalls at every missing line.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Loads all lines of a __grid_constant__ parameter at once, one warp per line. Call it before the
// wait for the preceding kernel (PDL), when the warps have nothing else to do.
template <class Parameter>
__device__ __forceinline__ void fetch_parameter(const Parameter& parameter) {
    constexpr int32_t words_of_line = 16;
    constexpr int32_t n_lines = (sizeof(Parameter) + 63) / 64;
    const auto* words = reinterpret_cast<const uint32_t*>(&parameter);
    for (auto line = static_cast<int32_t>(threadIdx.x / 32); line < n_lines;
         line += static_cast<int32_t>(blockDim.x / 32)) {
        const uint32_t word = words[words_of_line * line];
        asm volatile("" ::"r"(word));
    }
}

}  // namespace moe::cuda
