// The architectures of GGUF files: every one that llama.cpp 0.5 runs experts of, and its family.
#include <algorithm>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/gguf_block.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

struct Architecture {
    std::string_view name;
    const char* family;
    void (*build)(LayerBuilder& layer) = nullptr;  // null: the family's
};

constexpr Architecture architectures[] = {
    {"llama", "mixtral"},
    {"llama-embed", "mixtral"},
    {"mistral3", "mixtral"},
    {"minicpm", "mixtral"},
    {"minimax-01", "minimax"},
    {"arctic", "arctic"},
    {"qwen2moe", "qwen2_moe"},
    {"qwen3moe", "qwen3_moe"},
    {"rnd1", "qwen3_moe"},
    {"mellum", "mellum"},
    {"qwen3next", "qwen3_next"},
    {"qwen35moe", "qwen3_5_moe"},
    {"qwen4exp", "qwen3_5_moe"},
    {"qwen3vlmoe", "qwen3_vl_moe"},
    {"deepseek", "deepseek_v2", build_gguf_deepseek},
    {"deepseek2", "deepseek_v2"},
    {"deepseek2-ocr", "deepseek_v2", build_gguf_scored_softmax},
    {"deepseek32", "deepseek_v3"},
    {"deepseek4", "deepseek_v4"},
    {"mistral4", "mistral4", build_gguf_deepseek_v2},
    {"gpt-oss", "gpt_oss"},
    {"glm4moe", "glm4_moe"},
    {"glm-dsa", "glm_moe_dsa"},
    {"glm5-next", "glm5_next"},
    {"minimax-m2", "minimax_m2"},
    {"minimax-m3", "minimax_m3"},
    {"llama4", "llama4"},
    {"hunyuan-moe", "hunyuan_v1_moe"},
    {"hy_v3", "hy_v3"},
    {"hy_v4", "hy_v4"},
    {"ernie4_5-moe", "ernie4_5_moe"},
    {"olmoe", "olmoe"},
    {"llada-moe", "olmoe"},
    {"phimoe", "phimoe"},
    {"dbrx", "dbrx"},
    {"jamba", "jamba"},
    {"granite", "granitemoe"},
    {"granitemoe", "granitemoe"},
    {"granitehybrid", "granitemoe"},
    {"granite_swa", "granitemoe", build_gguf_granite_swa},
    {"dots1", "dots1"},
    {"dots3note", "dots1"},
    {"bailingmoe", "bailing_moe"},
    {"bailingmoe2", "bailing_moe", build_gguf_scored},
    {"bailingmoe3", "bailing_hybrid"},
    {"kimi-linear", "kimi_linear"},
    {"kimi-k3", "kimi_linear", build_gguf_kimi_k3},
    {"step35", "step3p5"},
    {"nemotron_h", "nemotron_h"},
    {"nemotron_h_moe", "nemotron_h"},
    {"gemma4", "gemma4"},
    {"lfm2moe", "lfm2_moe"},
    {"afmoe", "afmoe"},
    {"exaone-moe", "exaone_moe"},
    {"laguna", "laguna"},
    {"mimo2", "mimo_v2_flash"},
    {"cohere2moe", "cohere2_moe"},
    {"maple", "maple"},
    {"nomic-bert-moe", "nomic_bert_moe"},
};

struct Refused {
    std::string_view name;
    const char* why;
};

constexpr Refused refused[] = {
    {"grok", "its files name a cap of the router's logits, which llama.cpp does not apply"},
    {"grovemoe", "neighbouring experts share further experts"},
    {"smallthinker", "the gate of its experts has a plain ReLU"},
    {"dflash", "it is a part of another model, which drafts tokens"},
};

template <class Row, size_t n>
const Row* find_row(const Row (&rows)[n], std::string_view name) {
    const auto it = std::find_if(std::begin(rows), std::end(rows),
                                 [&](const Row& row) { return row.name == name; });
    return it == std::end(rows) ? nullptr : it;
}

std::string known_architectures() {
    std::string names;
    for (const Architecture& architecture : architectures)
        names += (names.empty() ? "" : " ") + std::string(architecture.name);
    return names;
}

// deepseek2 serves both generations; the score tells them apart.
bool is_deepseek_v3(const Settings& settings) {
    const SettingsPart keys(settings, "deepseek2.");
    const auto score = keys.find_integer("expert_gating_func", 0, 255).value_or(0);
    if (score == 0) return is_gguf_glm_flash(keys, settings);
    return score == static_cast<int64_t>(GgufScore::Sigmoid);
}

}  // namespace

GgufFamily family_of_gguf(const Settings& settings, std::string_view& architecture) {
    const auto found = settings.find_text("general.architecture");
    if (!found) fail(MOE_ERROR_NOT_FOUND, "{}: has no key 'general.architecture'", settings.file());
    architecture = *found;
    if (const Refused* row = find_row(refused, architecture))
        fail(MOE_ERROR_UNSUPPORTED, "{}: architecture '{}' is not read: {}", settings.file(),
             architecture, row->why);
    const Architecture* row = find_row(architectures, architecture);
    if (!row)
        fail(MOE_ERROR_UNSUPPORTED, "{}: architecture '{}' is none that this version knows: {}{}",
             settings.file(), printable(architecture).text, known_architectures(),
             how_to_name_a_family);
    const bool is_v3 = architecture == "deepseek2" && is_deepseek_v3(settings);
    const Family* family = find_family(is_v3 ? "deepseek_v3" : row->family);
    return {family, row->build ? row->build : family->build_gguf};
}

}  // namespace moe
