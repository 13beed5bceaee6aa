// The scratch of one call: every buffer that a chunk of tokens needs, in the caller's workspace.
#pragma once

#include "libmoe/base/arena.hpp"
#include "libmoe/cpu/setup.hpp"
#include "libmoe/cpu/task_ranges.hpp"

namespace moe::cpu {

// T tokens of a chunk, k slots each; Real is the type of all activations inside. Row lists: a row
// is one (token, expert) pair of a local expert; rows are sorted by local expert.
template <class Real>
struct Scratch {
    // memory null: only counts bytes.
    Scratch(const Setup& setup, int64_t n_tokens, std::byte* memory);

    uint64_t bytes;
    int64_t n_rows_max;       // T * k
    int64_t n_inputs_max;     // rows that x holds: at least one token's slots
    int64_t weight_row_size;  // floats of two decoded weight rows, and of panels

    Real* x;               // [n_inputs_max, H or L]
    Real* latent;          // [n_inputs_max, L], with a latent
    float* router_input;   // [T, H]
    float* logits;         // [T, E_all]
    float* route_scratch;  // [workers, .]
    int32_t* ids;          // [T, k]
    float* weights;        // [T, k]
    int64_t* offsets;      // [E_local + 1] rows of each local expert
    int32_t* active;       // [E_local] experts that have rows
    // Tasks that are done, of calls of few tokens: gate_up by expert, down by block of columns.
    int32_t* gate_up_done;         // [E_local]
    int32_t* down_done;            // [L]
    int32_t* shared_gate_up_done;  // one number
    // Next task of each worker's own range, of gate_up and of down.
    int64_t* range_next;   // [2, workers, task_range_stride]
    int32_t* row_slot;     // [T * k] slot, or target row, of each row
    int32_t* row_input;    // [T * k] row of x that feeds each row
    int64_t* row_target;   // [T * k] row of the caller's buffers, where rows come in or go out
    float* row_weight;     // [T * k] of weights on the input
    Real* h;               // [T * k, 2I]
    Real* y;               // [T * k, L]
    Real* routed;          // [T, L]
    Real* final;           // [T, H]; routed itself without a latent
    Real* shared_h;        // [T, S]
    Real* shared_y;        // [T, H]
    Real* shared_factors;  // [T]
    float* weight_rows;    // [workers, weight_row_size]
    // The same rows as integers, as gemv/gemv.hpp has them; nothing where no kernel reads them.
    std::byte* x_quantized;         // [n_inputs_max, .]
    std::byte* latent_quantized;    // [n_inputs_max, .]
    std::byte* h_quantized;         // [T * k, .]
    std::byte* routed_quantized;    // [T, .], with a latent
    std::byte* shared_h_quantized;  // [T, .]
    // Rows of the experts in tiles (gemm/gemm.hpp), where kernels take them: those of x where y
    // will be, those of h behind its first I columns.
    int64_t* tile_offsets;  // [E_local + 1] tiles before those of each expert
    std::byte* x_tiles = nullptr;
    std::byte* h_tiles = nullptr;
    int64_t* n_active;  // one number, found by one thread and read by all after a barrier
    int64_t* n_rows;    // likewise

    float* weight_row(int32_t worker) const { return weight_rows + worker * weight_row_size; }
};

}  // namespace moe::cpu
