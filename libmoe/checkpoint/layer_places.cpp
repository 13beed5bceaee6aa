// Finding the MoE layers.
#include "libmoe/checkpoint/layer_places.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

// Only these: "mtp.layers.0." of a multi-token head must not be taken for layer 0.
constexpr std::string_view roots[] = {"model.layers.",
                                      "model.language_model.layers.",
                                      "language_model.model.layers.",
                                      "language_model.layers.",
                                      "thinker.model.layers.",  // Qwen3-Omni
                                      "layers.",
                                      "backbone.layers.",     // Nemotron-H
                                      "transformer.blocks.",  // DBRX
                                      "block."};              // gpt-oss as OpenAI has it
// Whose "experts." are those of the layer, or MLX's stacks of all. The empty one is Gemma-4's.
constexpr std::array<std::string_view, 6> blocks = {
    "mlp.", "block_sparse_moe.", "feed_forward.", "ffn.", "mixer.", ""};
// Tensors of all experts under other names, and shared experts beside the block: the prefix is that
// of the whole layer. Granite, Step, OpenAI.
constexpr std::string_view stacks[] = {"block_sparse_moe.input_linear.",
                                       "block_sparse_moe.output_linear.",
                                       "block_sparse_moe.router.layer.",
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

std::optional<LayerPlace> place_of(std::string_view name) {
    for (const std::string_view root : roots) {
        if (!name.starts_with(root)) continue;
        std::string_view rest = name.substr(root.size());
        const auto number = take_number(rest);
        if (!number) return std::nullopt;
        for (const std::string_view stack : stacks)
            if (rest.starts_with(stack)) return LayerPlace{*number, before(name, rest)};
        for (const std::string_view block : blocks) {
            if (!rest.starts_with(block)) continue;
            const std::string_view inside = rest.substr(block.size());
            if (inside.starts_with("experts.") || inside.starts_with("switch_mlp."))
                return LayerPlace{*number, before(name, inside)};
        }
        return std::nullopt;
    }
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
                                         bool is_gguf) {
    std::pmr::vector<LayerPlace> places(&memory);
    for (const TensorEntry& entry : index.entries()) {
        // Sorted names: those of one block follow each other.
        if (!places.empty() && entry.name.starts_with(places.back().prefix)) continue;
        const auto place = is_gguf ? gguf_place_of(entry.name) : place_of(entry.name);
        if (place) places.push_back(*place);
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
