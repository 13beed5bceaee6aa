// Router logits by cuBLASLt, where the machine has it. It serves many tokens in 16 bits when x and
// the router weights have the same type.
#pragma once

#include <array>
#include <cstdint>

#include "libmoe/cuda/runtime/library_algorithm.hpp"

namespace moe::cuda {

class CublasLt;
struct Setup;

constexpr int64_t min_library_tokens = 256;

// A plan fills this when it is made: algorithms for 256, 1024, 4096, ... tokens.
struct LogitsLibrary {
    const CublasLt* library = nullptr;  // null: the machine has none, or the plan has no use for it
    std::array<LibraryAlgorithm, 5> algorithms;
};

}  // namespace moe::cuda
