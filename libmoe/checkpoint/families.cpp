// The table of families, and which one a checkpoint is.
#include "libmoe/checkpoint/families.hpp"

#include <algorithm>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr Family families[] = {
    {"mixtral", build_mixtral, build_gguf_softmax},
    {"qwen2_moe", build_qwen2_moe, build_gguf_qwen2_moe},
    {"qwen3_moe", build_qwen3_moe, build_gguf_softmax},
    {"qwen3_next", build_qwen3_next, build_gguf_qwen3_next},
    {"qwen3_5_moe", build_qwen3_next, build_gguf_qwen3_next},
    {"qwen3_vl_moe", build_qwen3_vl_moe, build_gguf_softmax},
    {"qwen3_omni_moe", build_qwen3_next, nullptr, "thinker_config.text_config."},
    {"deepseek_v2", build_deepseek_v2, build_gguf_deepseek_v2},
    {"deepseek_v3", build_deepseek_v3, build_gguf_scored},
    {"deepseek_v4", build_deepseek_v4, build_gguf_deepseek_v4},
    {"axk2", build_axk2, nullptr},
    {"kolibri1", build_kolibri1, nullptr, nullptr, true},
    {"gpt_oss", build_gpt_oss, build_gguf_gpt_oss},
    {"glm4_moe", build_glm4_moe, build_gguf_scored},
    {"glm4_moe_lite", build_glm4_moe_lite, build_gguf_scored},
    {"glm_moe_dsa", build_glm_moe_dsa, build_gguf_scored},
    {"minimax", build_mixtral, build_gguf_softmax},
    {"arctic", build_mixtral, build_gguf_softmax},
    {"minimax_m2", build_minimax_m2, build_gguf_normalised_sigmoid},
    {"minimax_m3", build_minimax_m3, build_gguf_minimax_m3},
    {"llama4", build_llama4, build_gguf_llama4},
    {"kimi_linear", build_kimi_linear, build_gguf_kimi_linear},
    {"hunyuan_v1_moe", build_hunyuan_v1_moe, build_gguf_softmax},
    {"hy_v3", build_hy_v3, build_gguf_scored},
    {"ernie4_5_moe", build_ernie4_5_moe, build_gguf_ernie},
    {"olmoe", build_olmoe, build_gguf_plain_softmax},
    {"flex_olmo", build_olmoe, nullptr},
    {"phimoe", build_phimoe, build_gguf_softmax},
    {"dbrx", build_dbrx, build_gguf_softmax},
    {"jamba", build_jamba, build_gguf_plain_softmax},
    {"granitemoe", build_granitemoe, build_gguf_softmax, nullptr, true},
    {"dots1", build_dots1, build_gguf_scored},
    {"bailing_moe", build_bailing_moe, build_gguf_bailing_moe},
    {"bailing_hybrid", build_bailing_hybrid, build_gguf_post_limited},
    {"step3p5", build_step, build_gguf_post_limited},
    {"nemotron_h", build_nemotron_h, build_gguf_nemotron_h},
    {"longcat_flash", build_longcat_flash, nullptr},
    {"gemma4", build_gemma4, build_gguf_gemma4},
    {"lfm2_moe", build_lfm2_moe, build_gguf_normalised_sigmoid},
    {"afmoe", build_afmoe, build_gguf_scored},
    {"laguna", build_laguna, build_gguf_scored},
    {"mimo_v2_flash", build_mimo_v2_flash, build_gguf_mimo2},
    {"exaone_moe", build_exaone_moe, build_gguf_scored},
    {"mistral4", build_mistral4, build_gguf_scored_softmax},
    {"cohere2_moe", build_cohere2_moe, build_gguf_cohere2_moe},
    {"maple", nullptr, build_gguf_maple},
    {"nomic_bert_moe", nullptr, build_gguf_nomic_bert},
    {"glm5_next", build_glm5_next, build_gguf_glm5_next},
    {"hy_v4", build_hy_v4, build_gguf_hy_v4},
    {"flint", build_flint, nullptr},
    {"mellum", build_mellum, build_gguf_softmax},
    {"lara_mini", build_lara_mini, nullptr},
    {"mistral_large4", build_mistral_large4, nullptr},
    {"sarvam_moe", build_sarvam_moe, nullptr},
    {"param2moe", build_param2moe, nullptr},
    {"beam", build_beam, nullptr},
    {"iquest_q1", build_iquest_q1, nullptr},
    {"openai_privacy_filter", build_openai_privacy_filter, nullptr},
    {"inkling", build_inkling, nullptr},
    {"inkling2", build_inkling2, nullptr},
    {"muse_spark", build_muse_spark, nullptr},
};

