// quantization_config.hpp - where config.json says how weights are quantised.
#pragma once

#include <nlohmann/json.hpp>

namespace moe::cli {

// quantization_config of the language model, or of the whole; null where there is none.
nlohmann::ordered_json quantization_config(const nlohmann::ordered_json& config);

// In the place of the one that is there, else beside the other keys of the whole. No other stays.
void set_quantization_config(nlohmann::ordered_json& config, nlohmann::ordered_json value);

}  // namespace moe::cli
