// GPU architectures that have a row in the tuning table (plan/tuning.hpp). The name of a kernel
// begins with the architecture that its instructions need: sm80 for mma.sync and cp.async, which
// every later GPU has too, sm90 for wgmma and bulk copies of Hopper.
#pragma once

#include <cstdint>

namespace moe::cuda {

enum class Architecture : uint8_t { unknown, sm80, sm86, sm89, sm90, sm100, sm120 };

constexpr Architecture architecture_of(int32_t major, int32_t minor) {
    if (major == 8) {
        return minor == 0   ? Architecture::sm80
               : minor == 9 ? Architecture::sm89
                            : Architecture::sm86;
    }
    if (major == 9) return Architecture::sm90;
    if (major == 10 || major == 11) return Architecture::sm100;
    return major == 12 ? Architecture::sm120 : Architecture::unknown;
}

// Hopper's instructions belong to sm_90a alone: no later architecture runs them.
constexpr bool has_hopper_instructions(Architecture architecture) {
    return architecture == Architecture::sm90;
}

}  // namespace moe::cuda
