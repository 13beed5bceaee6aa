// checkpoint.cpp - thin calls over section 10 of moe.h.
#include "checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text.hpp"

namespace moe::cli {

Runtime make_runtime(int32_t threads) {
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = threads;
    return make<Runtime>(moe_runtime_create, &desc);
}

Runtime make_noting_runtime(std::vector<std::string>& notes) {
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = 1;
    desc.log = [](moe_log_level, const char* message, void* user_data) {
        // One line counts what the file has, which the command says itself.
        if (std::string_view(message).substr(0, 11) != "checkpoint ")
            static_cast<std::vector<std::string>*>(user_data)->emplace_back(message);
    };
    desc.log_user_data = &notes;
    desc.log_level = MOE_LOG_INFO;
    return make<Runtime>(moe_runtime_create, &desc);
}

Checkpoint open_checkpoint(moe_runtime* runtime, const std::string& path, const std::string& family,
                           moe_io io) {
    auto options = sized<moe_checkpoint_options>();
    options.io = io;
    if (!family.empty()) options.family = family.c_str();
    return make<Checkpoint>(moe_checkpoint_open, runtime, path.c_str(), &options);
}

moe_checkpoint_info info_of(const moe_checkpoint* checkpoint) {
    auto info = sized<moe_checkpoint_info>();
    check(moe_checkpoint_get_info(checkpoint, &info));
    return info;
}

std::vector<int32_t> layers_of(const moe_checkpoint* checkpoint) {
    std::vector<int32_t> layers(static_cast<size_t>(info_of(checkpoint).n_layers));
    for (size_t i = 0; i < layers.size(); ++i) {
        check(moe_checkpoint_layer_at(checkpoint, static_cast<int32_t>(i), &layers[i]));
    }
    int32_t none = 0;
    if (layers.empty()) check(moe_checkpoint_layer_at(checkpoint, 0, &none));  // says why
    return layers;
}

LayerSource source_of(const moe_checkpoint* checkpoint, const std::string& path, int32_t layer) {
    const std::vector<int32_t> layers = layers_of(checkpoint);
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) {
        throw Failure(fmt::format("{}: layer {} is not a MoE layer of this checkpoint; it has {}",
                                  path, layer, range_words(layers)),
                      MOE_ERROR_NOT_FOUND);
    }
    return source_of(checkpoint, layer);
}

LayerSource source_of(const moe_checkpoint* checkpoint, int32_t layer) {
    LayerSource source;
    check(moe_checkpoint_layer(checkpoint, layer, &source.desc));
    std::array<moe_format*, MOE_ROLE_COUNT> pointers{};
    for (size_t role = 0; role < pointers.size(); ++role) pointers[role] = &source.formats[role];
    check(moe_checkpoint_formats(checkpoint, layer, pointers.data(), MOE_ROLE_COUNT));
    return source;
}

}  // namespace moe::cli
