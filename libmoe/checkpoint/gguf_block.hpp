// The MoE block of a GGUF file. Sizes are read from the tensors; routing from the keys that
// llama.cpp reads for the architecture, and from what its graph fixes. A key that it does not read
// and that says otherwise is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libmoe/checkpoint/layer_builder.hpp"

namespace moe {

// The values of expert_gating_func.
enum class GgufScore : int32_t { Softmax = 1, Sigmoid = 2, SoftmaxAfterTopK = 3, SqrtSoftplus = 4 };
enum class GgufNorm { Never, Always, ByKey };
// swiglu_clamp_exp: of the gate before its activation or after it.
enum class GgufLimit { None, BeforeActivation, AfterActivation };
// swiglu_clamp_shexp; without it the shared expert has no limit, or that of the others.
enum class GgufSharedLimit { None, ByKey, ByKeyOrAsExperts };

struct GgufFacts {
    GgufScore score = GgufScore::Softmax;
    bool reads_score = false;  // expert_gating_func; absent or 0 it is score
    GgufNorm norm = GgufNorm::Always;
    bool reads_scale = false;  // expert_weights_scale
    bool has_bias = false;     // exp_probs_b, where the file has one
    bool has_shared_gate = false;
    bool shared_is_merged = false;  // gate above up in ffn_up_shexp
    bool is_gated = true;
    moe_activation activation = MOE_ACTIVATION_SILU;
    GgufLimit limit = GgufLimit::None;
    GgufSharedLimit shared_limit = GgufSharedLimit::None;
    // Projections to a latent and back, where the file has them, and the norm between; null: none.
    const char* latent_in = nullptr;
    const char* latent_out = nullptr;
    const char* latent_norm = nullptr;
};

// The key of the epsilon of RMS norms.
constexpr const char* gguf_norm_eps = "attention.layer_norm_rms_epsilon";

// embedding_length, expert_count, expert_used_count, a latent, and the width of the experts.
void read_gguf_sizes(LayerBuilder& layer, const GgufFacts& facts);
void set_gguf_routing(LayerBuilder& layer, const GgufFacts& facts);
// The router, the experts, the shared expert where there is one, and the selection bias.
void add_gguf_tensors(LayerBuilder& layer, const GgufFacts& facts);
// All of these, and the activation.
void build_gguf_block(LayerBuilder& layer, const GgufFacts& facts);
// "qwen3moe.expert_count", for sentences.
std::string gguf_key(const LayerBuilder& layer, std::string_view key);

}  // namespace moe
