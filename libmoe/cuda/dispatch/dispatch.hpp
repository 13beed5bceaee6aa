// The dispatch stage: from expert ids to rows sorted by expert, and the tiles that cover them, all
// on the device and in a fixed order: experts ascending, slots ascending inside an expert.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/router/router.hpp"
#include "libmoe/cuda/rows.hpp"

namespace moe::cuda {

// Scratch of one chunk of tokens.
uint64_t sort_scratch_bytes(int64_t n_slots, int32_t n_local);

struct SortInput {
    const int32_t* ids;       // [T, k] dense global ids; -1, absent and identity experts: no row
    const int32_t* local_of;  // [n_ids] device; global expert -> local, -1 absent (values outside
                              // [-1, n_local) count as absent and are a fault); null: ids are local
    int32_t n_ids;
    int32_t top_k;
    int32_t n_local;
    std::byte* scratch;
    bool has_shared;  // local expert n_local has a row for every token, in order, and no place
};

// One kernel of one block (sort_small.cu), which can do other small work by the way.
constexpr int32_t most_few_slots = 8192;
constexpr int32_t most_few_local = 512;
constexpr bool is_small_sort(int64_t n_slots, int32_t n_local) {
    return n_slots <= most_few_slots && n_local <= most_few_local;
}

// What run_sort does along with the sort.
struct SortAlong {
    const GivenRouting* given;  // null: input.ids are there; else they are first taken from here
    SelectOutput taken;         // to here: ids are input.ids
    const Rows* token_rows;     // run_list_tokens of the same tokens; null: not wanted. Small sorts
    TileRule token_rule;        // only
};

// Fills rows.begin, count, slot (-1 in the padding), place, tiles, n_tiles.
void run_sort(const DeviceFacts& device, const SortInput& input, const TokenCount& tokens,
              const Rows& rows, const TileRule& rule, const SortAlong& along, FaultWords* faults,
              cudaStream_t stream);

// One "expert" with rows 0 .. true number of tokens: for the dense matrices of the layer. Slot and
// place of token t are t.
void run_list_tokens(const DeviceFacts& device, const TokenCount& tokens, const Rows& rows,
                     const TileRule& rule, cudaStream_t stream);

// moe_dispatch: the same sort with the caller's block size and 64-bit outputs.
struct DispatchOutput {
    int64_t* offsets;  // [n_local + 1]
    int64_t* counts;   // [n_local] or null
    int32_t* row_ids;  // [row_capacity], -1 in the padding
    int64_t row_capacity;
    int32_t block_rows;
};
void run_dispatch(const DeviceFacts& device, const SortInput& input, const TokenCount& tokens,
                  const DispatchOutput& output, FaultWords* faults, cudaStream_t stream);

// Tokens per global expert, added to counts [E_all], which the call zeroes.
void run_count_experts(const int32_t* ids, int32_t top_k, int32_t n_experts_all,
                       const TokenCount& tokens, int64_t* counts, cudaStream_t stream);

// Reports *n_device outside [0, n] as a fault, once per call.
void run_check_tokens(const int32_t* n_device, int32_t n, FaultWords* faults, cudaStream_t stream);

// Rows into token blocks of bfloat16 (experts/experts.hpp, grouped): sorted row r is the row of
// `in` that its index and divisor say (DeviceRows), zero where the index is negative (without one:
// where rows.slot is). Rows up to the last one used are written, padding included. Also zeroes
// rows.tile_counter, for the grouped products that follow. width: columns, a multiple of 64.
struct GatherInput {
    DeviceRows in;
    int32_t width;
};
void run_gather(const DeviceFacts& device, const GatherInput& input, const Rows& rows,
                std::byte* blocks, cudaStream_t stream);

// The same of the tokens themselves, in order and without padding, for products that index them;
// index and divisor of `in` are not used.
struct BlockRows {
    std::byte* blocks;
    int32_t capacity;       // rows, a multiple of row_alignment and no less than tokens.n
    int32_t* tile_counter;  // of Rows
};
void run_arrange(const DeviceFacts& device, const GatherInput& input, const TokenCount& tokens,
                 const BlockRows& out, cudaStream_t stream);

void prepare_dispatch();
void prepare_sort();  // the parts of it in sort.cu, sort_small.cu and gather.cu
void prepare_gather();

}  // namespace moe::cuda
