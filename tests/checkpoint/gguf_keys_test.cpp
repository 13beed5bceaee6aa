// What the header of a GGUF leaves out and llama.cpp completes from the rest of it, and what it
// says that llama.cpp does not read.
#include "tests/checkpoint/gguf_models.hpp"

namespace moe::test {
namespace {

constexpr uint32_t type_u32 = 4, type_i32 = 5, type_f32 = 6, type_bool = 7, type_text = 8;

moe_layer_desc desc_of(const GgufModel& model) {
    const Folder folder;
    const moe_layer_desc desc = model.open(folder)->layer_desc(1);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    return desc;
}

GgufModel with_experts(const std::string& arch) {
    GgufModel model(arch);
    model.add_experts(q8_0);
    return model;
}

// GLM-4.7-Flash lies in deepseek2 files without a gating function.
TEST(GgufKeys, Deepseek2IsASigmoidByBlocksAndVocabulary) {
    const struct {
        int blocks, next, vocabulary;
        bool listed, sigmoid;
    } cases[] = {
        {47, 0, 154880, false, true},  {48, 1, 154880, false, true},  {48, 0, 154880, false, true},
        {47, 0, 154880, true, true},   {49, 1, 154880, true, true},   {46, 0, 154880, false, false},
        {47, 1, 154880, false, false}, {49, 0, 154880, false, false}, {47, 0, 128256, false, false},
        {47, 0, 128256, true, false},  {27, 0, 154880, false, false},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(testing::Message() << c.blocks << " " << c.next << " " << c.vocabulary);
        GgufModel model = with_experts("deepseek2");
        model.writer.integer("deepseek2.block_count", c.blocks);
        if (c.next) model.writer.integer("deepseek2.nextn_predict_layers", c.next);
        if (c.listed) {
            const auto count = static_cast<uint64_t>(c.vocabulary);
            model.writer.array("tokenizer.ggml.tokens", type_text, count,
                               std::string(count * 8, '\0'));  // empty texts
        } else {
            model.writer.integer("deepseek2.vocab_size", c.vocabulary);
        }
        EXPECT_EQ(desc_of(model).score, c.sigmoid ? MOE_SCORE_SIGMOID : MOE_SCORE_SOFTMAX);
        const Folder folder;
        EXPECT_STREQ(model.open(folder)->info().family, c.sigmoid ? "deepseek_v3" : "deepseek_v2");
        model.writer.integer("deepseek2.expert_gating_func", c.sigmoid ? 1 : 2);
        EXPECT_EQ(desc_of(model).score, c.sigmoid ? MOE_SCORE_SOFTMAX : MOE_SCORE_SIGMOID);
    }
}

TEST(GgufKeys, ScoreOfAnArchitectureWithoutTheKey) {
    const struct {
        const char* arch;
        moe_score score;
    } cases[] = {
        {"deepseek2", MOE_SCORE_SOFTMAX},       {"deepseek2-ocr", MOE_SCORE_SOFTMAX},
        {"mistral4", MOE_SCORE_SOFTMAX},        {"glm4moe", MOE_SCORE_SIGMOID},
        {"glm-dsa", MOE_SCORE_SIGMOID},         {"glm5-next", MOE_SCORE_SIGMOID},
        {"afmoe", MOE_SCORE_SIGMOID},           {"cohere2moe", MOE_SCORE_SIGMOID},
        {"hy_v3", MOE_SCORE_SIGMOID},           {"laguna", MOE_SCORE_SIGMOID},
        {"step35", MOE_SCORE_SIGMOID},          {"bailingmoe2", MOE_SCORE_SIGMOID},
        {"bailingmoe3", MOE_SCORE_SIGMOID},     {"kimi-linear", MOE_SCORE_SIGMOID},
        {"deepseek4", MOE_SCORE_SQRT_SOFTPLUS},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.arch);
        GgufModel model = with_experts(c.arch);
        EXPECT_EQ(desc_of(model).score, c.score);
        model.writer.integer(model.key("expert_gating_func"), 0);  // as if it were absent
        EXPECT_EQ(desc_of(model).score, c.score);
    }
}

TEST(GgufKeys, AScaleOfZeroIsOne) {
    for (const float scale : {0.0f, 1.0f, 2.5f}) {
        GgufModel model = with_experts("glm4moe");
        model.writer.real("glm4moe.expert_weights_scale", scale);
        EXPECT_EQ(desc_of(model).routed_scale, scale == 0.0f ? 1.0f : scale);
    }
    GgufModel zero = with_experts("qwen3moe");
    zero.writer.real("qwen3moe.expert_weights_scale", 0.0f);
    EXPECT_EQ(desc_of(zero).has_routed_scale, 0);
}

TEST(GgufKeys, GroupsAreOfEveryArchitecture) {
    for (const char* arch : {"qwen3moe", "llama", "olmoe", "deepseek2", "glm4moe", "mimo2"}) {
        SCOPED_TRACE(arch);
        GgufModel model = with_experts(arch);
        model.writer.integer(model.key("expert_group_count"), 2);
        model.writer.integer(model.key("expert_group_used_count"), 1);
        const moe_layer_desc desc = desc_of(model);
        EXPECT_EQ(desc.n_group, 2);
        EXPECT_EQ(desc.topk_group, 1);
        EXPECT_EQ(desc.group_score, MOE_GROUP_SCORE_TOP2_SUM);
    }
    GgufModel odd = with_experts("qwen3moe");
    odd.writer.integer("qwen3moe.expert_group_count", 3);
    EXPECT_EQ(odd.failure().text,
              "model.gguf: 'qwen3moe.expert_group_count' is 3, but 4 experts are not 3 groups of 2 "
              "or more");
}

// A model of one block 1: the array has a value for block 0, too.
GgufModel with_array(const std::string& arch, const std::string& key, uint32_t type, uint64_t count,
                     const std::string& bytes) {
    GgufModel model = with_experts(arch);
    if (key == "expert_used_count") model.writer.pairs.pop_back();
    model.writer.array(model.key(key), type, count, bytes);
    return model;
}

TEST(GgufKeys, ValuesOfTheBlockInArrays) {
    for (const uint32_t type : {type_u32, type_i32}) {
        GgufModel used =
            with_array("qwen3moe", "expert_used_count", type, 2, raw<int32_t>(0) + raw<int32_t>(3));
        EXPECT_EQ(desc_of(used).top_k, 3);
    }
    GgufModel none = with_array("qwen3moe", "expert_used_count", type_u32, 2,
                                raw<uint32_t>(3) + raw<uint32_t>(0));
    EXPECT_EQ(none.failure().text,
              "model.gguf: 'qwen3moe.expert_used_count.1' is 0, outside 1 to 64");
    GgufModel few = with_array("qwen3moe", "expert_used_count", type_u32, 1, raw<uint32_t>(3));
    EXPECT_EQ(few.failure().text,
              "model.gguf: 'qwen3moe.expert_used_count' is an array of 1 values and has none for "
              "block 1");
    GgufModel flags = with_array("qwen3moe", "expert_used_count", type_bool, 2, raw<uint16_t>(257));
    EXPECT_EQ(flags.failure().text,
              "model.gguf: 'qwen3moe.expert_used_count' is an array of 2 values and has none for "
              "block 1");
    GgufModel long_one =
        with_array("qwen3moe", "expert_used_count", type_u32, 513, std::string(513 * 4, '\1'));
    EXPECT_EQ(long_one.failure().status, MOE_ERROR_CORRUPT_FILE);

    // The width is that of the tensors, whatever the key's form.
    GgufModel widths = with_array("qwen3moe", "expert_feed_forward_length", type_u32, 2,
                                  raw<uint32_t>(0) + raw<uint32_t>(32));
    EXPECT_EQ(desc_of(widths).intermediate, width);
}

TEST(GgufKeys, LimitsOfTheBlock) {
    const std::string values = raw(9.0f) + raw(7.0f), shared = raw(0.0f) + raw(16.0f);
    GgufModel step = with_array("step35", "swiglu_clamp_exp", type_f32, 2, values);
    step.writer.array("step35.swiglu_clamp_shexp", type_f32, 2, shared);
    step.add_shared();
    const moe_layer_desc after = desc_of(step);
    EXPECT_EQ(after.has_gate_limit, 0);
    EXPECT_EQ(after.post_limit, 7.0f);
    EXPECT_EQ(after.up_limit, 7.0f);
    EXPECT_EQ(after.shared_post_limit, 16.0f);
    EXPECT_EQ(after.shared_up_limit, 16.0f);

    // One number for all blocks; the shared expert's is the same where it is left out.
    for (const bool listed : {true, false}) {
        GgufModel glm = with_experts("glm5-next");
        glm.writer.real("glm5-next.swiglu_clamp_exp", 10.0f);
        if (listed)
            glm.writer.array("glm5-next.swiglu_clamp_shexp", type_f32, 2, std::string(8, 0));
        glm.add_shared();
        const moe_layer_desc before = desc_of(glm);
        EXPECT_EQ(before.has_post_limit, 0);
        EXPECT_EQ(before.gate_limit, 10.0f);
        EXPECT_EQ(before.up_limit, 10.0f);
        EXPECT_EQ(before.shared_gate_limit, listed ? 0.0f : 10.0f);
    }
    GgufModel hunyuan = with_experts("hy_v4");
    hunyuan.writer.real("hy_v4.swiglu_clamp_exp", 10.0f);
    hunyuan.add_shared();
    EXPECT_EQ(desc_of(hunyuan).gate_limit, 10.0f);
    EXPECT_EQ(desc_of(hunyuan).has_shared_gate_limit, 0);
    GgufModel zero = with_array("step35", "swiglu_clamp_exp", type_f32, 2,
                                shared.substr(0, 4) + shared.substr(0, 4));
    EXPECT_EQ(desc_of(zero).has_up_limit, 0);
}

// llama.cpp would pass over these in silence.
TEST(GgufKeys, RefuseWhatTheArchitectureDoesNotDo) {
    const auto expect = [](const GgufModel& model, const std::string& text) {
        const Failure failure = model.failure();
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
        EXPECT_EQ(failure.text, "model.gguf: " + text);
    };
    GgufModel score = with_experts("qwen3moe");
    score.writer.integer("qwen3moe.expert_gating_func", 2);
    expect(score,
           "'qwen3moe.expert_gating_func' is 2, but models of this architecture have a "
           "softmax (1)");
    GgufModel fixed = with_experts("mimo2");
    fixed.writer.integer("mimo2.expert_gating_func", 1);
    expect(fixed,
           "'mimo2.expert_gating_func' is 1, but models of this architecture have a sigmoid "
           "(2)");
    GgufModel norm = with_experts("qwen3moe");
    norm.writer.flag("qwen3moe.expert_weights_norm", false);
    expect(norm,
           "'qwen3moe.expert_weights_norm' is false, but models of this architecture have "
           "weights of sum 1");
    GgufModel plain = with_experts("olmoe");
    plain.writer.flag("olmoe.expert_weights_norm", true);
    expect(plain,
           "'olmoe.expert_weights_norm' is true, but models of this architecture have "
           "weights as they are scored");
    GgufModel scale = with_experts("minimax-m2");
    scale.writer.real("minimax-m2.expert_weights_scale", 2.5f);
    expect(scale,
           "'minimax-m2.expert_weights_scale' is 2.5, but models of this architecture have "
           "no such scale");
    GgufModel limit =
        with_array("qwen3moe", "swiglu_clamp_exp", type_f32, 2, raw(0.0f) + raw(7.0f));
    expect(limit,
           "'qwen3moe.swiglu_clamp_exp' is 7, but models of this architecture have no limit "
           "of the experts");
    GgufModel shared = with_experts("hy_v4");
    shared.writer.real("hy_v4.swiglu_clamp_shexp", 7.0f);
    expect(shared,
           "'hy_v4.swiglu_clamp_shexp' is 7, but models of this architecture have no limit "
           "of the shared expert");
    GgufModel cap = with_experts("llama");
    cap.writer.real("llama.router_logit_softcapping", 30.0f);
    expect(cap,
           "'llama.router_logit_softcapping' is 30, but models of this architecture have no "
           "cap of the router's logits");
}

// What they say beside that is as it is done.
TEST(GgufKeys, TakeWhatTheArchitectureDoes) {
    GgufModel model = with_experts("qwen3moe");
    model.writer.integer("qwen3moe.expert_gating_func", 1);
    model.writer.flag("qwen3moe.expert_weights_norm", true);
    model.writer.real("qwen3moe.expert_weights_scale", 1.0f);
    model.writer.real("qwen3moe.swiglu_clamp_exp", 0.0f);
    model.writer.integer("qwen3moe.expert_group_count", 1);
    const moe_layer_desc desc = desc_of(model);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_CLAMP);
    EXPECT_EQ(desc.has_routed_scale + desc.has_up_limit + desc.n_group, 0);
}

