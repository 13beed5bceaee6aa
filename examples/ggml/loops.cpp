#include "loops.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "moe/moe.h"
#include "names.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

// The row that begins at (i1, i2, i3). A dimension of one stands for every index of it.
char* row(const Tensor* t, int64_t i1, int64_t i2, int64_t i3) {
    const auto step = [&](int dim, int64_t i) {
        return static_cast<size_t>(t->ne[dim] == 1 ? 0 : i % t->ne[dim]) * t->nb[dim];
    };
    return static_cast<char*>(t->data) + step(1, i1) + step(2, i2) + step(3, i3);
}

// One row: where it begins, and the distance of its values. A row of one value stands for any
// length.
struct Row {
    float* values;
    int64_t step;

    float& operator[](int64_t column) const { return values[column * step]; }
};

Row row_of(const Tensor* t, int64_t i1, int64_t i2, int64_t i3) {
    const int64_t step = t->ne[0] == 1 ? 0 : static_cast<int64_t>(t->nb[0] / sizeof(float));
    return {reinterpret_cast<float*>(row(t, i1, i2, i3)), step};
}

template <class Visit>
void for_each_row(const Tensor* t, Visit visit) {
    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3)
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2)
            for (int64_t i1 = 0; i1 < t->ne[1]; ++i1) visit(i1, i2, i3);
}

template <class Function>
void map_one(Tensor* out, Function function) {
    for_each_row(out, [&](int64_t i1, int64_t i2, int64_t i3) {
        const Row to = row_of(out, i1, i2, i3), from = row_of(out->src[0], i1, i2, i3);
        for (int64_t i = 0; i < out->ne[0]; ++i) to[i] = function(from[i]);
    });
}

template <class Function>
void map_two(Tensor* out, const Tensor* a, const Tensor* b, Function function) {
    for_each_row(out, [&](int64_t i1, int64_t i2, int64_t i3) {
        const Row to = row_of(out, i1, i2, i3);
        const Row left = row_of(a, i1, i2, i3), right = row_of(b, i1, i2, i3);
        for (int64_t i = 0; i < out->ne[0]; ++i) to[i] = function(left[i], right[i]);
    });
}

float sigmoid(float x) {
    return 1 / (1 + std::exp(-x));
}

float gelu_tanh(float x) {
    constexpr float root_two_over_pi = 0.79788456f;
    return x / 2 * (1 + std::tanh(root_two_over_pi * (x + 0.044715f * x * x * x)));
}

float gelu_erf(float x) {
    return x / 2 * (1 + std::erf(x * std::sqrt(0.5f)));
}

float gelu_quick(float x) {
    return x * sigmoid(1.702f * x);
}

bool run_unary(Tensor* out) {
    switch (unary_of(out)) {
        case Unary::silu:
            return map_one(out, [](float x) { return x * sigmoid(x); }), true;
        case Unary::gelu:
            return map_one(out, gelu_tanh), true;
        case Unary::gelu_erf:
            return map_one(out, gelu_erf), true;
        case Unary::gelu_quick:
            return map_one(out, gelu_quick), true;
        case Unary::relu:
            return map_one(out, [](float x) { return std::max(x, 0.0f); }), true;
        case Unary::tanh:
            return map_one(out, [](float x) { return std::tanh(x); }), true;
        case Unary::sigmoid:
            return map_one(out, sigmoid), true;
        case Unary::other:
            return false;
    }
    return false;
}

// Gate and up are two tensors, or the halves of the rows of one, up first where they are swapped.
template <class Function>
bool map_glu(Tensor* out, Function function) {
    if (out->src[1]) {
        map_two(out, out->src[0], out->src[1], function);
        return true;
    }
    Tensor gate = *out->src[0], up = *out->src[0];
    const bool is_swapped = out->op_params[1] != 0;
    gate.ne[0] = up.ne[0] = out->ne[0];
    Tensor& second = is_swapped ? gate : up;
    second.data = static_cast<char*>(second.data) + static_cast<size_t>(out->ne[0]) * sizeof(float);
    map_two(out, &gate, &up, function);
    return true;
}

bool run_glu(Tensor* out) {
    const float alpha = float_param(out, 2), limit = float_param(out, 3);
    switch (glu_of(out)) {
        case Glu::reglu:
            return map_glu(out, [](float g, float u) { return std::max(g, 0.0f) * u; });
        case Glu::geglu:
            return map_glu(out, [](float g, float u) { return gelu_tanh(g) * u; });
        case Glu::geglu_erf:
            return map_glu(out, [](float g, float u) { return gelu_erf(g) * u; });
        case Glu::geglu_quick:
            return map_glu(out, [](float g, float u) { return gelu_quick(g) * u; });
        case Glu::swiglu:
            return map_glu(out, [](float g, float u) { return g * sigmoid(g) * u; });
        case Glu::swiglu_oai:
            return map_glu(out, [=](float g, float u) {
                g = std::min(g, limit);
                return g * sigmoid(alpha * g) * (std::clamp(u, -limit, limit) + 1);
            });
        case Glu::swiglu_clamp:
            return map_glu(out, [=](float g, float u) {
                g = std::min(g, limit);
                return g * sigmoid(g) * std::clamp(u, -limit, limit);
            });
        case Glu::other:
            return false;
    }
    return false;
}

