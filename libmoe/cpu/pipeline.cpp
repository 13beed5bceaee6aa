// The steps around the experts, and what all steps share: load, list rows, latent, combine, finish
// with the shared expert, store. The router's steps are in pipeline_route.cpp, those of the experts
// in pipeline_experts.cpp.
#include "libmoe/cpu/pipeline.hpp"

#include <algorithm>
#include <cmath>

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/ref/combine.hpp"
#include "libmoe/cpu/round.hpp"

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

// Whole panels, as many as a kernel takes at once.
template <class Real>
int64_t Pipeline<Real>::for_many_rows(int64_t task_features) {
    constexpr int64_t of_panels = most_panels * panel_rows;
    return divide_up(task_features, of_panels) * of_panels;
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
