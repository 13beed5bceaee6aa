// config.json beside a checkpoint that has tensors of every family: the settings are read anew for
// each input, the tensors stay.
#include <memory>
#include <optional>

#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/json.hpp"
#include "libmoe/checkpoint/layer_places.hpp"
#include "libmoe/checkpoint/unread_keys.hpp"
#include "tests/fuzz/every_family.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/targets.hpp"

namespace moe_fuzz {
namespace {

constexpr std::string_view config_name = "config.json";
constexpr std::string_view config_words[] = {"model_type",
                                             "text_config",
                                             "hidden_size",
                                             "intermediate_size",
                                             "moe_intermediate_size",
                                             "shared_expert_intermediate_size",
                                             "num_experts",
                                             "num_local_experts",
                                             "n_routed_experts",
                                             "n_shared_experts",
                                             "num_experts_per_tok",
                                             "experts_per_token",
                                             "norm_topk_prob",
                                             "scoring_func",
                                             "softmax",
                                             "sigmoid",
                                             "topk_method",
                                             "greedy",
                                             "group_limited_greedy",
                                             "noaux_tc",
                                             "n_group",
                                             "topk_group",
                                             "routed_scaling_factor",
                                             "swiglu_limit",
                                             "hidden_act",
                                             "silu",
                                             "swish",
                                             "gelu",
                                             "gelu_new",
                                             "gelu_pytorch_tanh",
                                             "quantization_config",
                                             "weight_block_size",
                                             "mixtral",
                                             "qwen2_moe",
                                             "qwen3_moe",
                                             "qwen3_next",
                                             "deepseek_v2",
                                             "deepseek_v3",
                                             "kimi_k2",
                                             "gpt_oss",
                                             "num_experts_per_token",
                                             "moe_topk",
                                             "moe_renormalize",
                                             "num_expert_group",
                                             "num_shared_experts",
                                             "expert_ffn_hidden_size",
                                             "zero_expert_num",
                                             "moe_latent_size",
                                             "swiglu_limits",
                                             "sqrtsoftplus",
                                             "deepseek_v4",
                                             "glm4_moe",
                                             "llama4",
                                             "minimax_m3",
                                             "hunyuan_v1_moe",
                                             "step3p5",
                                             "nemotron_h",
                                             "longcat_flash",
                                             "dbrx",
                                             "granitemoe",
                                             "gemma4",
                                             "laguna",
                                             "cohere2_moe",
                                             "kimi_linear",
                                             "moe_router_activation_func",
                                             "routed_expert_hidden_size",
                                             "latent_moe_use_norm",
                                             "rms_norm_eps",
                                             "situ",
                                             "activation_situ_beta",
                                             "thinker_config"};

struct OpenCheckpoint {
    OpenCheckpoint() {
        const moe::test::Folder folder;  // gone again once the file is mapped
        every_family().write(folder);
        files.emplace(memory, folder.path(), MOE_IO_MMAP);
        places = moe::find_layers(memory, files->index, files->files, {});
    }
    void forget_settings() {
        std::destroy_at(&files->settings);
        std::construct_at(&files->settings, memory, config_name);
    }

    std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
    std::optional<moe::CheckpointFiles> files;
    std::pmr::vector<moe::LayerPlace> places;
};

void build(OpenCheckpoint& fixed, const moe::Family& family, const moe::LayerPlace& place) {
    auto make = [&] {
        const moe::FusedOverride override;
        moe::LayerData data(fixed.memory);
        moe::LayerBuilder builder(*fixed.files, override, place.prefix, place.number, data);
        family.build(builder);
        builder.finish();
        moe::refuse_unread_keys(fixed.files->settings, family.name, place.number, data.desc,
                                data.desc);
        const moe_status status = moe_layer_validate(&data.desc);
        promise(status == MOE_OK || status == MOE_ERROR_INVALID_ARGUMENT, "validation",
                moe_last_error());
    };
    survives(make, ".");
}

}  // namespace

void run_config(std::string_view input) {
    static OpenCheckpoint fixed;
    fixed.forget_settings();
    const moe::Family* family = nullptr;
    auto read = [&] {
        moe::Settings& settings = fixed.files->settings;
        moe::read_settings_json(input, config_name, settings);
        settings.set_prefix("text_config.");
        std::string_view type;
        family = &moe::family_of_config(settings, type);
    };
    if (!survives(read, config_name)) return;
    for (const moe::LayerPlace& place : fixed.places) build(fixed, *family, place);
}

std::string mutate_config(std::string_view input, Random& random) {
    return mutate_json(input, config_words, random);
}

}  // namespace moe_fuzz