int32_t id_at(const Tensor* ids, int64_t slot, int64_t token) {
    return *reinterpret_cast<int32_t*>(static_cast<char*>(ids->data) +
                                       static_cast<size_t>(slot) * ids->nb[0] +
                                       static_cast<size_t>(token) * ids->nb[1]);
}

// out[:, j, t] = a[:, j, t] + b[:, ids[j, t]]
void add_rows_by_id(Tensor* out) {
    const Tensor *a = out->src[0], *b = out->src[1], *ids = out->src[2];
    for_each_row(out, [&](int64_t j, int64_t t, int64_t i3) {
        const Row to = row_of(out, j, t, i3), from = row_of(a, j, t, i3);
        const Row bias = row_of(b, id_at(ids, j, t), 0, 0);
        for (int64_t i = 0; i < out->ne[0]; ++i) to[i] = from[i] + bias[i];
    });
}

// out[:, j, t] = a[:, ids[j, t], t]
void take_rows(Tensor* out) {
    const Tensor *a = out->src[0], *ids = out->src[1];
    for_each_row(out, [&](int64_t j, int64_t t, int64_t i3) {
        const Row to = row_of(out, j, t, i3), from = row_of(a, id_at(ids, j, t), t, i3);
        for (int64_t i = 0; i < out->ne[0]; ++i) to[i] = from[i];
    });
}

// Rows of one expert in float32, a few at a time.
class ExpertRows {
  public:
    ExpertRows(const Tensor* weights, int64_t expert)
        : weights_(weights), format_(format_of(weights)) {
        first_ = static_cast<char*>(weights->data) + static_cast<size_t>(expert) * weights->nb[2];
        values_.resize(static_cast<size_t>(at_once * weights->ne[0]));
    }

    // Null where libmoe cannot dequantize.
    const float* get(int64_t row, int64_t n) {
        moe_tensor tensor{};
        tensor.struct_size = sizeof tensor;
        tensor.format = &format_;
        tensor.rows = n;
        tensor.columns = weights_->ne[0];
        tensor.data = first_ + static_cast<size_t>(row) * weights_->nb[1];
        tensor.data_bytes = static_cast<size_t>(n) * weights_->nb[1];
        const auto count = static_cast<uint64_t>(n * weights_->ne[0]);
        return moe_dequantize(&tensor, 0, values_.data(), count) == MOE_OK ? values_.data()
                                                                           : nullptr;
    }

    static constexpr int64_t at_once = 16;

  private:
    const Tensor* weights_;
    moe_format format_;
    char* first_;
    std::vector<float> values_;
};

double dot(const float* w, const float* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(w[i]) * x[i];
    return sum;
}

// out[:, j, t] = W[ids[j, t]] x[:, j or 0, t], expert by expert.
bool multiply_by_id(Tensor* out) {
    const Tensor *weights = out->src[0], *x = out->src[1], *ids = out->src[2];
    for (int64_t expert = 0; expert < weights->ne[2]; ++expert) {
        std::vector<std::pair<int64_t, int64_t>> slots;
        for (int64_t t = 0; t < ids->ne[1]; ++t)
            for (int64_t j = 0; j < ids->ne[0]; ++j)
                if (id_at(ids, j, t) == expert) slots.emplace_back(j, t);
        if (slots.empty()) continue;
        ExpertRows rows(weights, expert);
        for (int64_t first = 0; first < weights->ne[1]; first += ExpertRows::at_once) {
            const int64_t n = std::min(ExpertRows::at_once, weights->ne[1] - first);
            const float* w = rows.get(first, n);
            if (!w) return false;
            for (const auto& [j, t] : slots) {
                const float* from = row_of(x, j, t, 0).values;
                const Row to = row_of(out, j, t, 0);
                for (int64_t i = 0; i < n; ++i)
                    to[first + i] =
                        static_cast<float>(dot(w + i * weights->ne[0], from, weights->ne[0]));
            }
        }
    }
    return true;
}

}  // namespace

bool run_by_loops(Tensor* node) {
    if (is_empty(node)) return true;
    const float first = float_param(node, 0), second = float_param(node, 1);
    switch (op_of(node)) {
        case Op::mul_mat_id:
            return multiply_by_id(node);
        case Op::add_id:
            return add_rows_by_id(node), true;
        case Op::glu:
            return run_glu(node);
        case Op::unary:
            return run_unary(node);
        case Op::mul:
            return map_two(node, node->src[0], node->src[1],
                           [](float a, float b) { return a * b; }),
                   true;
        case Op::add:
            return map_two(node, node->src[0], node->src[1],
                           [](float a, float b) { return a + b; }),
                   true;
        case Op::sqr:
            return map_one(node, [](float a) { return a * a; }), true;
        case Op::scale:
            return map_one(node, [=](float a) { return a * first + second; }), true;
        case Op::clamp:
            return map_one(node, [=](float a) { return std::min(std::max(a, first), second); }),
                   true;
        case Op::cont:
        case Op::repeat:
            return map_one(node, [](float a) { return a; }), true;
        case Op::get_rows:
            return take_rows(node), true;
        case Op::none:
        case Op::reshape:
        case Op::view:
            return true;
        case Op::other:
            return false;
    }
    return false;
}

}  // namespace moe::ggml