TEST(GgufKeys, ASharedExpertThatIsCountedMustBeThere) {
    GgufModel model = with_experts("glm4moe");
    model.writer.integer("glm4moe.expert_shared_count", 1);
    EXPECT_EQ(model.failure().text, "model.gguf: there is no tensor 'blk.1.ffn_up_shexp.weight'");
    model.add_shared();
    EXPECT_EQ(model.failure().text, "");
}

TEST(GgufKeys, ArchitecturesThatAreNotReadSayWhy) {
    const std::pair<const char*, const char*> cases[] = {
        {"grok", "its files name a cap of the router's logits, which llama.cpp does not apply"},
        {"grovemoe", "neighbouring experts share further experts"},
        {"smallthinker", "the gate of its experts has a plain ReLU"},
        {"dflash", "it is a part of another model, which drafts tokens"},
    };
    for (const auto& [arch, why] : cases) {
        const Failure failure = with_experts(arch).failure();
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
        EXPECT_EQ(failure.text,
                  std::string("model.gguf: architecture '") + arch + "' is not read: " + why);
    }
}

TEST(GgufKeys, FamiliesOfGgufAloneAreNotReadFromSafetensors) {
    const Folder folder;
    Model model = mixtral();
    model.write(folder);
    moe_checkpoint_options options{};
    options.family = "maple";
    const Failure failure = failure_of([&] { open_path(folder.path(), options); });
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("family 'maple' is not read from safetensors"), std::string::npos)
        << failure.text;
    model.config = config_of("maple", "\"num_experts\":4");
    model.write(folder);
    EXPECT_EQ(failure_of([&] { open_path(folder.path()); }).text,
              "config.json: models of type 'maple' are read from GGUF alone");
}

