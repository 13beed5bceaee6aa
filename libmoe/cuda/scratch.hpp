// The buffers of one chunk of tokens in the workspace's device memory. The constructor that takes
// them with a null block says how much memory they need. Widths of blocks and of h are padded to
// whole blocks of 64 columns.
#pragma once

#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/gemv/gemv.hpp"
#include "libmoe/cuda/rows.hpp"
#include "libmoe/cuda/setup.hpp"

namespace moe::cuda {

struct Scratch {
    // For calls of n_tokens tokens: buffers hold a chunk of them.
    Scratch(const Setup& setup, int64_t n_tokens, std::byte* block);

    int64_t chunk_tokens;  // most tokens at a time
    int64_t row_capacity;  // most rows of experts at a time, padded
    int64_t value_rows;    // of x_values

    std::byte* x_values;        // [value_rows][hidden or latent] bfloat16, of E4M3 x
    int32_t* value_index;       // [value_rows]: the row itself, -1 for padding, which is written
    std::byte* logits_scratch;  // the normalised router input, and the logits before selection
    int32_t* ids;               // [chunk][k]
    float* weights;             // [chunk][k]
    std::byte* sort_scratch;
    Rows rows;                 // of the experts, the shared one too where it joins
    Rows token_rows;           // of the layer's dense matrices: one "expert", row = token or slot
    unsigned long long* keys;  // [chunk * k]
    int32_t* source;           // [chunk * k]: input row of a slot that the caller sorted; or, by
                               // sorted row, the caller's row for the result
    int32_t* in_row;           // [row_capacity]: row of the input
    std::byte* wide;           // token blocks of the input, later the rows y: never both alive
    std::byte* gathered;       // [row_capacity][width] for tables of columns of gate and up, where
                               // their GEMM stops before the activation
    uint64_t wide_bytes;       // also holds the pre-activations of one token at least
    std::byte* h;              // [row_capacity][intermediate]
    SlotRows slot_rows;        // of gemv launches that gather
    float* pre_activation;     // [row_capacity][2 intermediate], where gate and up are not fused
    std::byte* latent;         // [chunk * k][latent]
    float* latent_values;      // [chunk * k][latent], where a norm follows LATENT_IN
    float* routed;             // [chunk][width], where the routed sum is not the last step
    float* projected;          // [chunk][hidden] = LATENT_OUT of it
    std::byte* token_blocks;   // input of a dense matrix as token blocks
    std::byte* shared_h;
    float* shared_y;     // [chunk][hidden]
    float* shared_pre;   // [chunk][2 shared_intermediate], where gate and up are not fused
    float* shared_gate;  // [chunk]
    uint64_t bytes;
};

// Bytes of the float32 gate and up values of n_tokens tokens before the activation.
int64_t pre_activation_bytes(const Setup& setup, int64_t n_tokens);

// moe_dispatch works on all tokens of a call at once.
struct DispatchScratch {
    DispatchScratch(const Setup& setup, int64_t n_tokens, std::byte* block);

    int32_t* ids;
    float* weights;
    std::byte* sort;
    uint64_t bytes;
};

// Rows of n tokens or slots that are one "expert".
int64_t padded_rows(int64_t n);

// Type in which a family keeps h and its other GEMM inputs.
moe_type operand_type(Family family);
TileRule tiles_of(Family family, const MlpTiles& tiles);

}  // namespace moe::cuda
