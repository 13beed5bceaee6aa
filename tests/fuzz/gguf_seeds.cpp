// GGUF files of several architectures.
#include "tests/checkpoint/models.hpp"
#include "tests/fuzz/seeds.hpp"

namespace moe_fuzz {
namespace {

using moe::test::GgufWriter;
using moe::test::raw;

constexpr int64_t h = 32, n_experts = 2;

constexpr uint32_t f32 = 0, f16 = 1, q8_0 = 8, q4_k = 12, i8 = 24, i32 = 26, mxfp4 = 39, nvfp4 = 40;

uint64_t bytes_of(uint32_t type, const moe::test::Shape& ne) {
    const moe::Element& e = *moe::ggml_element(type);
    uint64_t bytes = static_cast<uint64_t>(ne[0]) / e.block_elements * e.block_bits / 8;
    for (size_t i = 1; i < ne.size(); ++i) bytes *= static_cast<uint64_t>(ne[i]);
    return bytes;
}

struct SmallGguf {
    GgufWriter writer;
    int64_t hidden, width, experts;

    explicit SmallGguf(const std::string& arch, int64_t hidden = h, int64_t width = 32,
                       int64_t experts = n_experts)
        : hidden(hidden), width(width), experts(experts) {
        writer.text("general.architecture", arch);
        writer.integer(arch + ".embedding_length", static_cast<uint32_t>(hidden));
        writer.integer(arch + ".expert_count", static_cast<uint32_t>(experts));
        writer.integer(arch + ".expert_used_count", 1);
        add("ffn_gate_inp.weight", {hidden, experts}, f32);
    }
    void add(const std::string& name, const moe::test::Shape& ne, uint32_t type) {
        writer.tensor("blk.0." + name, ne, type, std::string(bytes_of(type, ne), '\x11'));
    }
    void stacks(uint32_t type) {
        add("ffn_gate_exps.weight", {hidden, width, experts}, type);
        add("ffn_up_exps.weight", {hidden, width, experts}, type);
        add("ffn_down_exps.weight", {width, hidden, experts}, type);
    }
    void shared() {
        add("ffn_gate_shexp.weight", {hidden, width}, f16);
        add("ffn_up_shexp.weight", {hidden, width}, f16);
        add("ffn_down_shexp.weight", {width, hidden}, f16);
    }
};

void add_quantised(const Seeds& seeds) {
    SmallGguf mixtral("llama");
    mixtral.stacks(q8_0);
    seeds.add("gguf", "mixtral_q8_0", mixtral.writer.file());
    SmallGguf old("llama");
    for (int e = 0; e < n_experts; ++e) {
        const std::string end = "." + std::to_string(e) + ".weight";
        old.add("ffn_gate" + end, {h, 32}, f16);
        old.add("ffn_up" + end, {h, 32}, f16);
        old.add("ffn_down" + end, {32, h}, f16);
    }
    seeds.add("gguf", "mixtral_old", old.writer.file());
    SmallGguf qwen("qwen3moe");
    qwen.stacks(mxfp4);
    seeds.add("gguf", "qwen3_mxfp4", qwen.writer.file());
    SmallGguf scaled("qwen3moe", 64, 64);
    scaled.stacks(nvfp4);
    for (const char* name : {"ffn_gate_exps.scale", "ffn_up_exps.scale", "ffn_down_exps.scale"})
        scaled.add(name, {n_experts}, f32);
    seeds.add("gguf", "qwen3_nvfp4", scaled.writer.file());
}

void add_architectures(const Seeds& seeds) {
    SmallGguf qwen2("qwen2moe");
    qwen2.stacks(f16);
    qwen2.shared();
    qwen2.add("ffn_gate_inp_shexp.weight", {h}, f32);
    seeds.add("gguf", "qwen2", qwen2.writer.file());
    SmallGguf next("qwen3next");
    next.add("ffn_gate_up_exps.weight", {h, 64, n_experts}, f16);
    next.add("ffn_down_exps.weight", {32, h, n_experts}, f16);
    seeds.add("gguf", "qwen3next", next.writer.file());
    SmallGguf deepseek("deepseek2", h, 32, 4);
    deepseek.stacks(f16);
    deepseek.shared();
    deepseek.add("exp_probs_b.bias", {4}, f32);
    deepseek.writer.integer("deepseek2.expert_gating_func", 2);
    deepseek.writer.integer("deepseek2.expert_group_count", 2);
    deepseek.writer.integer("deepseek2.expert_group_used_count", 1);
    deepseek.writer.flag("deepseek2.expert_weights_norm", true);
    deepseek.writer.real("deepseek2.expert_weights_scale", 2.5f);
    seeds.add("gguf", "deepseek", deepseek.writer.file());
    const std::pair<const char*, uint32_t> scores[] = {{"dots1", 4},      {"hunyuan-moe", 1},
                                                       {"olmoe", 1},      {"bailingmoe", 1},
                                                       {"minimax-m2", 4}, {"llama4", 2}};
    for (const auto& [arch, score] : scores) {
        SmallGguf small(arch);
        small.stacks(mxfp4);
        small.writer.integer(arch + std::string(".expert_gating_func"), score);
        seeds.add("gguf", arch, small.writer.file());
    }
    SmallGguf oss("gpt-oss");
    oss.stacks(mxfp4);
    oss.add("ffn_gate_inp.bias", {n_experts}, f32);
    oss.add("ffn_gate_exps.bias", {32, n_experts}, f32);
    oss.add("ffn_up_exps.bias", {32, n_experts}, f32);
    oss.add("ffn_down_exps.bias", {h, n_experts}, f32);
    seeds.add("gguf", "gpt_oss", oss.writer.file());
}

// Of architectures with parts of their own, and with values for each block.
void add_rules(const Seeds& seeds) {
    SmallGguf gemma("gemma4");
    gemma.writer.real("gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    gemma.add("ffn_gate_up_exps.weight", {h, 64, n_experts}, q8_0);
    gemma.add("ffn_down_exps.weight", {32, h, n_experts}, q8_0);
    gemma.add("ffn_down_exps.scale", {n_experts}, f32);
    gemma.add("ffn_gate_inp.scale", {h}, f32);
    seeds.add("gguf", "gemma4", gemma.writer.file());
    SmallGguf nemotron("nemotron_h_moe", 64);
    nemotron.writer.pairs.pop_back();
    nemotron.writer.array("nemotron_h_moe.expert_used_count", 5, 2, raw(1) + raw(0));
    nemotron.add("ffn_latent_down.weight", {64, h}, f16);
    nemotron.add("ffn_latent_up.weight", {h, 64}, f16);
    nemotron.add("ffn_up_exps.weight", {h, 32, n_experts}, q8_0);
    nemotron.add("ffn_down_exps.weight", {32, h, n_experts}, q8_0);
    seeds.add("gguf", "nemotron_h", nemotron.writer.file());
    SmallGguf v4("deepseek4");
    v4.stacks(q8_0);
    v4.shared();
    v4.writer.real("deepseek4.swiglu_clamp_exp", 10.0f);
    v4.writer.tensor("blk.0.ffn_gate_tid2eid.weight", {1, 16}, i32, std::string(64, '\0'));
    seeds.add("gguf", "deepseek4", v4.writer.file());
    SmallGguf step("step35");
    step.stacks(q8_0);
    step.shared();
    step.writer.array("step35.swiglu_clamp_exp", 6, 2, raw(7.0f) + raw(0.0f));
    step.add("exp_probs_b.bias", {n_experts}, f32);
    seeds.add("gguf", "step35", step.writer.file());
    SmallGguf glm("deepseek2");
    glm.stacks(q8_0);
    glm.writer.integer("deepseek2.block_count", 48);
    glm.writer.integer("deepseek2.nextn_predict_layers", 1);
    glm.writer.integer("deepseek2.vocab_size", 154880);
    seeds.add("gguf", "glm_flash", glm.writer.file());
}

}  // namespace

void add_gguf(const Seeds& seeds) {
    add_quantised(seeds);
    add_architectures(seeds);
    add_rules(seeds);
    GgufWriter values;
    values.alignment = 8;
    values.integer("general.alignment", 8);
    values.text("general.architecture", "llama");
    for (const uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 10u, 11u, 12u}) {
        constexpr size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        const std::string name = "value" + std::to_string(type);
        values.pair(name, type, std::string(sizes[type], '\1'));
        values.pair(name + "s", 9,
                    raw(type) + raw<uint64_t>(2) + std::string(2 * sizes[type], '\1'));
    }
    values.pair("u64", 10, raw(~uint64_t{0}));
    values.pair(
        "words", 9,
        raw(8u) + raw<uint64_t>(2) + moe::test::gguf_string("a") + moe::test::gguf_string("bc"));
    values.tensor("a", {3}, i8, "abc");
    values.tensor("b", {256, 2}, q4_k, std::string(288, 'q'));
    seeds.add("gguf", "values", values.file());
}

}  // namespace moe_fuzz
