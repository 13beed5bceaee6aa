// layer_matrices.cpp - finds the tensor of a role and an expert, decodes it, takes fused rows
// apart.
#include "layer_matrices.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace moe::cli {
namespace {

bool is_of_experts(moe_role role) {
    return role == MOE_ROLE_GATE || role == MOE_ROLE_UP || role == MOE_ROLE_DOWN ||
           role == MOE_ROLE_GATE_UP || role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_UP_BIAS ||
           role == MOE_ROLE_DOWN_BIAS || role == MOE_ROLE_GATE_UP_BIAS;
}

// The fused tensor that holds the rows of a role, or NONE.
moe_role fused_role(moe_role role) {
    if (role == MOE_ROLE_GATE || role == MOE_ROLE_UP) return MOE_ROLE_GATE_UP;
    if (role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_UP_BIAS) return MOE_ROLE_GATE_UP_BIAS;
    if (role == MOE_ROLE_SHARED_GATE || role == MOE_ROLE_SHARED_UP) return MOE_ROLE_SHARED_GATE_UP;
    return MOE_ROLE_NONE;
}

bool is_gate(moe_role role) {
    return role == MOE_ROLE_GATE || role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_SHARED_GATE;
}

// Biases are one row whose columns are fused; of matrices the rows are.
bool is_bias(moe_role role) {
    return role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_UP_BIAS;
}

// Every second group of `unit` values, or one half of them.
void keep_half(std::vector<float>& values, moe_gate_up_order order, bool gate, size_t unit) {
    const size_t n = values.size() / unit / 2;
    const bool interleaved = order == MOE_GATE_UP_INTERLEAVED;
    const bool first = gate == (order != MOE_GATE_UP_UP_FIRST);
    for (size_t i = 0; i < n; ++i) {
        const size_t from = interleaved ? 2 * i + (gate ? 0 : 1) : i + (first ? 0 : n);
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from * unit), unit,
                    values.begin() + static_cast<std::ptrdiff_t>(i * unit));
    }
    values.resize(n * unit);
}

}  // namespace

LayerMatrices::LayerMatrices(const moe_checkpoint* checkpoint, int32_t layer) : layer_(layer) {
    check(moe_checkpoint_layer(checkpoint, layer, &desc_));
    for (uint32_t index = 0;; ++index) {
        auto entry = std::make_unique<Entry>();
        entry->tensor = sized<moe_tensor>();
        entry->format = sized<moe_format>();
        const moe_status status =
            moe_checkpoint_tensor(checkpoint, layer, index, &entry->tensor, &entry->format);
        if (status == MOE_ERROR_NOT_FOUND && index > 0) return;
        check(status);
        entry->tensor.format = &entry->format;
        entries_.push_back(std::move(entry));
    }
}

// Files give the tensors of an expert side by side, hence nearly in order: found from a guess.
const LayerMatrices::Entry* LayerMatrices::find(moe_role role, int32_t expert) const {
    const bool any_expert = !is_of_experts(role);
    const size_t n = entries_.size();
    const auto experts = static_cast<size_t>(std::max(desc_.n_experts, 1));
    const size_t guess = n * static_cast<size_t>(std::max(expert, 0)) / experts;
    const size_t start = guess > 8 ? guess - 8 : 0;
    for (size_t i = 0; i < n; ++i) {
        const Entry& entry = *entries_[(start + i) % n];
        if (entry.tensor.role != role) continue;
        const int32_t own = entry.tensor.expert;
        if (any_expert || own == MOE_ALL_EXPERTS || own == expert) return &entry;
    }
    return nullptr;
}

const LayerMatrices::Entry& LayerMatrices::get(moe_role role, int32_t expert) const {
    const Entry* entry = find(role, expert);
    if (!entry) entry = find(fused_role(role), expert);
    if (entry) return *entry;
    throw Failure(
        fmt::format("layer {} has no {} of expert {}", layer_, moe_role_name(role), expert),
        MOE_ERROR_NOT_FOUND);
}

bool LayerMatrices::has(moe_role role) const {
    return find(role, 0) || find(fused_role(role), 0);
}

LayerMatrices::Shape LayerMatrices::shape(moe_role role) const {
    const moe_tensor& tensor = get(role, 0).tensor;
    const bool half = tensor.role != role;
    if (is_bias(role)) return {tensor.rows, tensor.columns / (half ? 2 : 1)};
    return {tensor.rows / (half ? 2 : 1), tensor.columns};
}

std::string LayerMatrices::format_of(moe_role role) const {
    return format_name(get(role, 0).format);
}

void LayerMatrices::values(moe_role role, int32_t expert, std::vector<float>& out) const {
    const moe_tensor& tensor = get(role, expert).tensor;
    out.resize(static_cast<size_t>(tensor.rows) * static_cast<size_t>(tensor.columns));
    const bool stack = tensor.expert == MOE_ALL_EXPERTS && is_of_experts(role);
    check(moe_dequantize(&tensor, stack ? expert : 0, out.data(), out.size()));
    if (tensor.role == role) return;
    keep_half(out, tensor.gate_up_order, is_gate(role),
              is_bias(role) ? 1 : static_cast<size_t>(tensor.columns));
}

}  // namespace moe::cli
