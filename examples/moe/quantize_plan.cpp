// quantize_plan.cpp - goes by the names of tensors, as libmoe's readers do.
#include "quantize_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "checkpoint.hpp"
#include "layer_matrices.hpp"
#include "quantization_config.hpp"

namespace moe::cli {
namespace {

constexpr std::array<std::string_view, 7> roots = {"model.layers.",
                                                   "model.language_model.layers.",
                                                   "language_model.model.layers.",
                                                   "language_model.layers.",
                                                   "thinker.model.layers.",
                                                   "backbone.layers.",
                                                   "layers."};
constexpr std::array<std::string_view, 5> blocks = {"mlp.experts.", "block_sparse_moe.experts.",
                                                    "feed_forward.experts.", "mixer.experts.",
                                                    "ffn.experts."};

// "model.layers.3.mlp.experts." + "7." + "gate_proj" + ".weight".
struct ExpertName {
    std::string stem;  // with the dot after "experts"
    int32_t layer = 0;
    int32_t expert = -1;  // -1: all of them in one tensor
    std::string module;
    std::string rest;
};

std::optional<int32_t> take_number(std::string_view& text) {
    const size_t dot = text.find('.');
    if (dot == text.npos || dot == 0 || dot > 6) return std::nullopt;
    int32_t number = 0;
    for (const char c : text.substr(0, dot)) {
        if (c < '0' || c > '9') return std::nullopt;
        number = number * 10 + (c - '0');
    }
    text.remove_prefix(dot + 1);
    return number;
}

bool take(std::string_view& text, std::string_view start) {
    if (!text.starts_with(start)) return false;
    text.remove_prefix(start.size());
    return true;
}

// "gate_up_proj" of "gate_up_proj_blocks".
std::string fused_module(std::string_view rest) {
    for (const char* module : {"gate_up_proj", "down_proj"})
        if (rest.starts_with(module)) return module;
    return "";
}

std::optional<ExpertName> expert_name_of(const std::string& name) {
    std::string_view rest = name;
    const auto take_any = [&](const auto& starts) {
        return std::any_of(starts.begin(), starts.end(),
                           [&](std::string_view start) { return take(rest, start); });
    };
    if (!take_any(roots)) return std::nullopt;
    const auto layer = take_number(rest);
    if (!layer || !take_any(blocks)) return std::nullopt;
    ExpertName out;
    out.layer = *layer;
    out.stem = name.substr(0, name.size() - rest.size());
    if (const auto expert = take_number(rest)) {
        out.expert = *expert;
        out.module = rest.substr(0, rest.find('.'));
    } else {
        out.module = fused_module(rest);
    }
    if (out.module.empty()) return std::nullopt;
    out.rest = rest.substr(out.module.size());
    return out;
}

moe_role role_of(const std::string& module) {
    if (module == "gate_proj" || module == "w1") return MOE_ROLE_GATE;
    if (module == "up_proj" || module == "w3") return MOE_ROLE_UP;
    if (module == "down_proj" || module == "w2") return MOE_ROLE_DOWN;
    return module == "gate_up_proj" ? MOE_ROLE_GATE_UP : MOE_ROLE_NONE;
}

bool is_bias(const ExpertName& name) {
    return name.rest == ".bias" || name.rest == "_bias";
}

bool is_plain(const std::string& dtype) {
    return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

class Planner {
  public:
    Planner(const SafetensorsSource& source, const moe_checkpoint* checkpoint,
            const QuantizeTarget& target)
        : source_(source), checkpoint_(checkpoint), target_(target) {
        const std::vector<int32_t> layers = layers_of(checkpoint);
        layers_.insert(layers.begin(), layers.end());
        plan_.is_gpt_oss = std::string(info_of(checkpoint).family) == "gpt_oss";
        is_quantised_ = !quantization_config(source.config()).is_null() ||
                        std::filesystem::exists(source.folder() / "hf_quant_config.json");
    }

    QuantizePlan run() {
        if (plan_.is_gpt_oss && target_.name() != "mxfp4") {
            throw Failure(
                fmt::format("gpt-oss keeps its experts fused, which {} has no names for in "
                            "safetensors; use mxfp4, q8_0 or q4_k",
                            target_.name()),
                MOE_ERROR_UNSUPPORTED);
        }
        for (size_t i = 0; i < source_.tensors().size(); ++i) add(i);
        check_complete();
        std::sort(plan_.matrices.begin(), plan_.matrices.end(), [](const auto& a, const auto& b) {
            return std::tie(a.layer, a.expert, a.role) < std::tie(b.layer, b.expert, b.role);
        });
        return std::move(plan_);
    }

  private:
    // Experts whose names are not known here would be copied as they are.
    void check_complete() {
        std::map<int32_t, int64_t> found;
        for (const ExpertMatrix& matrix : plan_.matrices) ++found[matrix.layer];
        for (const int32_t number : layers_) {
            const LayerMatrices matrices(checkpoint_, number);
            const int64_t of_expert = plan_.is_gpt_oss ? 2 : matrices.desc().is_gated ? 3 : 2;
            if (found[number] == of_expert * matrices.desc().n_experts) continue;
            throw Failure(fmt::format("layer {}: {} of {} matrices of experts have names that a "
                                      "quantised checkpoint of the family {} can have",
                                      number, found[number], of_expert * matrices.desc().n_experts,
                                      std::string(info_of(checkpoint_).family)),
                          MOE_ERROR_UNSUPPORTED);
        }
    }

    void add(size_t index) {
        const SourceTensor& tensor = source_.tensors()[index];
        const auto name = expert_name_of(tensor.name);
        const moe_role role = name ? role_of(name->module) : MOE_ROLE_NONE;
        if (role == MOE_ROLE_NONE || is_bias(*name) || !layers_.contains(name->layer))
            return copy(index);
        // LongCat's identity experts have matrices that nobody reads.
        if (name->expert >= layer(name->layer).n_experts) return copy(index);
        const std::string module = fmt::format("{}{}.{}", name->stem, name->expert, name->module);
        if (!done_.insert(module).second) return;  // scales and the like of a matrix that was met
        if (name->expert >= 0) return matrix(*name, role, name->expert, tensor.file);
        if (plan_.is_gpt_oss) return stack(*name, role, tensor.file);
        split(*name, role, tensor.file);
    }

    void copy(size_t index) {
        const SourceTensor& tensor = source_.tensors()[index];
        constexpr std::string_view suffix = ".weight";
        if (tensor.name.ends_with(suffix) && tensor.shape.size() == 2) {
            if (is_quantised_ && !is_plain(tensor.dtype)) {
                throw Failure(
                    fmt::format("tensor '{}' is quantised already ({}) and is not an expert's "
                                "matrix: a checkpoint has one quantization_config, so start from "
                                "one that is not quantised",
                                tensor.name, tensor.dtype),
                    MOE_ERROR_UNSUPPORTED);
            }
            plan_.left.push_back(tensor.name.substr(0, tensor.name.size() - suffix.size()));
        }
        plan_.copied.push_back({index, plan_.pieces.size()});
        Piece piece;
        piece.name = tensor.name;
        piece.dtype = tensor.dtype;
        piece.shape = tensor.shape;
        piece.bytes = tensor.bytes;
        piece.file = tensor.file;
        plan_.pieces.push_back(std::move(piece));
    }

    struct Layer {
        LayerMatrices::Shape up, down;  // gate is as up
        int32_t n_experts = 0;
    };

    const Layer& layer(int32_t number) {
        const auto known = known_.find(number);
        if (known != known_.end()) return known->second;
        const LayerMatrices matrices(checkpoint_, number);
        return known_[number] = {matrices.shape(MOE_ROLE_UP), matrices.shape(MOE_ROLE_DOWN),
                                 matrices.desc().n_experts};
    }

    FormatSize size_of(const std::string& name, int64_t rows, int64_t columns) const {
        const int32_t group = target_.format().group_columns;
        if (target_.name() == "int4" && columns % group != 0) {
            throw Failure(
                fmt::format("tensor '{}': {} columns are not a multiple of the group size "
                            "{} of int4",
                            name, columns, group));
        }
        try {
            return format_size(target_.format(), rows, columns);
        } catch (const Failure& failure) {
            throw Failure(fmt::format("tensor '{}': {}", name, failure.what()), failure.status);
        }
    }

    Place piece(const std::string& module, const TargetPart& part, uint64_t bytes, size_t file) {
        if (part.suffix.empty()) return {};
        Piece piece;
        piece.name = module + part.suffix;
        piece.dtype = part.dtype;
        piece.shape = part.shape;
        piece.bytes = bytes;
        piece.file = file;
        plan_.pieces.push_back(std::move(piece));
        return {static_cast<int32_t>(plan_.pieces.size()) - 1, 0};
    }

    void matrix(const ExpertName& name, moe_role role, int32_t expert, size_t file) {
        const Layer& sizes = layer(name.layer);
        const auto shape = role == MOE_ROLE_DOWN ? sizes.down : sizes.up;
        ExpertMatrix out;
        out.name = fmt::format("{}{}.{}", name.stem, expert, name.module);
        out.layer = name.layer;
        out.role = role;
        out.expert = expert;
        out.rows = shape.rows;
        out.columns = shape.columns;
        const FormatSize size = size_of(out.name, shape.rows, shape.columns);
        const TargetParts parts = target_.parts(shape.rows, shape.columns);
        out.codes = piece(out.name, parts.codes, size.data, file);
        out.scales = piece(out.name, parts.scales, size.scales, file);
        out.global_scale = piece(out.name, parts.global_scale, sizeof(float), file);
        out.shape = piece(out.name, parts.shape, 2 * sizeof(int64_t), file);
        plan_.matrices.push_back(std::move(out));
    }

    // A merged tensor becomes the per-expert ones that the loaders of quantised files know.
    void split(ExpertName name, moe_role role, size_t file) {
        const int32_t n = layer(name.layer).n_experts;
        for (int32_t e = 0; e < n; ++e) {
            if (role == MOE_ROLE_DOWN) {
                matrix(name, role, e, file);
            } else {
                name.module = "gate_proj";
                matrix(name, MOE_ROLE_GATE, e, file);
                name.module = "up_proj";
                matrix(name, MOE_ROLE_UP, e, file);
            }
        }
    }

    // gpt-oss: blocks [E, rows, groups, 16] and scales [E, rows, groups].
    void stack(const ExpertName& name, moe_role role, size_t file) {
        const Layer& sizes = layer(name.layer);
        const bool fused = role == MOE_ROLE_GATE_UP;
        const int64_t rows = fused ? 2 * sizes.up.rows : sizes.down.rows;
        const int64_t columns = fused ? sizes.up.columns : sizes.down.columns;
        const std::string module = name.stem + name.module;
        const FormatSize size = size_of(module, rows, columns);
        const int64_t n = sizes.n_experts;
        const auto count = static_cast<uint64_t>(n);
        Place codes =
            piece(module, {"_blocks", "U8", {n, rows, columns / 32, 16}}, count * size.data, file);
        Place scales =
            piece(module, {"_scales", "U8", {n, rows, columns / 32}}, count * size.scales, file);
        for (int32_t e = 0; e < sizes.n_experts; ++e) {
            const auto before = static_cast<uint64_t>(e);
            plan_.matrices.push_back({fmt::format("{} [{}]", module, e),
                                      name.layer,
                                      role,
                                      e,
                                      rows,
                                      columns,
                                      {codes.piece, before * size.data},
                                      {scales.piece, before * size.scales},
                                      {},
                                      {}});
        }
    }

    const SafetensorsSource& source_;
    const moe_checkpoint* checkpoint_;
    const QuantizeTarget& target_;
    std::set<int32_t> layers_;
    std::set<std::string> done_;
    std::map<int32_t, Layer> known_;
    bool is_quantised_ = false;
    QuantizePlan plan_;
};

}  // namespace

QuantizePlan quantize_plan(const SafetensorsSource& source, const moe_checkpoint* checkpoint,
                           const QuantizeTarget& target) {
    return Planner(source, checkpoint, target).run();
}

}  // namespace moe::cli
