// Header and data of a safetensors file.
#include "tests/fuzz/safetensors_parts.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/element.hpp"
#include "tests/fuzz/json_mutator.hpp"

namespace moe_fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t most_data = 1 << 16;
constexpr std::string_view words[] = {"dtype",
                                      "shape",
                                      "data_offsets",
                                      "__metadata__",
                                      "BF16",
                                      "F32",
                                      "F16",
                                      "F64",
                                      "U8",
                                      "I8",
                                      "I16",
                                      "I32",
                                      "I64",
                                      "U64",
                                      "C64",
                                      "BOOL",
                                      "F8_E4M3",
                                      "F8_E5M2",
                                      "F8_E8M0",
                                      "F4",
                                      "F6_E2M3",
                                      "F5",
                                      "format",
                                      "model.layers.0.mlp.gate.weight",
                                      "model.layers.0.mlp.experts.0.gate_proj.weight",
                                      "model.layers.0.mlp.experts.0.up_proj.weight",
                                      "model.layers.0.mlp.experts.0.down_proj.weight",
                                      "model.layers.0.mlp.experts.0.down_proj.weight_scale_inv",
                                      "model.layers.0.mlp.experts.0.down_proj.weight_scale",
                                      "model.layers.0.mlp.experts.0.down_proj.weight_scale_2",
                                      "model.layers.0.mlp.experts.0.down_proj.input_scale",
                                      "model.layers.0.mlp.experts.gate_up_proj",
                                      "model.layers.0.mlp.experts.gate_up_proj_blocks",
                                      "model.layers.0.mlp.experts.down_proj",
                                      "model.layers.000000.mlp.experts.",
                                      "model.layers.1000000.mlp.experts.0.w1.weight",
                                      "model.layers.0.block_sparse_moe.experts.0.w1.weight",
                                      "language_model.layers.1.mlp.experts.1.w2.weight",
                                      "layers.2.mlp.experts.gate_up_proj_scales",
                                      "model.layers.0.mlp.experts.0.up_proj.qweight",
                                      "model.layers.0.mlp.experts.0.up_proj.qzeros",
                                      "model.layers.0.mlp.experts.0.up_proj.scales",
                                      "model.layers.0.mlp.experts.0.up_proj.g_idx",
                                      "model.layers.0.mlp.experts.0.up_proj.weight_packed",
                                      "model.layers.0.mlp.experts.0.up_proj.weight_scale",
                                      "model.layers.0.mlp.experts.0.up_proj.weight_zero_point",
                                      "model.layers.0.mlp.experts.0.up_proj.weight_g_idx",
                                      "model.layers.0.mlp.experts.0.up_proj.weight_global_scale",
                                      "model.layers.0.mlp.experts.0.up_proj.pre_quant_scale",
                                      "model.layers.0.mlp.experts.0.up_proj.SCB",
                                      "model.layers.0.mlp.experts.0.up_proj.weight.absmax",
                                      "model.layers.0.mlp.experts.0.up_proj.weight.quant_map"};

std::optional<uint64_t> bytes_of(const Json& tensor) {
    const auto type = tensor.find("dtype");
    const auto shape = tensor.find("shape");
    if (type == tensor.end() || shape == tensor.end() || !type->is_string() || !shape->is_array())
        return std::nullopt;
    const moe::Element* element = moe::safetensors_element(type->get_ref<const std::string&>());
    std::optional<uint64_t> bits = element ? element->block_bits : 8;
    for (const Json& dim : *shape) {
        if (!dim.is_number_unsigned()) return std::nullopt;
        bits = bits ? moe::try_multiply(*bits, dim.get<uint64_t>()) : bits;
    }
    if (!bits || *bits / 8 > most_data) return std::nullopt;
    return *bits / 8;
}

// Gives the tensors places one after the other; what cannot have one stays as it is. Bytes of data.
uint64_t tile(std::string& header) {
    Json json = Json::parse(header, nullptr, false);
    uint64_t end = 0;
    if (!json.is_object()) return end;
    for (auto& [name, tensor] : json.items()) {
        if (name == "__metadata__" || !tensor.is_object()) continue;
        const auto bytes = bytes_of(tensor);
        if (!bytes || end + *bytes > most_data) continue;
        tensor["data_offsets"] = {end, end + *bytes};
        end += *bytes;
    }
    header = json.dump(-1, ' ', false, Json::error_handler_t::ignore);
    return end;
}

std::string raw(uint64_t value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

}  // namespace

std::string mutate_safetensors_file(std::string_view input, Random& random) {
    uint64_t length = 0;
    if (input.size() >= 8) std::memcpy(&length, input.data(), 8);
    input = input.substr(std::min<size_t>(8, input.size()));
    length = std::min<uint64_t>(length, input.size());
    std::string header(input.substr(0, length)), data(input.substr(length));
    header = mutate_json(header, words, random);
    if (!random.one_in(4)) data.resize(tile(header), 'd');
    if (random.one_in(16)) data.resize(random.below(2 * data.size() + 4));
    if (random.one_in(8)) header += ' ';
    const uint64_t said = random.one_in(32) ? random.interesting() : header.size();
    return raw(said) + header + data;
}

}  // namespace moe_fuzz
