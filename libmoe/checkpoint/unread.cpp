// What of a block nothing has read. A tensor that would change the result is refused by name: left
// out silently, it would make a layer that runs and is wrong.
#include <algorithm>
#include <charconv>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

using Words = std::initializer_list<std::string_view>;

bool starts_with_any(std::string_view name, Words words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return name.starts_with(word); });
}

bool ends_with_any(std::string_view name, Words words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return name.ends_with(word); });
}

// Endings of names that real files have and that change no result.
constexpr std::string_view harmless[] = {
    // Scales of quantised activations; values are multiplied as they are.
    "input_scale", "input_scale_ub", "input_global_scale", "input_zero_point", ".act_scale",
    "act_quant_scale", "act_quant_zero_point", ".output_scale", ".input_amax",
    // Scales of the attention's cache.
    ".k_scale", ".v_scale",
    // About the file. AWQ has no order of columns, yet some of its files have a table of one.
    ".weight_shape", ".weight_format", ".original_shape", "g_idx",
    // Training counts the tokens of each expert in order to move the selection bias.
    "tokens_per_expert"};

bool is_harmless(std::string_view name) {
    return std::any_of(std::begin(harmless), std::end(harmless),
                       [&](std::string_view ending) { return name.ends_with(ending); });
}

// The name within the block; empty for what lies beside it. Some prefixes are those of a whole
// layer, with its attention and dense MLPs: "model.layers.3.".
std::string_view inside_block(std::string_view prefix, std::string_view name) {
    const char last = prefix.size() < 2 ? '?' : prefix[prefix.size() - 2];
    if (last < '0' || last > '9') return name;
    for (const std::string_view block : {"block_sparse_moe.", "moe."})
        if (name.starts_with(block)) return name.substr(block.size());
    // gpt-oss as OpenAI has it, and Kolibri; the other families' dense MLP has no such modules.
    constexpr std::string_view mlp = "mlp.";
    if (starts_with_any(name, {"mlp.gate.", "mlp.experts.", "mlp.shared_experts."}))
        return name.substr(mlp.size());
    const bool is_part = starts_with_any(
        name, {"experts.", "gate.", "router.", "share_expert.", "shared_experts.", "shared_mlp."});
    return is_part ? name : std::string_view();
}

// "gate.weight_1", "router.norm.weight", and routers of other inputs such as "image_gate.weight".
bool is_of_router(std::string_view name) {
    const size_t dot = name.find('.');
    if (dot == name.npos) return starts_with_any(name, {"router_", "gate_"});
    const std::string_view module = name.substr(0, dot);
    return module == "wg" || module == "gate" || module == "router" ||
           ends_with_any(module, {"_gate", "_router"});
}

// Why a tensor of a block may not be left out; null where it may.
const char* objection(std::string_view name) {
    if (is_harmless(name)) return nullptr;
    if (name.ends_with("bias")) return "is a bias, which this family does not have";
    if (ends_with_any(name, {"_input.weight", "_output.weight"}))
        return "is a transform, which is not read";
    if (starts_with_any(
            name, {"experts.", "switch_mlp.", "shared_expert", "share_expert.", "shared_mlp."}) ||
        ends_with_any(name, {".scales", ".biases"}))
        return "is not read, and would change the result";
    if (ends_with_any(name, {"_scale", "_scale_inv", ".scale"}))
        return "is a scale, which is not read";
    if (is_of_router(name)) return "is of the router and not read, and would change the result";
    return nullptr;
}

// "ffn_gate.12.weight" of the oldest files.
bool is_of_old_expert(std::string_view name) {
    for (const std::string_view stem : {"ffn_gate.", "ffn_up.", "ffn_down."})
        if (name.starts_with(stem) && name.size() > stem.size())
            return name[stem.size()] >= '0' && name[stem.size()] <= '9';
    return false;
}

const char* gguf_objection(std::string_view name) {
    const bool is_of_block = is_of_old_expert(name) ||
                             starts_with_any(name, {"ffn_gate_inp", "ffn_gate_tid2eid",
                                                    "exp_probs_b", "ffn_latent_", "ffn_routed_"}) ||
                             name.find("exps.") != name.npos || name.find("_shexp.") != name.npos;
    // Arctic's norm is of what goes into the block.
    if (!is_of_block || is_harmless(name) || name == "ffn_norm_exps.weight") return nullptr;
    return name.ends_with(".bias") ? "is a bias, which this family does not have"
                                   : "is not read, and would change the result";
}

// 12 of "experts.12.up_proj.weight", else -1.
int32_t expert_number(std::string_view name) {
    constexpr std::string_view stem = "experts.";
    int32_t number = -1;
    if (name.starts_with(stem))
        std::from_chars(name.data() + stem.size(), name.data() + name.size(), number);
    return number;
}

}  // namespace

// Old AutoGPTQ wrote a bias of zeros beside every matrix.
bool LayerBuilder::is_zero_bias_of_codes(const TensorEntry& entry) const {
    constexpr std::string_view end = ".bias";
    if (!entry.name.ends_with(end)) return false;
    const std::string stem(entry.name.substr(0, entry.name.size() - end.size()));
    return files_.index.find(stem + ".qweight") && is_all_zero(entry);
}

void LayerBuilder::refuse_unread(const TensorEntry& entry) const {
    const std::string_view rest = entry.name.substr(prefix_.size());
    const std::string_view name = files_.is_gguf ? rest : inside_block(prefix_, rest);
    const char* why = files_.is_gguf ? gguf_objection(name) : objection(name);
    if (!why || is_zero_bias_of_codes(entry)) return;
    // transformers 5 writes a gate and an up of identity experts that nothing reads.
    const int32_t number = expert_number(name), n_experts = out_.desc.n_experts;
    if (number >= n_experts && number < n_experts + out_.desc.n_identity_experts) return;
    if (number >= n_experts)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: says {} experts, but there is a tensor '{}'",
             settings().file(), n_experts, printable(rest).text);
    fail_entry(MOE_ERROR_UNSUPPORTED, entry, why);
}

void LayerBuilder::refuse_all_unread() {
    std::sort(read_.begin(), read_.end());
    const TensorEntry* end = files_.index.entries().data() + files_.index.entries().size();
    const TensorEntry* entry = files_.index.find_prefix(prefix_);
    for (; entry && entry < end && entry->name.starts_with(prefix_); ++entry)
        if (!std::binary_search(read_.begin(), read_.end(), entry)) refuse_unread(*entry);
}

}  // namespace moe
