// Launch configurations of the gemv kernels, from the host's numbers alone:
// 1. gate_up: the warps of a split-k group divide k of a tile; a large call has several groups per
//    block. A k_block is at most k_block_bytes, and stages fill the shared memory.
// 2. down: k_blocks and warps such that no warp waits long for the others; clusters of two blocks
//    where tiles do not divide well by blocks.
// 3. gate and up of different types: a launch each. In a small call both share an SM, with half of
//    the shared memory of a fused one each.
// 4. several tokens: each has its part of the SMs.
#pragma once

#include "libmoe/cuda/gemv/gemv_tiling.hpp"
#include "libmoe/plan/tuning.hpp"

namespace moe {

// The tiling reads only type, k and n_tiles of the matrices.
struct GemvProblem {
    PackedMatrix gate_up;  // fused, the gate of a pair, or up of a layer without a gate
    PackedMatrix up{};     // of a pair that is not fused; type none: there is no pair
    PackedMatrix down;
    int32_t n_slots = 0;  // top_k, and one more where the shared expert is among the slots
    int32_t n_tokens = 1;
    bool has_shared_gate = false;
    bool has_f16_x = false;  // x and the intermediate are float16, and operands hold all of x
    // The table of columns of gate and up gives each slot a row of x: theirs are n_tokens * n_slots
    // tokens of one slot.
    bool gathers_x = false;
    bool gathers_h = false;  // by the table of down
    bool has_f16_h = false;  // the intermediate is float16, and operands hold all of it
    // All experts have one codebook in a form that one table serves; known with the weights.
    bool gate_up_shares_codebook = false;
    bool down_shares_codebook = false;
};

cuda::GemvTiling tile_gate_up(const cuda::DeviceFacts& device, const GemvProblem& problem,
                              const GemvTuning& tuning);
// Tiles up of a pair; tile_gate_up has the gate.
cuda::GemvTiling tile_up(const cuda::DeviceFacts& device, const GemvProblem& problem,
                         const GemvTuning& tuning);
cuda::GemvTiling tile_down(const cuda::DeviceFacts& device, const GemvProblem& problem,
                           const GemvTuning& tuning);

// Do the thread blocks fit the shared memory, whatever the codebooks turn out to be?
bool fits_shared_memory(const cuda::DeviceFacts& device, GemvProblem problem,
                        const GemvTuning& tuning);

// Tokens up to which the kernels can take the problem, whatever the codebooks turn out to be;
// cuda::gemv_token_limit at most, 0 for a shape that they cannot read.
int32_t max_gemv_tokens(const cuda::DeviceFacts& device, GemvProblem problem,
                        const GemvTuning& tuning);
// The same of their rows, each a token of one slot and so with fewer thread blocks, which are to
// fit the shared memory with more tiles each; most_tokens at most.
int32_t max_row_gemv_tokens(const cuda::DeviceFacts& device, GemvProblem problem,
                            const GemvTuning& tuning, int32_t most_tokens);

}  // namespace moe
