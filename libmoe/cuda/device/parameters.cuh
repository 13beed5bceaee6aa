// A kernel's parameters come through a cache that is cold when it starts, 64 bytes at a time, and a
// warp that meets an absent line stands still.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Brings the lines of a parameter (of a kernel: __grid_constant__) together, each by another warp,
// while there is nothing else to do: before the wait for the kernel before.
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
