// The experts' steps on the rows that have been listed: tasks of gate and up, then of down. For few
// tokens the shared expert and the sums over experts are among these tasks.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/pipeline.hpp"
#include "libmoe/cpu/ref/combine.hpp"
#include "libmoe/cpu/task_ranges.hpp"
#include "libmoe/layer/finish_parts.hpp"

namespace moe::cpu {
namespace {

// Counts a task that is done. True for the thread that does the last of n_tasks, which sees what
// the others wrote.
bool is_last(int32_t& done, int64_t n_tasks) {
    return std::atomic_ref(done).fetch_add(1, std::memory_order_acq_rel) + 1 == n_tasks;
}

// Features in blocks, each a task.
struct Blocks {
    int64_t features, block;

    int64_t count() const { return divide_up(features, block); }
    int64_t first(int64_t i) const { return i * block; }
    int64_t last(int64_t i) const { return std::min(first(i) + block, features); }
};

}  // namespace

template <class Real>
void Pipeline<Real>::count_active() {
    const auto rows = [&](int32_t e) { return b_.offsets[e + 1] - b_.offsets[e]; };
    int64_t count = 0;
    for (int32_t e = 0; e < setup_.slice->n_local; ++e)
        if (rows(e) > 0) b_.active[count++] = e;
    *b_.n_active = count;
    // The longest tasks first: what is left for the end is short.
    std::sort(b_.active, b_.active + count,
              [&](int32_t a, int32_t b) { return rows(a) != rows(b) ? rows(a) > rows(b) : a < b; });
    if (count == 0) return;
    for (int64_t i = 0; i < count; ++i) b_.gate_up_done[b_.active[i]] = 0;
    std::fill_n(b_.down_done, divide_up(layer().expert_width(), down_task()), 0);
    *b_.shared_gate_up_done = 0;
    std::fill_n(b_.range_next, 2 * setup_.n_workers * task_range_stride, 0);
    if (!setup_.x_in_tiles && !setup_.h_in_tiles) return;
    b_.tile_offsets[0] = 0;
    for (int32_t e = 0; e < setup_.slice->n_local; ++e) {
        const bool has_panels = rows(e) >= setup_.experts_panel_rows.least();
        b_.tile_offsets[e + 1] =
            b_.tile_offsets[e] + (has_panels ? divide_up(rows(e), rows_of_tile) : 0);
    }
}

// Tiles of the experts' rows, each of which is a row of `rows` in bfloat16.
template <class Real>
void Pipeline<Real>::lay_tiles(const std::byte* rows, const int32_t* index, int64_t columns,
                               const Quantization& how, std::byte* tiles) {
    const int64_t padded = padded_columns(columns), stride = quantized_row_bytes(columns, how);
    const int64_t* offsets = b_.tile_offsets;
    const int64_t* end = offsets + setup_.slice->n_local + 1;
    rows += offset_of_bf16(columns, how);
    team_.for_each(end[-1], [&](int32_t, int64_t i) {
        const int64_t e = std::upper_bound(offsets, end, i) - offsets - 1;
        const int64_t first = b_.offsets[e] + (i - offsets[e]) * rows_of_tile;
        const std::byte* from[rows_of_tile];
        for (int64_t r = 0; r < rows_of_tile; ++r) {
            const int64_t row = std::min(first + r, b_.offsets[e + 1] - 1);
            from[r] = rows + (index ? index[row] : row) * stride;
        }
        std::byte* to = tiles + i * row_tile_bytes(padded);
        for (int64_t k = 0; k < 2 * padded; k += 64)
            for (int64_t r = 0; r < rows_of_tile; ++r, to += 64) std::memcpy(to, from[r] + k, 64);
    });
}

template <class Real>
void Pipeline<Real>::lay_x_tiles(bool input_is_latent) {
    if (!setup_.x_in_tiles) return;
    const bool from_latent = layer().latent && !input_is_latent;
    lay_tiles(from_latent ? b_.latent_quantized : b_.x_quantized, b_.row_input,
              layer().expert_width(), setup_.x_quantization, b_.x_tiles);
}

template <class Real>
const std::byte* Pipeline<Real>::tiles_of(const std::byte* tiles, int64_t e,
                                          int64_t columns) const {
    return tiles + b_.tile_offsets[e] * row_tile_bytes(padded_columns(columns));
}

// The norm of an expert's output is a part of the expert: combine adds up what it made.
template <class Real>
void Pipeline<Real>::normalize_y() {
    const float* weight = weights_.vector(MOE_ROLE_EXPERT_NORM);
    const int64_t width = layer().expert_width();
    team_.for_each(layer().has_expert_norm ? *b_.n_rows : 0, [&](int32_t, int64_t r) {
        normalize_expert_row(layer(), weight, width, b_.y + b_.row_slot[r] * width);
    });
}

template <class Real>
Mlp Pipeline<Real>::expert_mlp(int64_t local) const {
    const int64_t features = setup_.slice->intermediate_count;
    auto bias = [&](moe_role role, int64_t width) -> const float* {
        const float* all = weights_.vector(role);
        return all ? all + local * width : nullptr;
    };
    Mlp mlp{};
    if (layer().activation.gated) mlp.gate = &weights_.matrix(MOE_ROLE_GATE, local);
    mlp.up = &weights_.matrix(MOE_ROLE_UP, local);
    mlp.down = &weights_.matrix(MOE_ROLE_DOWN, local);
    mlp.gate_bias = bias(MOE_ROLE_GATE_BIAS, features);
    mlp.up_bias = bias(MOE_ROLE_UP_BIAS, features);
    if (!setup_.down_bias_in_finish)
        mlp.down_bias = bias(MOE_ROLE_DOWN_BIAS, layer().expert_width());
    mlp.activation = &layer().activation;
    return mlp;
}

template <class Real>
MlpInput<Real> Pipeline<Real>::expert_input(int64_t local, bool input_is_latent,
                                            bool has_tiles) const {
    const int64_t first = b_.offsets[local], n = b_.offsets[local + 1] - first;
    const bool from_latent = layer().latent && !input_is_latent;
    const int64_t width = layer().expert_width();
    InputRows<Real> rows =
        as_taken({from_latent ? b_.latent : b_.x, width, b_.row_input + first}, n,
                 setup_.experts_panel_rows.gate_up,
                 from_latent ? b_.latent_quantized : b_.x_quantized, width, setup_.x_quantization);
    if (has_tiles && setup_.x_in_tiles) rows.tiles = tiles_of(b_.x_tiles, local, width);
    return {rows, layer().weight_on_input ? b_.row_weight + first : nullptr, n};
}

// Calls block(worker, local expert, first feature, last feature) for all blocks of all experts that
// have rows.
template <class Real>
template <class Block>
void Pipeline<Real>::for_each_expert_block(int64_t features, int64_t block_features, Block block) {
    const int64_t n_blocks = divide_up(features, block_features);
    team_.for_each(*b_.n_active * n_blocks, [&](int32_t worker, int64_t item) {
        const int64_t first = item % n_blocks * block_features;
        block(worker, b_.active[item / n_blocks], first,
              std::min(first + block_features, features));
    });
}

template <class Real>
int64_t Pipeline<Real>::gate_up_task() const {
    const int64_t up = row_bytes(weights_.matrix(MOE_ROLE_UP, 0));
    const int64_t gate =
        layer().activation.gated ? row_bytes(weights_.matrix(MOE_ROLE_GATE, 0)) : 0;
    return task_features(setup_.experts, gate + up);
}

template <class Real>
int64_t Pipeline<Real>::down_task() const {
    return task_features(setup_.experts, row_bytes(weights_.matrix(MOE_ROLE_DOWN, 0)));
}

template <class Real>
void Pipeline<Real>::gate_up_block(int32_t worker, int64_t e, int64_t first, int64_t last,
                                   bool input_is_latent, bool has_tiles) {
    const int64_t features = setup_.slice->intermediate_count;
    experts_.activate(expert_mlp(e), expert_input(e, input_is_latent, has_tiles), first, last,
                      setup_.intermediate_type, b_.weight_row(worker),
                      b_.h + b_.offsets[e] * features, features);
}

template <class Real>
void Pipeline<Real>::down_block(int32_t worker, int64_t e, int64_t first, int64_t last,
                                bool has_tiles) {
    const int64_t features = setup_.slice->intermediate_count;
    const Mlp mlp = expert_mlp(e);
    const int64_t row = b_.offsets[e];
    const int64_t n = b_.offsets[e + 1] - row;
    InputRows<Real> h = as_taken({b_.h, features, nullptr}, n, setup_.experts_panel_rows.down,
                                 b_.h_quantized, features, setup_.h_quantization)
                            .from(row);
    if (has_tiles && setup_.h_in_tiles) h.tiles = tiles_of(b_.h_tiles, e, features);
    experts_.project(*mlp.down, h, n, first, last, b_.weight_row(worker), b_.y,
                     layer().expert_width(), b_.row_slot + row, mlp.down_bias);
}

template <class Real>
void Pipeline<Real>::quantize_h(int64_t first_row, int64_t last_row) {
    const int64_t features = setup_.slice->intermediate_count;
    const int64_t stride = quantized_row_bytes(features, setup_.h_quantization);
    for (int64_t row = first_row; row < last_row; ++row)
        quantize_row(b_.h + row * features, features, setup_.h_quantization,
                     b_.h_quantized + row * stride);
}

template <class Real>
void Pipeline<Real>::run_experts(bool input_is_latent) {
    if (*b_.n_active == 0) return;
    const int64_t features = setup_.slice->intermediate_count;
    lay_x_tiles(input_is_latent);
    for_each_expert_block(features, for_many_rows(gate_up_task()),
                          [&](int32_t worker, int64_t e, int64_t first, int64_t last) {
                              gate_up_block(worker, e, first, last, input_is_latent, true);
                          });
    quantize_rows(b_.h, *b_.n_rows, features, setup_.h_quantization, b_.h_quantized);
    if (setup_.h_in_tiles)
        lay_tiles(b_.h_quantized, nullptr, features, setup_.h_quantization, b_.h_tiles);
    for_each_expert_block(layer().expert_width(), for_many_rows(down_task()),
                          [&](int32_t worker, int64_t e, int64_t first, int64_t last) {
                              down_block(worker, e, first, last, true);
                          });
    normalize_y();
}

template <class Real>
void Pipeline<Real>::run_and_reduce(bool input_is_latent, const Reduction& reduction) {
    // A norm of the experts' outputs wants whole rows before anything is added up.
    if (reduction.n <= few_tokens && *b_.n_active > 0 && !layer().has_expert_norm)
        return run_and_reduce_few(input_is_latent, reduction);
    run_experts(input_is_latent);
    combine(reduction.n, reduction.membership, reduction.with_identity);
    if (reduction.with_finish) finish(reduction.n, every_finish_part);
    if (reduction.out)
        store(b_.routed, layer().expert_width(), *reduction.out, reduction.first, reduction.n);
}

// Calls task(worker, i) for all i below n_tasks; region: 0 or 1.
template <class Real>
template <class Task>
void Pipeline<Real>::for_each_task(int32_t region, int64_t n_tasks, Task task) {
    const TaskRanges ranges(b_.range_next + region * setup_.n_workers * task_range_stride, n_tasks,
                            team_.size());
    team_.for_each(team_.size(), [&](int32_t worker, int64_t own) {
        ranges.run(own, [&](int64_t i) { task(worker, i); });
    });
}

// Two parallel regions, in each of them first the tasks of the shared expert, which has most rows.
// Whoever does the last task of an expert's gate and up quantizes its rows of h, and whoever does
// the last task of some columns of down adds them up over the experts.
template <class Real>
void Pipeline<Real>::run_and_reduce_few(bool input_is_latent, const Reduction& reduction) {
    const bool with_shared = reduction.with_finish && layer().shared_intermediate;
    const Blocks gate_up{setup_.slice->intermediate_count, gate_up_task()};
    const Blocks shared{with_shared ? setup_.slice->shared_count : 0,
                        with_shared ? shared_gate_up_task() : 1};
    for_each_task(
        0, shared.count() + *b_.n_active * gate_up.count(), [&](int32_t worker, int64_t i) {
            if (i < shared.count()) {
                shared_gate_up_block(worker, reduction.n, shared.first(i), shared.last(i));
                if (is_last(*b_.shared_gate_up_done, shared.count()))
                    finish_shared_gate_up(reduction.n);
                return;
            }
            i -= shared.count();
            const int32_t e = b_.active[i / gate_up.count()];
            i %= gate_up.count();
            gate_up_block(worker, e, gate_up.first(i), gate_up.last(i), input_is_latent, false);
            if (is_last(b_.gate_up_done[e], gate_up.count()))
                quantize_h(b_.offsets[e], b_.offsets[e + 1]);
        });
    const Blocks down{layer().expert_width(), down_task()};
    const int64_t n_shared = with_shared ? 1 : 0;
    for_each_task(1, (n_shared + *b_.n_active) * down.count(), [&](int32_t worker, int64_t i) {
        const int64_t expert = i / down.count() - n_shared;
        i %= down.count();
        if (expert < 0)
            shared_down_block(worker, reduction.n, down.first(i), down.last(i));
        else
            down_block(worker, b_.active[expert], down.first(i), down.last(i), false);
        if (is_last(b_.down_done[i], n_shared + *b_.n_active))
            reduce_columns(down.first(i), down.last(i), reduction);
    });
}

template <class Real>
void Pipeline<Real>::run_pre_activation(bool input_is_latent) {
    if (*b_.n_active == 0) return;
    const int64_t features = setup_.slice->intermediate_count;
    const int64_t width = layer().activation.gated ? 2 * features : features;
    lay_x_tiles(input_is_latent);
    for_each_expert_block(features, for_many_rows(gate_up_task()),
                          [&](int32_t worker, int64_t e, int64_t first, int64_t last) {
                              experts_.pre_activation(
                                  expert_mlp(e), expert_input(e, input_is_latent, true), first,
                                  last, b_.weight_row(worker), b_.h + b_.offsets[e] * width, width);
                          });
}

template void Pipeline<float>::count_active();
template void Pipeline<double>::count_active();
template void Pipeline<float>::run_experts(bool);
template void Pipeline<double>::run_experts(bool);
template void Pipeline<float>::run_and_reduce(bool, const Reduction&);
template void Pipeline<double>::run_and_reduce(bool, const Reduction&);
template void Pipeline<float>::run_pre_activation(bool);
template void Pipeline<double>::run_pre_activation(bool);

}  // namespace moe::cpu
