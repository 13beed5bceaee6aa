// Finding the MoE layers.
#include "libmoe/checkpoint/layer_places.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr std::array<std::string_view, 14> roots = {
    "model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
    "language_model.layers.",
    "thinker.model.layers.",            // Qwen3-Omni
    "model.decoder.layers.",            // Diffusion-Gemma
    "language_model.backbone.layers.",  // Nemotron-H that sees
    "llm.model.layers.",                // Ovis
    "model.llm.layers.",                // Inkling
    "language.model.layers.",           // DeepSeek-VL2
    "layers.",
    "backbone.layers.",     // Nemotron-H
    "transformer.blocks.",  // DBRX
    "block."};              // gpt-oss as OpenAI has it
// Layers that predict further tokens have numbers of their own, from 0 on. The last is
// DeepSeek-V4's.
constexpr std::array<std::string_view, 4> further_roots = {"mtp.layers.", "model.mtp.layers.",
                                                           "language_model.mtp.layers.", "mtp."};
// Whose "experts." are those of the layer, or MLX's stacks of all. The empty one is Gemma-4's.
constexpr std::array<std::string_view, 6> blocks = {
    "mlp.", "block_sparse_moe.", "feed_forward.", "ffn.", "mixer.", ""};
// Tensors of all experts under other names, and shared experts beside the block: the prefix is that
// of the whole layer. Granite, Step, OpenAI.
constexpr std::string_view stacks[] = {"block_sparse_moe.input_linear.",
                                       "block_sparse_moe.output_linear.",
                                       "moe.gate_proj.",
                                       "moe.up_proj.",
                                       "moe.down_proj.",
                                       "mlp.mlp1_weight.",
                                       "mlp.mlp2_weight."};
constexpr std::array<std::string_view, 4> gguf_matrices = {"ffn_gate", "ffn_up", "ffn_down",
                                                           "ffn_gate_up"};
constexpr size_t most_digits = 6;

// Takes "12." from the front of text.
std::optional<int32_t> take_number(std::string_view& text) {
    const size_t dot = text.find('.');
    if (dot == text.npos || dot == 0 || dot > most_digits) return std::nullopt;
    int32_t number = 0;
    for (const char c : text.substr(0, dot)) {
        if (c < '0' || c > '9') return std::nullopt;
        number = number * 10 + (c - '0');
    }
    text.remove_prefix(dot + 1);
    return number;
}

std::string_view before(std::string_view name, std::string_view rest) {
    return name.substr(0, name.size() - rest.size());
}

// rest: the name after a root, "3.mlp.experts.0.up_proj.weight".
std::optional<LayerPlace> place_below(std::string_view name, std::string_view rest,
                                      bool of_whole_layer) {
    const auto number = take_number(rest);
    if (!number) return std::nullopt;
    for (const std::string_view stack : stacks)
        if (rest.starts_with(stack)) return LayerPlace{*number, before(name, rest)};
    for (const std::string_view block : blocks) {
        if (!rest.starts_with(block)) continue;
        const std::string_view inside = rest.substr(block.size());
        if (inside.starts_with("experts.") || inside.starts_with("switch_mlp."))
            return LayerPlace{*number, before(name, of_whole_layer ? rest : inside)};
    }
    return std::nullopt;
}

std::optional<LayerPlace> place_of(std::string_view name, std::span<const std::string_view> under,
                                   bool of_whole_layer) {
    for (const std::string_view root : under)
        if (name.starts_with(root))
            return place_below(name, name.substr(root.size()), of_whole_layer);
    return std::nullopt;
}

// blk.3.ffn_gate_exps.weight, or blk.3.ffn_gate.0.weight of the oldest files.
std::optional<LayerPlace> gguf_place_of(std::string_view name) {
    if (!name.starts_with("blk.")) return std::nullopt;
    std::string_view rest = name.substr(4);
    const auto number = take_number(rest);
    if (!number) return std::nullopt;
    const std::string_view prefix = before(name, rest);
    for (const std::string_view matrix : gguf_matrices) {
        if (!rest.starts_with(matrix)) continue;
        std::string_view tail = rest.substr(matrix.size());
        if (tail.starts_with("_exps.")) return LayerPlace{*number, prefix};
        if (!tail.starts_with(".")) continue;
        tail.remove_prefix(1);
        if (take_number(tail)) return LayerPlace{*number, prefix};
    }
    return std::nullopt;
}

// "a or b or c"
std::string words(std::span<const std::string_view> names) {
    std::string out;
    for (const std::string_view name : names)
        out += (out.empty() ? "" : " or ") + std::string(name);
    return out;
}

}  // namespace

std::pmr::vector<LayerPlace> find_layers(std::pmr::memory_resource& memory,
                                         const TensorIndex& index, std::span<const File> files,
                                         const LayerNames& names) {
    std::pmr::vector<LayerPlace> places(&memory), further(&memory);
    const auto is_in_last = [](const std::pmr::vector<LayerPlace>& list, std::string_view name) {
        return !list.empty() && name.starts_with(list.back().prefix);
    };
    for (const TensorEntry& entry : index.entries()) {
        // Sorted names: those of one block follow each other.
        if (is_in_last(places, entry.name) || is_in_last(further, entry.name)) continue;
        const auto place = names.is_gguf ? gguf_place_of(entry.name)
                                         : place_of(entry.name, roots, names.of_whole_layers);
        if (place) places.push_back(*place);
        if (place || names.is_gguf) continue;
        const auto next = place_of(entry.name, further_roots, names.of_whole_layers);
        if (next) further.push_back(*next);
    }
    int32_t n_layers = names.n_layers;
    for (const LayerPlace& place : places) n_layers = std::max(n_layers, place.number + 1);
    for (LayerPlace place : further) {
        place.number += n_layers;
        places.push_back(place);
    }
    std::sort(places.begin(), places.end(),
              [](const LayerPlace& a, const LayerPlace& b) { return a.number < b.number; });
    const auto twice = std::adjacent_find(
        places.begin(), places.end(),
        [](const LayerPlace& a, const LayerPlace& b) { return a.number == b.number; });
    if (twice != places.end()) {
        const uint32_t file = index.find_prefix((twice + 1)->prefix)->file;
        fail(MOE_ERROR_UNSUPPORTED, "{}: layer {} has experts under '{}' and under '{}'",
             files[file].name(), twice->number, printable(twice->prefix).text,
             printable((twice + 1)->prefix).text);
    }
    return places;
}

std::string why_no_layers(const TensorIndex& index, bool is_gguf) {
    const std::string_view mark = is_gguf ? "_exps." : "experts.";
    const auto entries = index.entries();
    const auto first = std::find_if(entries.begin(), entries.end(), [&](const TensorEntry& entry) {
        return entry.name.find(mark) != entry.name.npos ||
               entry.name.find("switch_mlp.") != entry.name.npos;
    });
    if (first == entries.end()) return fmt::format("no tensor has '{}' in its name", mark);
    const std::string known =
        is_gguf ? "blk." : words(roots) + ", a number, and " + words(std::span(blocks).first<5>());
    return fmt::format("'{}' is under no known prefix: {}", printable(first->name).text, known);
}

}  // namespace moe
