// Buffer sizes.
#include "libmoe/cpu/scratch.hpp"

#include <algorithm>

#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/ref/route.hpp"

namespace moe::cpu {
namespace {

// Floats of half the scratch memory that the longest row of any matrix wants.
int64_t longest_row(const Setup& setup) {
    const Layer& layer = *setup.layer;
    const int64_t longest =
        std::max({static_cast<int64_t>(layer.hidden), static_cast<int64_t>(layer.expert_width()),
                  setup.slice->intermediate_count, setup.slice->shared_count});
    return gemv_scratch_floats(longest) / 2;
}

// Experts have tiles where they have as many rows as panels take: n rows of experts that have 8 or
// more lie in n / 8 tiles at most.
int64_t most_row_tiles(const Setup& setup, int64_t n_rows) {
    const int64_t least = std::min<int64_t>(setup.experts_panel_rows.least(), 8);
    return std::min(n_rows / least, n_rows / rows_of_tile + setup.slice->n_local);
}

}  // namespace

template <class Real>
Scratch<Real>::Scratch(const Setup& setup, int64_t n_tokens, std::byte* memory) {
    const Layer& layer = *setup.layer;
    const int64_t tokens = std::min(n_tokens, setup.chunk_tokens);
    const int64_t width = layer.expert_width();
    const int64_t n_local = setup.slice->n_local;
    Arena arena(memory);
    n_rows_max = tokens * layer.top_k;
    n_inputs_max = std::max<int64_t>(tokens, layer.top_k);
    weight_row_size = 2 * longest_row(setup);
    if (setup.experts_panel_rows.least() || setup.finish_panel_rows.least())
        weight_row_size += gemm_scratch_floats;
    weight_row_size = (weight_row_size + 15) / 16 * 16;

    x = arena.take<Real>(n_inputs_max * std::max<int64_t>(layer.hidden, width));
    latent = arena.take<Real>(layer.latent ? n_inputs_max * width : 0);
    router_input = arena.take<float>(tokens * layer.hidden);
    logits = arena.take<float>(tokens * layer.n_experts_all());
    route_scratch = arena.take<float>(setup.n_workers * route_scratch_floats(layer.routing));
    ids = arena.take<int32_t>(n_rows_max);
    weights = arena.take<float>(n_rows_max);
    offsets = arena.take<int64_t>(n_local + 1);
    active = arena.take<int32_t>(n_local);
    gate_up_done = arena.take<int32_t>(n_local);
    down_done = arena.take<int32_t>(width);
    shared_gate_up_done = arena.take<int32_t>(1);
    range_next = arena.take<int64_t>(2 * setup.n_workers * task_range_stride);
    row_slot = arena.take<int32_t>(n_rows_max);
    row_input = arena.take<int32_t>(n_rows_max);
    row_target = arena.take<int64_t>(n_rows_max);
    row_weight = arena.take<float>(n_rows_max);
    const bool in_tiles = setup.x_in_tiles || setup.h_in_tiles;
    const int64_t n_tiles = in_tiles ? most_row_tiles(setup, n_rows_max) : 0;
    const int64_t n_h = n_rows_max * setup.slice->intermediate_count;
    const auto reals_of_tiles = [&](bool is_taken, int64_t columns) {
        return is_taken ? n_tiles * row_tile_bytes(padded_columns(columns)) / int64_t{sizeof(Real)}
                        : 0;
    };
    h = arena.take<Real>(
        n_h + std::max(n_h, reals_of_tiles(setup.h_in_tiles, setup.slice->intermediate_count)));
    y = arena.take<Real>(std::max(n_rows_max * width, reals_of_tiles(setup.x_in_tiles, width)));
    tile_offsets = arena.take<int64_t>(in_tiles ? n_local + 1 : 0);
    if (memory) {
        h_tiles = reinterpret_cast<std::byte*>(h + n_h);
        x_tiles = reinterpret_cast<std::byte*>(y);
    }
    routed = arena.take<Real>(tokens * width);
    final = layer.latent ? arena.take<Real>(tokens * layer.hidden) : routed;
    shared_h = arena.take<Real>(tokens * setup.slice->shared_count);
    shared_y = arena.take<Real>(layer.shared_intermediate ? tokens * layer.hidden : 0);
    shared_factors = arena.take<Real>(layer.shared_intermediate ? tokens : 0);
    weight_rows = arena.take<float>(setup.n_workers * weight_row_size);
    const int64_t shared = setup.slice->shared_count;
    const auto take_quantized = [&](int64_t rows, int64_t columns, const Quantization& how) {
        return arena.take<std::byte>(rows * quantized_row_bytes(columns, how));
    };
    x_quantized =
        take_quantized(n_inputs_max, std::max<int64_t>(layer.hidden, width), setup.x_quantization);
    latent_quantized = take_quantized(layer.latent ? n_inputs_max : 0, width, setup.x_quantization);
    h_quantized = take_quantized(n_rows_max, setup.slice->intermediate_count, setup.h_quantization);
    routed_quantized = take_quantized(layer.latent ? tokens : 0, width, setup.x_quantization);
    shared_h_quantized = take_quantized(shared ? tokens : 0, shared, setup.h_quantization);
    n_active = arena.take<int64_t>(1);
    n_rows = arena.take<int64_t>(1);
    bytes = arena.used();
}

template struct Scratch<float>;
template struct Scratch<double>;

uint64_t scratch_bytes(const Setup& setup, int64_t n_tokens) {
    return setup.is_f64() ? Scratch<double>(setup, n_tokens, nullptr).bytes
                          : Scratch<float>(setup, n_tokens, nullptr).bytes;
}

}  // namespace moe::cpu
