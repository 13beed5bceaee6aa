// Steps of the experts, combine and finish. Routing steps are in pipeline_route.cpp.
#include "libmoe/cpu/pipeline.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/ref/combine.hpp"
#include "libmoe/cpu/round.hpp"
#include "libmoe/cpu/task_ranges.hpp"
#include "libmoe/layer/finish_parts.hpp"

namespace moe::cpu {
namespace {

// Output features of a task of plain loops: enough that taking a task costs nothing beside it, few
// enough to share one expert. A task of gemv and gemm kernels is as many features as some bytes of
// weights hold, in whole panels: more bytes for few threads, which share fewer tasks evenly, too.
constexpr int64_t loop_features = 32;
constexpr int64_t task_bytes = int64_t{64} << 10;
constexpr int64_t task_bytes_of_few = int64_t{128} << 10;
constexpr int32_t few_workers = 8;
constexpr int64_t most_task_features = 64;

// A task of many rows has whole panels, as many as a kernel takes at once.
int64_t for_many_rows(int64_t task_features) {
    constexpr int64_t of_panels = most_panels * panel_rows;
    return divide_up(task_features, of_panels) * of_panels;
}

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

const std::byte* ActivationRows::row(int64_t r) const {
    return static_cast<const std::byte*>(data) + r * stride * activation_bytes(type);
}

std::byte* OutputRows::row(int64_t r) const {
    return static_cast<std::byte*>(data) + r * stride * activation_bytes(type);
}

template <class Real>
Pipeline<Real>::Pipeline(Team& team, const Setup& setup, const ResidentWeights& weights,
                         Faults& faults, const Scratch<Real>& scratch)
    : team_(team),
      setup_(setup),
      weights_(weights),
      faults_(faults),
      b_(scratch),
      experts_(mlp_kernels<Real>(setup.experts)),
      finish_(mlp_kernels<Real>(setup.finish)) {}

// Rows in the form in which the kernels take n of them.
template <class Real>
InputRows<Real> Pipeline<Real>::as_taken(InputRows<Real> rows, int64_t n, int64_t panel_rows,
                                         const std::byte* integers, int64_t columns,
                                         const Quantization& how) const {
    rows.in_panels = panel_rows && n >= panel_rows;
    if (is_empty(how)) return rows;
    rows.quantized = integers;
    rows.quantized_stride = quantized_row_bytes(columns, how);
    rows.quantization = how;
    return rows;
}

template <class Real>
void Pipeline<Real>::load_x(const ActivationRows& rows, int64_t first, int64_t n, int64_t width) {
    team_.for_each(n,
                   [&](int32_t, int64_t i) { load_row(rows.type, rows.row(first + i), i, width); });
}

template <class Real>
void Pipeline<Real>::load_row(moe_type type, const std::byte* from, int64_t i, int64_t width) {
    Real* row = b_.x + i * width;
    load_activations(type, from, width, row);
    quantize_row(row, width, setup_.x_quantization,
                 b_.x_quantized + i * quantized_row_bytes(width, setup_.x_quantization));
}

template <class Real>
void Pipeline<Real>::quantize_row(const Real* row, int64_t columns, const Quantization& how,
                                  std::byte* out) const {
    if constexpr (std::is_same_v<Real, float>) {
        // Families make the same integers, and some of them all that any gemm kernel reads, too.
        const GemvFamily* family = gemv_family(setup_.experts);
        const GemvFamily* of_finish = gemv_family(setup_.finish);
        if (!family || (of_finish && of_finish->makes_every_form)) family = of_finish;
        if (family && !is_empty(how)) family->quantize(row, columns, how, out);
    }
}

template <class Real>
void Pipeline<Real>::quantize_rows(const Real* rows, int64_t n, int64_t columns,
                                   const Quantization& how, std::byte* out) {
    const int64_t stride = quantized_row_bytes(columns, how);
    team_.for_each(is_empty(how) ? 0 : n, [&](int32_t, int64_t i) {
        quantize_row(rows + i * columns, columns, how, out + i * stride);
    });
}

template <class Real>
int64_t Pipeline<Real>::task_features(Arithmetic arithmetic,
                                      int64_t weight_bytes_of_feature) const {
    if (!gemv_family(arithmetic)) return loop_features;
    const int64_t bytes = setup_.n_workers <= few_workers ? task_bytes_of_few : task_bytes;
    const int64_t fit = bytes / std::max<int64_t>(weight_bytes_of_feature, 1);
    return std::clamp<int64_t>(fit / panel_rows * panel_rows, panel_rows, most_task_features);
}

// Calls block(worker, first feature, last feature) for all rows of a matrix.
template <class Real>
template <class Block>
void Pipeline<Real>::for_each_feature_block(Arithmetic arithmetic, const Matrix& matrix, int64_t n,
                                            Block block) {
    const int64_t task = task_features(arithmetic, row_bytes(matrix));
    const int64_t features = n > few_tokens ? for_many_rows(task) : task;
    team_.for_each(divide_up(matrix.rows, features), [&](int32_t worker, int64_t i) {
        block(worker, i * features, std::min((i + 1) * features, matrix.rows));
    });
}

template <class Real>
void Pipeline<Real>::list_token_rows(int64_t n, const Membership& membership) {
    team_.once([&] {
        const int32_t k = layer().top_k;
        dispatch({b_.ids, MOE_TYPE_I32, k}, n, k, layer().n_experts_all(), membership, 1,
                 {b_.offsets, nullptr, b_.row_slot});
        *b_.n_rows = b_.offsets[membership.n_local];
        for (int64_t r = 0; r < *b_.n_rows; ++r) {
            b_.row_input[r] = b_.row_slot[r] / layer().top_k;
            b_.row_weight[r] = b_.weights[b_.row_slot[r]];
        }
        count_active();
    });
}

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

template <class Real>
void Pipeline<Real>::project_latent(int64_t n) {
    const Matrix& matrix = weights_.matrix(MOE_ROLE_LATENT_IN);
    const InputRows<Real> rows =
        as_taken({b_.x, layer().hidden, nullptr}, n, setup_.experts_panel_rows.gate_up,
                 b_.x_quantized, layer().hidden, setup_.x_quantization);
    for_each_feature_block(setup_.experts, matrix, n,
                           [&](int32_t worker, int64_t first, int64_t last) {
                               experts_.project(matrix, rows, n, first, last, b_.weight_row(worker),
                                                b_.latent, matrix.rows, nullptr, nullptr);
                           });
    normalize_latent(n);
    quantize_rows(b_.latent, n, matrix.rows, setup_.x_quantization, b_.latent_quantized);
}

template <class Real>
void Pipeline<Real>::normalize_latent(int64_t n) {
    const float* weight = weights_.vector(MOE_ROLE_LATENT_IN_NORM);
    team_.for_each(layer().has_latent_in_norm ? n : 0, [&](int32_t, int64_t i) {
        rms_normalize(b_.latent + i * layer().latent, layer().latent, layer().latent_in_norm_eps,
                      weight);
    });
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

template <class Real>
void Pipeline<Real>::combine(int64_t n, const Membership& membership, bool with_identity) {
    team_.for_each(n, [&](int32_t, int64_t t) {
        combine_columns(t, 0, layer().expert_width(), membership, with_identity);
    });
}

template <class Real>
void Pipeline<Real>::combine_columns(int64_t t, int64_t first, int64_t last,
                                     const Membership& membership, bool with_identity) {
    const int32_t k = layer().top_k;
    const int64_t width = layer().expert_width();
    const int32_t* ids = b_.ids + t * k;
    const float* weights = b_.weights + t * k;
    const Real* rows[64];  // top_k is at most 64
    for (int32_t j = 0; j < k; ++j)
        rows[j] = membership.local(ids[j]) >= 0 ? b_.y + (t * k + j) * width + first : nullptr;
    Real* out = b_.routed + t * width + first;
    combine_token(layer(), rows, weights, last - first, out);
    if (with_identity)
        add_identity_experts(layer(), ids, weights, b_.x + t * width + first, last - first, out);
}

template <class Real>
void Pipeline<Real>::reduce_columns(int64_t first, int64_t last, const Reduction& reduction) {
    for (int64_t t = 0; t < reduction.n; ++t) {
        combine_columns(t, first, last, reduction.membership, reduction.with_identity);
        if (reduction.with_finish)
            add_shared_columns(t, first, last,
                               layer().shared_intermediate ? b_.shared_factors + t : nullptr,
                               layer().combine_scale);
        if (!reduction.out) continue;
        const OutputRows& out = *reduction.out;
        store_activations(out.type, b_.routed + t * layer().expert_width() + first, last - first,
                          out.accumulate,
                          out.row(reduction.first + t) + first * activation_bytes(out.type));
    }
}

template <class Real>
bool Pipeline<Real>::has_finish_by_columns() const {
    const bool has_shared = !layer().shared_intermediate || setup_.slice->shared_count > 0;
    return !setup_.partial && !setup_.down_bias_in_finish && !layer().has_latent_norm &&
           !layer().latent && has_shared;
}

template <class Real>
void Pipeline<Real>::finish(int64_t n, uint32_t parts) {
    add_token_terms(n, parts);
    if (layer().latent) project_final(n, parts & MOE_FINISH_LATENT);
    if (layer().shared_intermediate && (parts & MOE_FINISH_SHARED)) run_shared(n);
    add_shared(n, parts);
}

template <class Real>
void Pipeline<Real>::add_token_terms(int64_t n, uint32_t parts) {
    const int32_t k = layer().top_k;
    const int64_t width = layer().expert_width();
    const bool bias = setup_.down_bias_in_finish && (parts & MOE_FINISH_DOWN_BIAS);
    const bool identity =
        setup_.partial && layer().n_identity_experts > 0 && (parts & MOE_FINISH_IDENTITY);
    const bool norm = layer().has_latent_norm && (parts & MOE_FINISH_LATENT);
    team_.for_each(bias || identity || norm ? n : 0, [&](int32_t, int64_t t) {
        Real* out = b_.routed + t * width;
        const int32_t* ids = b_.ids + t * k;
        const float* weights = b_.weights + t * k;
        if (bias) add_down_bias(layer(), weights_.vector(MOE_ROLE_DOWN_BIAS), ids, weights, out);
        if (identity)
            add_identity_experts(layer(), ids, weights, b_.x + t * layer().hidden, width, out);
        if (norm)
            rms_normalize(out, width, layer().latent_norm_eps,
                          weights_.vector(MOE_ROLE_LATENT_NORM));
    });
}

template <class Real>
void Pipeline<Real>::project_final(int64_t n, bool with_routed) {
    if (!with_routed) {
        team_.for_each(n, [&](int32_t, int64_t t) {
            std::fill_n(b_.final + t * layer().hidden, layer().hidden, Real{0});
        });
        return;
    }
    const Matrix& matrix = weights_.matrix(MOE_ROLE_LATENT_OUT);
    const int64_t width = layer().expert_width();
    quantize_rows(b_.routed, n, width, setup_.x_quantization, b_.routed_quantized);
    const InputRows<Real> rows =
        as_taken({b_.routed, width, nullptr}, n, setup_.finish_panel_rows.gate_up,
                 b_.routed_quantized, width, setup_.x_quantization);
    for_each_feature_block(setup_.finish, matrix, n,
                           [&](int32_t worker, int64_t first, int64_t last) {
                               finish_.project(matrix, rows, n, first, last, b_.weight_row(worker),
                                               b_.final, matrix.rows, nullptr, nullptr);
                           });
}

template <class Real>
Mlp Pipeline<Real>::shared_mlp() const {
    Mlp mlp{};
    if (layer().shared_activation.gated) mlp.gate = &weights_.matrix(MOE_ROLE_SHARED_GATE);
    mlp.up = &weights_.matrix(MOE_ROLE_SHARED_UP);
    mlp.down = &weights_.matrix(MOE_ROLE_SHARED_DOWN);
    mlp.activation = &layer().shared_activation;
    return mlp;
}

template <class Real>
int64_t Pipeline<Real>::shared_gate_up_task() const {
    return task_features(setup_.finish, row_bytes(weights_.matrix(MOE_ROLE_SHARED_UP)));
}

template <class Real>
void Pipeline<Real>::shared_gate_up_block(int32_t worker, int64_t n, int64_t first, int64_t last) {
    const int64_t hidden = layer().hidden;
    const Mlp mlp = shared_mlp();
    const MlpInput<Real> input{
        as_taken({b_.x, hidden, nullptr}, n, setup_.finish_panel_rows.gate_up, b_.x_quantized,
                 hidden, setup_.x_quantization),
        nullptr, n};
    finish_.activate(mlp, input, first, last, setup_.intermediate_type, b_.weight_row(worker),
                     b_.shared_h, mlp.width());
}

template <class Real>
void Pipeline<Real>::shared_down_block(int32_t worker, int64_t n, int64_t first, int64_t last) {
    const Mlp mlp = shared_mlp();
    const int64_t features = mlp.width();
    const InputRows<Real> h =
        as_taken({b_.shared_h, features, nullptr}, n, setup_.finish_panel_rows.down,
                 b_.shared_h_quantized, features, setup_.h_quantization);
    finish_.project(*mlp.down, h, n, first, last, b_.weight_row(worker), b_.shared_y,
                    layer().hidden, nullptr, nullptr);
}

template <class Real>
void Pipeline<Real>::run_shared(int64_t n) {
    const Mlp mlp = shared_mlp();
    for_each_feature_block(setup_.finish, *mlp.up, n,
                           [&](int32_t worker, int64_t first, int64_t last) {
                               shared_gate_up_block(worker, n, first, last);
                           });
    quantize_rows(b_.shared_h, n, mlp.width(), setup_.h_quantization, b_.shared_h_quantized);
    for_each_feature_block(setup_.finish, *mlp.down, n,
                           [&](int32_t worker, int64_t first, int64_t last) {
                               shared_down_block(worker, n, first, last);
                           });
}

// After the last task of gate and up: what the tasks of down read of shared_h, and the factors.
template <class Real>
void Pipeline<Real>::finish_shared_gate_up(int64_t n) {
    const int64_t features = setup_.slice->shared_count;
    const int64_t stride = quantized_row_bytes(features, setup_.h_quantization);
    for (int64_t t = 0; t < n; ++t) {
        quantize_row(b_.shared_h + t * features, features, setup_.h_quantization,
                     b_.shared_h_quantized + t * stride);
        b_.shared_factors[t] = shared_factor(t);
    }
}

template <class Real>
void Pipeline<Real>::add_shared(int64_t n, uint32_t parts) {
    const bool shared = layer().shared_intermediate && (parts & MOE_FINISH_SHARED);
    const Real combine_scale = (parts & MOE_FINISH_COMBINE) ? layer().combine_scale : 1.0f;
    team_.for_each(shared || combine_scale != 1 ? n : 0, [&](int32_t, int64_t t) {
        if (shared) b_.shared_factors[t] = shared_factor(t);
        add_shared_columns(t, 0, layer().hidden, shared ? b_.shared_factors + t : nullptr,
                           combine_scale);
    });
}

// The factor of the shared expert's output for a token.
template <class Real>
Real Pipeline<Real>::shared_factor(int64_t t) const {
    const float* gate = weights_.vector(MOE_ROLE_SHARED_EXPERT_GATE);
    const int64_t hidden = layer().hidden;
    const Real scale = layer().shared_scale;
    if (!gate) return scale;
    double z = 0;
    for (int64_t i = 0; i < hidden; ++i) z += static_cast<double>(gate[i]) * b_.x[t * hidden + i];
    return scale * static_cast<Real>(1.0 / (1.0 + std::exp(-z)));
}

// factor null: without the shared expert.
template <class Real>
void Pipeline<Real>::add_shared_columns(int64_t t, int64_t first, int64_t last, const Real* factor,
                                        Real combine_scale) {
    Real* out = b_.final + t * layer().hidden;
    const Real* y = b_.shared_y + t * layer().hidden;
    for (int64_t i = first; i < last; ++i) {
        if (factor) out[i] += *factor * y[i];
        out[i] *= combine_scale;
    }
}

template <class Real>
void Pipeline<Real>::store(const Real* from, int64_t width, const OutputRows& out, int64_t first,
                           int64_t n) {
    team_.for_each(n, [&](int32_t, int64_t i) {
        store_activations(out.type, from + i * width, width, out.accumulate, out.row(first + i));
    });
}

template class Pipeline<float>;
template class Pipeline<double>;

}  // namespace moe::cpu