// A second bias, for tokens of pictures, and parts that only some architectures have.
TEST(GgufKeys, RefuseTensorsOfOtherArchitectures) {
    const std::pair<const char*, const char*> cases[] = {
        {"exp_probs_b_vl.bias", "is a bias, which this family does not have"},
        {"ffn_latent_down.weight", "is not read, and would change the result"},
        {"ffn_routed_norm.weight", "is not read, and would change the result"},
        {"ffn_gate_tid2eid.weight", "is not read, and would change the result"},
        {"ffn_gate_inp.scale", "is not read, and would change the result"},
        {"ffn_down.4.weight", "is not read, and would change the result"},
    };
    for (const auto& [name, why] : cases) {
        GgufModel model = with_experts("glm4moe");
        model.add(std::string("blk.1.") + name, {hidden}, f32);
        const Failure failure = model.failure();
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
        EXPECT_EQ(failure.text, std::string("model.gguf: tensor 'blk.1.") + name + "': " + why);
    }
}

TEST(GgufKeys, AFactorBesideDownIsTheExpertsOwn) {
    for (const uint32_t type : {f32, q8_0}) {
        GgufModel model("qwen3moe");
        model.add_experts(type);
        model.add("blk.1.ffn_down_exps.scale", {experts}, f32);
        const Folder folder;
        const Handle checkpoint = model.open(folder);
        EXPECT_EQ(checkpoint->layer_desc(1).has_expert_scale, 1);
        const LayerTensor* scale = find_tensor(checkpoint, 1, MOE_ROLE_EXPERT_SCALE, 0);
        ASSERT_TRUE(scale);
        EXPECT_EQ(scale->tensor.columns, experts);
    }
    // The bias of down would be multiplied as well.
    GgufModel biased("gpt-oss");
    biased.add_experts(q8_0);
    biased.add("blk.1.ffn_down_exps.scale", {experts}, f32);
    EXPECT_EQ(biased.failure().text,
              "model.gguf: tensor 'blk.1.ffn_down_exps.scale': beside a weight in Q8_0");
}

}  // namespace
}  // namespace moe::test
