// Sizes of the buffers.
#include "libmoe/cuda/scratch.hpp"

#include <algorithm>

#include "libmoe/base/arena.hpp"
#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/exact/exact.hpp"
#include "libmoe/cuda/fp8_blocks.hpp"
#include "libmoe/cuda/gemv/gemv_tiling.hpp"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"

namespace moe::cuda {
namespace {

// A bound of the rows that padding adds, which never falls as slots become more.
int64_t most_padding(int64_t n_slots, int32_t n_experts) {
    return (std::min<int64_t>(n_slots, n_experts) + 1) * (row_alignment - 1);
}

// Bytes of a row of a family's operands, with its scales.
int64_t operand_row_bytes(Family family, int64_t columns) {
    if (family == Family::grouped_fp8) return fp8_row_bytes(columns);
    return padded_columns(columns) * element_size(operand_type(family));
}

// Bytes that token blocks of the input, and later y, need. They never fall as slots become more:
// n_filled of them with those of a shared expert that joins.
int64_t wide_bytes_of(const Setup& setup, int64_t n_slots, int64_t n_filled, int32_t n_experts) {
    const int64_t width = setup.layer->expert_width();
    const int64_t rows = most_rows(n_filled, n_experts);
    const int64_t blocks = rows * operand_row_bytes(setup.experts, width);
    const bool f32 = y_type(setup, n_slots) == MOE_TYPE_F32;
    const int64_t others = n_filled - n_slots + most_padding(n_filled, n_experts);
    const int64_t f32_rows = f32 ? rows : setup.max_f32_y_elements / width + others;
    return std::max({blocks, std::min(rows, f32_rows) * width * 4, rows * width * 2});
}

// Rows that stop before the activation may have a family of their own.
int32_t tiles_needed(Family family, int64_t n_slots, int32_t n_experts) {
    const auto of = [&](TileRule rule) { return most_tiles(rule, n_slots, n_experts); };
    return std::max(of(tiles_of(family, {})), of(sm80_narrow_tiles));
}

Rows take_rows(Arena& arena, Family family, int64_t n_slots, int64_t capacity, int32_t n_experts) {
    Rows rows{};
    rows.n_experts = n_experts;
    rows.capacity = static_cast<int32_t>(capacity);
    rows.max_tiles = tiles_needed(family, n_slots, n_experts);
    rows.begin = arena.take<int32_t>(n_experts);
    rows.count = arena.take<int32_t>(n_experts);
    rows.slot = arena.take<int32_t>(capacity);
    rows.slot_to_row = arena.take<int32_t>(n_slots);
    rows.tiles = arena.take<Tile>(rows.max_tiles);
    rows.n_tiles = arena.take<TileCount>(1);
    rows.tile_counter = arena.take<int32_t>(n_tile_counters);
    return rows;
}

int64_t router_bytes(const Setup& setup, int64_t n_tokens) {
    const Layer& layer = *setup.layer;
    LogitsInput input{};
    input.has_norm = layer.routing.has_router_norm;
    input.hidden = layer.hidden;
    input.n_experts_all = layer.n_experts_all();
    input.batch_invariant = setup.batch_invariant;
    input.may_use_library = may_use_library(setup);
    return static_cast<int64_t>(logits_scratch_bytes(input, n_tokens));
}

// Gemv gathers rows of x and, by a table of columns, rows of h: a row for each slot of the routed
// experts, the shared one among them, for as many tokens as it takes at most.
SlotRows take_slot_rows(Arena& arena, const Setup& setup, int64_t n_tokens) {
    const Layer& layer = *setup.layer;
    const int64_t n = std::min<int64_t>(n_tokens, gemv_token_limit) * (layer.top_k + 1);
    const int64_t width = std::max<int64_t>(
        {layer.hidden, setup.has_down_tables ? setup.slice->intermediate_count : 0,
         setup.has_finish_tables ? setup.slice->shared_count : 0});
    return {arena.take<std::byte>(n * padded_columns(width) * 2), arena.take<int32_t>(n),
            arena.take<float>(n)};
}

// Rows of act(gate, up): those of the family, or those of gemv, which has 16 bits whatever the
// family of more tokens has. slots: of a token.
int64_t h_bytes(Family family, int64_t n_rows, int64_t columns, int64_t n_tokens, int64_t slots) {
    const int64_t of_gemv = std::min<int64_t>(n_tokens, gemv_token_limit) * slots;
    return std::max(n_rows * operand_row_bytes(family, columns),
                    of_gemv * padded_columns(columns) * 2);
}

// Rows of E4M3 x whose values are held at a time. Those of a chunk's tokens always fit. Rows that
// the caller sorted are top_k times as many: beyond a number a call takes smaller chunks
// (chunk_for), which read the weights again. It is lower where values are for few rows alone.
int64_t value_rows_of(const Setup& setup, int64_t n_tokens, int64_t row_capacity) {
    constexpr int64_t of_gemv = gemv_token_limit * (max_gemv_slots + 1);
    const int64_t enough = takes_codes(setup, setup.experts) ? of_gemv : 8192;
    return std::min(row_capacity, std::max(n_tokens, enough));
}

}  // namespace

int64_t padded_rows(int64_t n) {
    return (n + row_alignment - 1) / row_alignment * row_alignment;
}

moe_type operand_type(Family family) {
    switch (family) {
        case Family::exact:
            return MOE_TYPE_F32;
        case Family::sm80_grouped_f16:
        case Family::grouped_f16:
            return MOE_TYPE_F16;
        case Family::grouped_fp8:
            return MOE_TYPE_F8_E4M3;
        default:
            return MOE_TYPE_BF16;
    }
}

TileRule tiles_of(Family family, const MlpTiles& tiles) {
    switch (family) {
        case Family::exact:
            return exact_tiles;
        case Family::grouped:
        case Family::grouped_f16:
            return tiles.are_narrow()        ? grouped_narrow_tiles
                   : tiles.are_some_middle() ? grouped_middle_tiles
                                             : grouped_tiles;
        case Family::grouped_fp8:
            return tiles.are_narrow()        ? fp8_narrow_tiles
                   : tiles.are_some_middle() ? fp8_middle_tiles
                                             : fp8_tiles;
        default:
            return tiles.are_some_wide() ? sm80_wide_tiles : sm80_narrow_tiles;
    }
}

int64_t pre_activation_bytes(const Setup& setup, int64_t n_tokens) {
    const int64_t width = (setup.layer->activation.gated ? 2 : 1) * setup.slice->intermediate_count;
    return most_rows(n_tokens * setup.layer->top_k, setup.slice->n_local) * width * 4;
}

Scratch::Scratch(const Setup& setup, int64_t n_tokens, std::byte* block) {
    const Layer& layer = *setup.layer;
    const Slice& slice = *setup.slice;
    const int64_t n = std::min(std::max<int64_t>(n_tokens, 1), setup.chunk_tokens);
    const int64_t n_slots = n * layer.top_k;
    const int64_t width = layer.expert_width();
    Arena arena(block);
    chunk_tokens = n;
    // The shared expert as one more, where forward treats it so.
    const int64_t n_filled = n_slots + (setup.shared_joins ? n : 0);
    const int32_t n_experts = slice.n_local + (setup.shared_joins ? 1 : 0);
    row_capacity = cuda::row_capacity(setup, n);
    value_rows = setup.x_is_fp8 ? value_rows_of(setup, n, row_capacity) : 0;
    x_values = arena.take<std::byte>(value_rows * std::max(layer.hidden, layer.latent) * 2);
    value_index = arena.take<int32_t>(value_rows);
    logits_scratch = arena.take<std::byte>(router_bytes(setup, n));
    ids = arena.take<int32_t>(n_slots);
    weights = arena.take<float>(n_slots);
    sort_scratch =
        arena.take<std::byte>(static_cast<int64_t>(sort_scratch_bytes(n_slots, n_experts)));
    rows = take_rows(arena, setup.experts, n_filled, row_capacity, n_experts);
    keys = arena.take<unsigned long long>(n_slots);
    source = arena.take<int32_t>(std::max(padded_rows(n_slots), row_capacity));
    in_row = arena.take<int32_t>(row_capacity);
    wide_bytes = static_cast<uint64_t>(std::max(wide_bytes_of(setup, n_slots, n_filled, n_experts),
                                                pre_activation_bytes(setup, 1)));
    wide = arena.take<std::byte>(static_cast<int64_t>(wide_bytes));
    gathered = arena.take<std::byte>(
        setup.has_gate_up_tables ? row_capacity * operand_row_bytes(setup.pre_activation, width)
                                 : 0);
    h = arena.take<std::byte>(
        h_bytes(setup.experts, row_capacity, slice.intermediate_count, n, layer.top_k + 1));
    slot_rows = take_slot_rows(arena, setup, n);
    const bool has_pre = setup.unfused || (layer.activation.gated && !setup.is_gate_up_fused);
    pre_activation =
        has_pre ? arena.take<float>(2 * row_capacity * slice.intermediate_count) : nullptr;

    // Rows that the caller sorted go through LATENT_IN one by one.
    const int64_t dense_rows = layer.latent ? n_slots : layer.shared_intermediate ? n : 0;
    const int64_t token_capacity = padded_rows(n);
    token_rows = take_rows(arena, setup.finish, dense_rows, padded_rows(dense_rows), 1);
    latent =
        arena.take<std::byte>(n_slots * layer.latent * element_size(operand_type(setup.finish)));
    latent_values = arena.take<float>(layer.has_latent_in_norm ? n_slots * layer.latent : 0);
    routed = arena.take<float>(n * width);
    projected = arena.take<float>(layer.latent ? n * layer.hidden : 0);
    const int64_t shared = layer.shared_intermediate ? slice.shared_count : 0;
    const bool shared_pre_needed =
        setup.unfused || (layer.shared_activation.gated && !setup.is_shared_gate_up_fused);
    const int64_t dense_columns = std::max(layer.hidden, layer.latent);
    const int64_t block_bytes =
        std::max(padded_columns(dense_columns) * 2,
                 setup.has_finish_tables || setup.finish == Family::grouped_fp8
                     ? operand_row_bytes(setup.finish, dense_columns)
                     : 0);
    token_blocks = arena.take<std::byte>(padded_rows(dense_rows) * block_bytes);
    shared_h = arena.take<std::byte>(h_bytes(setup.finish, token_capacity, shared, n, 1));
    shared_y = arena.take<float>(shared ? token_capacity * layer.hidden : 0);
    shared_pre = shared_pre_needed ? arena.take<float>(2 * token_capacity * shared) : nullptr;
    shared_gate = arena.take<float>(layer.has_shared_expert_gate ? n : 0);
    bytes = arena.used();
}

DispatchScratch::DispatchScratch(const Setup& setup, int64_t n_tokens, std::byte* block) {
    const int64_t n_slots = n_tokens * setup.layer->top_k;
    Arena arena(block);
    ids = arena.take<int32_t>(n_slots);
    weights = arena.take<float>(n_slots);
    sort = arena.take<std::byte>(
        static_cast<int64_t>(sort_scratch_bytes(n_slots, setup.slice->n_local)));
    bytes = arena.used();
}

uint64_t scratch_bytes(const Setup& setup, int64_t n_tokens) {
    return std::max(Scratch(setup, n_tokens, nullptr).bytes,
                    DispatchScratch(setup, n_tokens, nullptr).bytes);
}

}  // namespace moe::cuda
