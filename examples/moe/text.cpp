// text.cpp - numbers, roles and routing rules in words.
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "moe_cpp.hpp"

namespace moe::cli {
namespace {

std::string score_words(moe_score score) {
    switch (score) {
        case MOE_SCORE_NONE:
            return "logits";
        case MOE_SCORE_SOFTMAX:
            return "softmax";
        case MOE_SCORE_SIGMOID:
            return "sigmoid";
        case MOE_SCORE_SQRT_SOFTPLUS:
            return "sqrt-softplus";
        default:
            return fmt::format("score {}", static_cast<int>(score));
    }
}

std::string selection_words(const moe_layer_desc& layer) {
    if (layer.selection == MOE_SELECT_HASH) {
        return fmt::format("{} by hash of the token", layer.top_k);
    }
    if (layer.selection == MOE_SELECT_SPARSEMIXER) {
        return fmt::format("sparsemixer top-{}", layer.top_k);
    }
    return fmt::format("top-{}", layer.top_k);
}

std::string group_words(const moe_layer_desc& layer) {
    const char* rule = layer.group_score == MOE_GROUP_SCORE_TOP2_SUM ? "top-2 sum" : "max";
    const char* mask = layer.group_mask == MOE_GROUP_MASK_ZERO ? ", others 0" : "";
    return fmt::format("{} groups keep {} ({}{})", layer.n_group, layer.topk_group, rule, mask);
}

std::string activation_name(moe_activation activation) {
    switch (activation) {
        case MOE_ACTIVATION_SILU:
            return "silu";
        case MOE_ACTIVATION_GELU_TANH:
            return "gelu-tanh";
        case MOE_ACTIVATION_GELU_ERF:
            return "gelu-erf";
        case MOE_ACTIVATION_RELU2:
            return "relu2";
        case MOE_ACTIVATION_SITU:
            return "situ";
        default:
            return fmt::format("activation {}", static_cast<int>(activation));
    }
}

std::string scaled_words(double value, const std::array<const char*, 5>& units, double base) {
    size_t unit = 0;
    while (value >= base && unit + 1 < units.size()) {
        value /= base;
        ++unit;
    }
    return unit == 0 ? fmt::format("{:.0f} {}", value, units[0])
                     : fmt::format("{:.3g} {}", value, units[unit]);
}

std::string one_range(int32_t first, int32_t last) {
    return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

}  // namespace

std::string routing_words(const moe_layer_desc& layer) {
    std::string words = score_words(layer.score);
    if (layer.has_selection_bias)
        words += layer.has_second_selection_bias ? " + one of two biases" : " + bias";
    if (layer.has_logit_softcap)
        words += fmt::format(", logits capped at {:g}", layer.logit_softcap);
    if (layer.n_group > 1) words += ", " + group_words(layer);
    words += ", " + selection_words(layer);
    if (layer.post_score != MOE_SCORE_NONE)
        words += ", " + score_words(layer.post_score) + " of those";
    if (layer.renormalize != MOE_RENORMALIZE_NONE) words += ", renormalised";
    if (layer.has_routed_scale && layer.routed_scale != 1.0F) {
        words += fmt::format(", x{:g}", layer.routed_scale);
    }
    if (layer.has_expert_scale) words += ", scale per expert";
    if (layer.weight_on == MOE_WEIGHT_ON_INPUT) words += ", weights the input";
    return words;
}

std::string activation_words(const moe_layer_desc& layer) {
    std::string words = activation_name(layer.activation) + (layer.is_gated ? "-GLU" : "");
    if (layer.has_activation_alpha) words += fmt::format(" alpha {:g}", layer.activation_alpha);
    if (layer.activation_up_offset != 0.0F) {
        words += fmt::format(", up + {:g}", layer.activation_up_offset);
    }
    if (layer.has_gate_limit) words += fmt::format(", gate <= {:g}", layer.gate_limit);
    if (layer.has_up_limit) words += fmt::format(", |up| <= {:g}", layer.up_limit);
    if (layer.has_post_limit) words += fmt::format(", result <= {:g}", layer.post_limit);
    if (layer.has_expert_norm) words += ", RMS norm of each expert";
    return words;
}

std::string byte_words(uint64_t bytes) {
    return scaled_words(static_cast<double>(bytes), {"B", "KiB", "MiB", "GiB", "TiB"}, 1024.0);
}

std::string time_words(double seconds) {
    if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
    if (seconds < 1.0) return fmt::format("{:.3g} ms", seconds * 1e3);
    return fmt::format("{:.3g} s", seconds);
}

std::string range_words(const std::vector<int32_t>& numbers) {
    std::string words;
    for (size_t first = 0; first < numbers.size();) {
        size_t last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        words += (words.empty() ? "" : ", ") + one_range(numbers[first], numbers[last]);
        first = last + 1;
    }
    return words;
}

std::string device_kind_name(moe_device_kind kind) {
    switch (kind) {
        case MOE_DEVICE_AUTO:
            return "auto";
        case MOE_DEVICE_CPU:
            return "cpu";
        case MOE_DEVICE_CUDA:
            return "cuda";
        default:
            return fmt::format("device {}", static_cast<int>(kind));
    }
}

std::string table_words(const std::vector<std::vector<std::string>>& rows) {
    std::vector<size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()), 0);
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string words;
    for (size_t r = 0; r < rows.size(); ++r) {
        std::string line;
        for (size_t i = 0; i < rows[r].size(); ++i)
            line += fmt::format("{:<{}}  ", rows[r][i], widths[i]);
        line.erase(line.find_last_not_of(' ') + 1);
        words += line + "\n";
        if (r == 0) words += std::string(line.size(), '-') + "\n";
    }
    return words;
}

moe_type activation_type_from(const std::string& name) {
    if (name == "f32") return MOE_TYPE_F32;
    if (name == "bf16") return MOE_TYPE_BF16;
    if (name == "f16") return MOE_TYPE_F16;
    throw UsageFailure("--type must be f32, bf16 or f16, not " + name);
}

moe_device_kind device_kind_from(const std::string& name) {
    if (name == "auto") return MOE_DEVICE_AUTO;
    if (name == "cpu") return MOE_DEVICE_CPU;
    if (name == "cuda") return MOE_DEVICE_CUDA;
    throw UsageFailure("--device must be auto, cpu or cuda, not " + name);
}

}  // namespace moe::cli
