// The dispatch stage: sorts slots by expert and makes the tiles that cover the rows, all on the
// device.
//
// Inputs: ids [T, k] of int32 and the true number of tokens. Outputs: Rows (begin, count, slot,
// slot_to_row, tiles), or the 64-bit outputs of moe_dispatch.
// The order is fixed: experts ascending, slots ascending inside an expert. Equal ids give equal
// rows.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/kernel_limits.hpp"
#include "libmoe/cuda/router/router.hpp"
#include "libmoe/cuda/rows.hpp"

namespace moe::cuda {

// Returns the scratch bytes of one chunk of tokens.
uint64_t sort_scratch_bytes(int64_t n_slots, int32_t n_local);

struct SortInput {
    const int32_t* ids;  // [T, k] dense global ids; -1, absent and identity experts have no row
    const int32_t* local_of;  // [n_ids] device; global expert -> local, -1 absent (values outside
                              // [-1, n_local) count as absent and are a fault); null: ids are local
    int32_t n_ids;
    int32_t top_k;
    int32_t n_local;
    std::byte* scratch;
    bool has_shared;  // local expert n_local has a row per token, in order; slot_to_row omits it
};

// Gate, up and down may each be a GEMM of its own, with a counter for wide and one for narrow
// tiles.
constexpr int32_t n_tile_counters = 6;

// Rows for token blocks of bfloat16 or float16, the layout that grouped_gemm reads, or of E4M3
// (fp8_blocks.hpp). Rows of `in` have n_columns, a multiple of 16; token blocks have zeros behind
// them up to a multiple of 64, or 128.
struct GatherInput {
    DeviceRows in;
    int32_t n_columns;
    moe_type to;           // of the token blocks: BF16, F16 or F8_E4M3
    const float* scales;   // of rows of E4M3, one for 128 columns; token blocks are E4M3, too
    int64_t scale_stride;  // from row to row

    MOE_HOST_DEVICE int32_t n_blocks() const { return (n_columns + 63) / 64; }
};

struct BlockRows {
    std::byte* blocks;
    int32_t capacity;       // rows, a multiple of row_alignment and at least tokens.n
    int32_t* tile_counter;  // the one of Rows
};

// Work that is done beside the sort, in the same launches.
struct SortAlong {
    const GivenRouting* given;  // null: input.ids are ready; else they are converted from here
    SelectOutput published;     // to here; its ids are input.ids
    const Rows* token_rows;     // run_list_tokens of the same tokens, with the fused sort only;
    TileRule token_rule;        // null: not wanted
    bool arranges;              // run_arrange of the same tokens, from `input` to `token_blocks`
    GatherInput input;
    BlockRows token_blocks;
};

// Fills rows.begin, count, slot (-1 in the padding), slot_to_row, tiles and n_tiles.
void run_sort(const DeviceFacts& device, SortKernel kernel, const SortInput& input,
              const TokenCount& tokens, const Rows& rows, const TileRule& rule,
              const SortAlong& along, FaultWords* faults, cudaStream_t stream);

// Makes one "expert" with rows 0 .. true number of tokens, for the dense matrices of the layer.
// Token t has slot t and row t.
void run_list_tokens(const DeviceFacts& device, const TokenCount& tokens, const Rows& rows,
                     const TileRule& rule, cudaStream_t stream);

// moe_dispatch uses the same sort with the caller's block size and 64-bit outputs.
struct DispatchOutput {
    int64_t* offsets;  // [n_local + 1]
    int64_t* counts;   // [n_local] or null
    int32_t* row_ids;  // [row_capacity], -1 in the padding
    int64_t row_capacity;
    int32_t block_rows;
};
void run_dispatch(SortKernel kernel, const SortInput& input, const TokenCount& tokens,
                  const DispatchOutput& output, const SortAlong& along, FaultWords* faults,
                  cudaStream_t stream);

// Adds the tokens per global expert to counts [E_all], which the caller zeroes first.
void run_count_experts(const int32_t* ids, int32_t top_k, int32_t n_experts_all,
                       const TokenCount& tokens, int64_t* counts, cudaStream_t stream);

// Reports *n_device outside [0, n] as a fault, once per call.
void run_check_tokens(const int32_t* n_device, int32_t n, FaultWords* faults, cudaStream_t stream);

// Gathers rows into token blocks of input.to, the layout that grouped_gemm reads. Sorted
// row r is the row of `in` that its index and divisor name (DeviceRows; without an index,
// rows.slot), zero where the index is negative. It writes all rows up to the last one in use,
// padding included, and zeroes rows.tile_counter for the grouped GEMMs that follow.
void run_gather(const DeviceFacts& device, const GatherInput& input, const Rows& rows,
                std::byte* blocks, cudaStream_t stream);

// Arranges the tokens themselves, in order and without padding, for GEMMs that index them. It
// ignores index and divisor of `in`.
void run_arrange(const DeviceFacts& device, const GatherInput& input, const TokenCount& tokens,
                 const BlockRows& out, cudaStream_t stream);

// x as its caller quantized it.
struct Fp8Rows {
    const void* data;  // E4M3; null: x has another type
    int64_t stride;
    const float* scales;  // one for 128 columns of a row
    int64_t scale_stride;
    int32_t n_columns;  // a multiple of 16
};

// Where values of such rows go.
struct ValueRows {
    void* to;             // [..][n_columns], bfloat16
    const int32_t* from;  // by row of `to`: the row of x, -1 leaves it out; null: the row itself
    int32_t* index;  // by row of `to`: the row itself, or -1 if it is left out; null: not wanted.
                     // Readers want it up to a multiple of row_alignment
};

// The values of rows, code times scale, rounded to bfloat16. Rows past the true number of tokens
// are not written; of sorted rows, which `from` is given for, those past the last one in use.
void run_dequantize_rows(const DeviceFacts& device, const Fp8Rows& rows, const TokenCount& tokens,
                         const ValueRows& out, cudaStream_t stream);
void run_dequantize_sorted(const DeviceFacts& device, const Fp8Rows& rows, const Rows& sorted,
                           const ValueRows& out, cudaStream_t stream);

void prepare_dispatch();
void prepare_sort();    // called by prepare_dispatch
void prepare_gather();  // likewise
void prepare_dequantize_rows();

}  // namespace moe::cuda