struct Alias {
    std::string_view name;
    const char* family;
};

// Other model types with the same MoE block.
constexpr Alias model_types[] = {
    {"kimi_k2", "deepseek_v3"},
    {"deepseek_v32", "deepseek_v3"},
    {"deepseek_v41", "deepseek_v4"},
    {"deepseek_v41_text", "deepseek_v4"},
    {"deepseek_vl_v2", "deepseek_v2"},
    {"deepseek_ocr2", "deepseek_v2"},
    {"deepseek_ocr2_text", "deepseek_v2"},
    {"unlimited_ocr", "deepseek_v2"},
    {"unlimited_ocr_text", "deepseek_v2"},
    {"kimi_k3", "kimi_linear"},
    {"qwen3_5_moe_text", "qwen3_5_moe"},
    {"qwen4_exp", "qwen3_5_moe"},
    {"qwen4_exp_text", "qwen3_5_moe"},
    {"qwen3_vl_moe_text", "qwen3_vl_moe"},
    {"qwen3_omni_moe_thinker", "qwen3_omni_moe"},
    {"qwen3_omni_moe_text", "qwen3_omni_moe"},
    {"glm4v_moe_text", "glm4_moe"},
    {"solar_open", "glm4_moe"},
    {"dots3_note", "glm4_moe"},
    {"dots3_note_text", "glm4_moe"},
    {"glm5_next_text", "glm5_next"},
    {"hy_v4_vl", "hy_v4"},
    {"hy_v4_vl_text", "hy_v4"},
    {"mistral_large4_text", "mistral_large4"},
    {"sarvam_mla", "sarvam_moe"},
    {"mimo_v2", "mimo_v2_flash"},
    {"minimax_text_01", "minimax"},
    {"minimax_m1", "minimax"},
    {"minimax_m3_vl", "minimax_m3"},
    {"minimax_m3_vl_text", "minimax_m3"},
    {"llama4_text", "llama4"},
    {"hunyuan", "hunyuan_v1_moe"},
    {"granitemoeshared", "granitemoe"},
    {"granitemoehybrid", "granitemoe"},
    {"granitemoe_swa", "granitemoe"},
    {"bailing_moe_v2", "bailing_moe"},
    {"step3p7", "step3p5"},
    {"step3p7_text", "step3p5"},
    {"step5", "step3p5"},
    {"gemma4_text", "gemma4"},
    {"diffusion_gemma", "gemma4"},
    {"diffusion_gemma_text", "gemma4"},
    {"inkling_mm_model", "inkling"},
    {"inkling_model", "inkling"},
    {"inkling_text", "inkling"},
    {"inkling2_text", "inkling2"},
    {"muse_spark_text", "muse_spark"},
};

const Family* find_alias(std::span<const Alias> aliases, std::string_view name) {
    const auto it = std::find_if(aliases.begin(), aliases.end(),
                                 [&](const Alias& alias) { return alias.name == name; });
    return it == aliases.end() ? nullptr : find_family(it->family);
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
    const Family* family = family_of_model_type(model_type);
    if (family && family->build) return *family;
    if (family)
        fail(MOE_ERROR_UNSUPPORTED, "{}: models of type '{}' are read from GGUF alone",
             settings.file(), printable(model_type).text);
    fail(MOE_ERROR_UNSUPPORTED, "{}: model_type '{}' is no family that this version knows: {}{}",
         settings.file(), printable(model_type).text, known_families(), how_to_name_a_family);
}

}  // namespace moe
