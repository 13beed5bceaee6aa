// The table of families, and which one a checkpoint is.
#include "libmoe/checkpoint/families.hpp"

#include <algorithm>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr Family families[] = {
    {"mixtral", build_mixtral, build_gguf_mixtral},
    {"qwen2_moe", build_qwen2_moe, build_gguf_qwen2_moe},
    {"qwen3_moe", build_qwen3_moe, build_gguf_qwen3_moe},
    {"qwen3_next", build_qwen3_next, build_gguf_qwen3_next},
    {"deepseek_v2", build_deepseek_v2, build_gguf_deepseek_v2},
    {"deepseek_v3", build_deepseek_v3, build_gguf_deepseek_v3},
    {"gpt_oss", build_gpt_oss, build_gguf_gpt_oss},
};

struct Alias {
    std::string_view name;
    const char* family;
};

// Other model types with the same MoE block.
constexpr Alias model_types[] = {
    {"kimi_k2", "deepseek_v3"},
    {"deepseek_v32", "deepseek_v3"},
};

// deepseek2 serves both generations; the gating function tells them apart.
constexpr Alias architectures[] = {
    {"llama", "mixtral"},        {"qwen2moe", "qwen2_moe"},    {"qwen3moe", "qwen3_moe"},
    {"qwen3next", "qwen3_next"}, {"deepseek2", "deepseek_v2"}, {"gpt-oss", "gpt_oss"},
};
constexpr int64_t sigmoid_gating = 2;

const Family* find_alias(std::span<const Alias> aliases, std::string_view name) {
    const auto it = std::find_if(aliases.begin(), aliases.end(),
                                 [&](const Alias& alias) { return alias.name == name; });
    return it == aliases.end() ? nullptr : find_family(it->family);
}

std::string known_architectures() {
    std::string names;
    for (const Alias& alias : architectures) {
        if (!names.empty()) names += ' ';
        names += alias.name;
    }
    return names;
}

std::string known_families() {
    std::string names;
    for (const Family& family : families) {
        if (!names.empty()) names += ' ';
        names += family.name;
    }
    return names;
}

const Family* family_of_model_type(std::string_view model_type) {
    if (const Family* family = find_family(model_type)) return family;
    return find_alias(model_types, model_type);
}

}  // namespace

std::span<const Family> all_families() {
    return families;
}

const Family* find_family(std::string_view name) {
    const auto it = std::find_if(std::begin(families), std::end(families),
                                 [&](const Family& family) { return family.name == name; });
    return it == std::end(families) ? nullptr : it;
}

const Family& family_of_config(const Settings& settings, std::string_view& model_type) {
    const auto found = settings.find_text("model_type");  // of text_config first
    if (!found) fail(MOE_ERROR_NOT_FOUND, "{}: has no key 'model_type'", settings.file());
    model_type = *found;
    if (const Family* family = family_of_model_type(model_type)) return *family;
    fail(MOE_ERROR_UNSUPPORTED, "{}: model_type '{}' is no family that this version knows: {}",
         settings.file(), printable(model_type).text, known_families());
}

const Family& family_of_gguf(const Settings& settings, std::string_view& architecture) {
    const auto found = settings.find_text("general.architecture");
    if (!found) fail(MOE_ERROR_NOT_FOUND, "{}: has no key 'general.architecture'", settings.file());
    architecture = *found;
    const Family* family = find_alias(architectures, architecture);
    if (!family) {
        fail(MOE_ERROR_UNSUPPORTED, "{}: architecture '{}' is none that this version knows: {}",
             settings.file(), printable(architecture).text, known_architectures());
    }
    if (architecture != "deepseek2") return *family;
    const auto gating = settings.find_integer({"deepseek2.expert_gating_func"}, 0, 255);
    return gating == sigmoid_gating ? *find_family("deepseek_v3") : *family;
}

}  // namespace moe
