// quantization_config.cpp - models that see or hear keep the language model's values apart; these
// are the places in which libmoe looks, in its order.
#include "quantization_config.hpp"

namespace moe::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* key = "quantization_config";
const Json::json_pointer places[] = {Json::json_pointer("/thinker_config/text_config"),
                                     Json::json_pointer("/text_config"), Json::json_pointer("")};

bool is_there(const Json& config, const Json::json_pointer& place) {
    return config.contains(place / key) && config.at(place / key).is_object();
}

}  // namespace

Json quantization_config(const Json& config) {
    for (const auto& place : places)
        if (is_there(config, place)) return config.at(place / key);
    return nullptr;
}

void set_quantization_config(Json& config, Json value) {
    Json::json_pointer wanted;
    for (const auto& place : places) {
        if (!is_there(config, place)) continue;
        if (wanted.empty()) wanted = place / key;
        config.at(place).erase(key);
    }
    config[wanted.empty() ? Json::json_pointer("") / key : wanted] = std::move(value);
}

}  // namespace moe::cli
