// A folder of config.json and model.safetensors through moe.h. Input: u32 length of the first, the
// first, the second.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/model_folder.hpp"
#include "tests/fuzz/safetensors_parts.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/fuzz/use_checkpoint.hpp"

namespace moe_fuzz {
namespace {

struct Parts {
    std::string_view config, tensors;

    explicit Parts(std::string_view input) {
        uint32_t length = 0;
        if (input.size() >= sizeof length) std::memcpy(&length, input.data(), sizeof length);
        input = input.substr(std::min(sizeof length, input.size()));
        config = input.substr(0, length);
        tensors = input.substr(config.size());
    }
};

constexpr std::string_view model_words[] = {"hidden_size",
                                            "num_experts",
                                            "moe_intermediate_size",
                                            "intermediate_size",
                                            "num_local_experts",
                                            "mixtral",
                                            "qwen2_moe",
                                            "qwen3_moe",
                                            "deepseek_v2",
                                            "deepseek_v3",
                                            "gpt_oss",
                                            "num_experts_per_tok",
                                            "quantization_config",
                                            "quant_method",
                                            "gptq",
                                            "awq",
                                            "bitsandbytes",
                                            "bits",
                                            "group_size",
                                            "desc_act",
                                            "checkpoint_format",
                                            "gptq_v2",
                                            "version",
                                            "gemm",
                                            "weight_block_size",
                                            "config_groups",
                                            "group_0",
                                            "quantization",
                                            "mode",
                                            "affine",
                                            "nvfp4",
                                            "model.layers.0.mlp.gate",
                                            "dynamic",
                                            "extra_config",
                                            "packing_format",
                                            "auto_round:auto_gptq",
                                            "targets",
                                            "re:.*up_proj",
                                            "w4afp8",
                                            "expert_dtype",
                                            "weights"};

}  // namespace

void run_model(std::string_view input) {
    static const ModelFolder folder;
    const Parts parts(input);
    folder.write(ModelFolder::config, parts.config);
    folder.write(ModelFolder::tensors, parts.tensors);
    use_checkpoint(folder.path(), input.size() % 2 ? MOE_IO_READ : MOE_IO_MMAP, ".");
}

std::string mutate_model(std::string_view input, Random& random) {
    const Parts parts(input);
    std::string config(parts.config), tensors(parts.tensors);
    const bool both = random.one_in(8), first = random.one_in(3);
    if (first || both) config = mutate_json(config, model_words, random);
    if (!first || both) tensors = mutate_safetensors_file(tensors, random);
    const auto length = static_cast<uint32_t>(config.size());
    std::string out(sizeof length, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + config + tensors;
}

}  // namespace moe_fuzz
