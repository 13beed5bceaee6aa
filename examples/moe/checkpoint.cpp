// checkpoint.cpp - thin calls over section 10 of moe.h.
#include "checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

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
        // One line counts what the file has, which the command says itself. moe.h gives a line no
        // more than its level, which is that of the notes, so the line is known by how it begins.
        if (std::string_view(message).substr(0, 11) != "checkpoint ")
            static_cast<std::vector<std::string>*>(user_data)->emplace_back(message);
    };
    desc.log_user_data = &notes;
    desc.log_level = MOE_LOG_INFO;
    return make<Runtime>(moe_runtime_create, &desc);
}

Checkpoint open_checkpoint(moe_runtime* runtime, const std::string& path, const ReadAs& read_as,
                           moe_io io) {
    auto options = sized<moe_checkpoint_options>();
    options.io = io;
    if (!read_as.family.empty()) options.family = read_as.family.c_str();
    const std::string overrides = fmt::format("{}", fmt::join(read_as.settings, ","));
    if (!overrides.empty()) options.overrides = overrides.c_str();
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

namespace {

bool is_same(const moe_format& a, const moe_format& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;  // made of 32-bit fields alone
}

// The formats of one role's experts become that of most of them, and the others by themselves.
void split_formats(LayerSource& source, moe_role role, const std::vector<moe_format>& formats) {
    size_t most = 0;
    for (const moe_format& one : formats) {
        const auto n = static_cast<size_t>(
            std::count_if(formats.begin(), formats.end(),
                          [&](const moe_format& other) { return is_same(one, other); }));
        if (n <= most) continue;
        most = n;
        source.formats[role] = one;
    }
    for (size_t e = 0; e < formats.size(); ++e) {
        if (is_same(formats[e], source.formats[role])) continue;
        source.expert_formats[role * formats.size() + e] = formats[e];
    }
}

// Where experts of one role have different formats: tensor by tensor.
void read_formats(const moe_checkpoint* checkpoint, int32_t layer, LayerSource& source) {
    const auto n_experts = static_cast<size_t>(source.desc.n_experts);
    source.expert_formats.resize(MOE_ROLE_COUNT * n_experts);
    std::map<moe_role, std::vector<moe_format>> of_experts;
    const auto take = [&](moe_role role, const moe_tensor& tensor, const moe_format& format) {
        std::vector<moe_format>& formats = of_experts[role];
        formats.resize(n_experts);
        if (tensor.expert == MOE_ALL_EXPERTS)
            std::fill(formats.begin(), formats.end(), format);
        else
            formats.at(static_cast<size_t>(tensor.expert)) = format;
    };
    for (uint32_t index = 0;; ++index) {
        auto tensor = sized<moe_tensor>();
        auto format = sized<moe_format>();
        const moe_status status = moe_checkpoint_tensor(checkpoint, layer, index, &tensor, &format);
        if (status == MOE_ERROR_NOT_FOUND) break;
        check(status);
        if (tensor.role == MOE_ROLE_GATE_UP) {
            take(MOE_ROLE_GATE, tensor, format);
            take(MOE_ROLE_UP, tensor, format);
        } else if (tensor.role == MOE_ROLE_GATE || tensor.role == MOE_ROLE_UP ||
                   tensor.role == MOE_ROLE_DOWN) {
            take(tensor.role, tensor, format);
        } else if (tensor.role == MOE_ROLE_SHARED_GATE_UP) {
            source.formats[MOE_ROLE_SHARED_GATE] = source.formats[MOE_ROLE_SHARED_UP] = format;
        } else {
            source.formats[tensor.role] = format;
        }
    }
    for (const auto& [role, formats] : of_experts) split_formats(source, role, formats);
}

}  // namespace

LayerSource source_of(const moe_checkpoint* checkpoint, int32_t layer) {
    LayerSource source;
    check(moe_checkpoint_layer(checkpoint, layer, &source.desc));
    std::array<moe_format*, MOE_ROLE_COUNT> pointers{};
    for (size_t role = 0; role < pointers.size(); ++role) pointers[role] = &source.formats[role];
    const moe_status status =
        moe_checkpoint_formats(checkpoint, layer, pointers.data(), MOE_ROLE_COUNT);
    if (status == MOE_ERROR_UNSUPPORTED) {
        read_formats(checkpoint, layer, source);
    } else {
        check(status);
    }
    return source;
}

}  // namespace moe::cli
