// Families as GGUF files, and files split into parts.
#include "tests/checkpoint/gguf_models.hpp"

namespace moe::test {
namespace {

void expect_gguf_sizes(const moe_layer_desc& desc) {
    EXPECT_EQ(desc.hidden, hidden);
    EXPECT_EQ(desc.intermediate, width);
    EXPECT_EQ(desc.n_experts, experts);
    EXPECT_EQ(desc.top_k, 2);
    EXPECT_EQ(desc.has_router, 1);
    EXPECT_EQ(desc.activation, MOE_ACTIVATION_SILU);
}

void expect_gguf_bytes(const Handle& checkpoint) {
    for (const LayerTensor& tensor : checkpoint->tensors(1)) {
        EXPECT_EQ(read_range(checkpoint, tensor.data),
                  noise(tensor.data.bytes, seed_of(std::string(tensor.name))))
            << tensor.name;
    }
}

TEST(GgufFamilies, FollowTheArchitecture) {
    const struct {
        const char* arch;
        const char* family;
        bool norm;
        bool shared;
    } cases[] = {
        {"llama", "mixtral", true, false},         {"qwen2moe", "qwen2_moe", false, true},
        {"qwen3moe", "qwen3_moe", true, false},    {"qwen3next", "qwen3_next", true, true},
        {"qwen35moe", "qwen3_5_moe", true, true},  {"qwen3vlmoe", "qwen3_vl_moe", true, false},
        {"olmoe", "olmoe", false, false},          {"jamba", "jamba", false, false},
        {"phimoe", "phimoe", true, false},         {"dbrx", "dbrx", true, false},
        {"granitemoe", "granitemoe", true, false},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.arch);
        for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
            GgufModel model(c.arch);
            model.add_experts(q8_0);
            if (c.shared) {
                model.add_shared();
                model.add("blk.1.ffn_gate_inp_shexp.weight", {hidden}, f32);
            }
            const Folder folder;
            moe_checkpoint_options options{};
            options.io = io;
            const Handle checkpoint = model.open(folder, options);
            ASSERT_EQ(checkpoint->n_layers(), 1);
            EXPECT_EQ(checkpoint->layer_at(0), 1);
            EXPECT_EQ(checkpoint->info().is_gguf, 1);
            EXPECT_STREQ(checkpoint->info().family, c.family);
            EXPECT_STREQ(checkpoint->info().model_type, c.arch);
            const moe_layer_desc& desc = checkpoint->layer_desc(1);
            expect_gguf_sizes(desc);
            EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
            EXPECT_EQ(desc.renormalize, c.norm ? MOE_RENORMALIZE_SUM_CLAMP : MOE_RENORMALIZE_NONE);
            EXPECT_EQ(desc.renormalize_eps, c.norm ? 0x1p-14f : 0.0f);
            EXPECT_EQ(desc.shared_intermediate, c.shared ? shared_width : 0);
            EXPECT_EQ(desc.has_shared_expert_gate, c.shared ? 1 : 0);
            const LayerTensor* down = find_tensor(checkpoint, 1, MOE_ROLE_DOWN, MOE_ALL_EXPERTS);
            ASSERT_TRUE(down);
            EXPECT_EQ(down->format.type, MOE_TYPE_GGUF);
            EXPECT_EQ(down->format.block_id, 8);
            EXPECT_EQ(down->tensor.n_experts, experts);
            EXPECT_EQ(down->tensor.rows, hidden);
            EXPECT_EQ(down->tensor.columns, width);
            EXPECT_EQ(down->tensor.data_bytes, 34u * hidden * experts);
            expect_gguf_bytes(checkpoint);
        }
    }
}

TEST(GgufFamilies, SigmoidArchitecturesHaveBiasNormAndScale) {
    const struct {
        const char* arch;
        const char* family;
        bool always_norm;  // and no scale
    } cases[] = {
        {"glm4moe", "glm4_moe", false},      {"glm-dsa", "glm_moe_dsa", false},
        {"dots1", "dots1", false},           {"afmoe", "afmoe", false},
        {"exaone-moe", "exaone_moe", false}, {"bailingmoe2", "bailing_moe", false},
        {"laguna", "laguna", false},         {"dots3note", "dots1", false},
        {"minimax-m2", "minimax_m2", true},  {"lfm2moe", "lfm2_moe", true},
    };
    for (const auto& c : cases) {
        for (const bool keys : {true, false}) {
            SCOPED_TRACE(testing::Message() << c.arch << ", keys " << keys);
            GgufModel model(c.arch);
            if (keys) {
                model.writer.integer(model.key("expert_gating_func"), 2);
                model.writer.flag(model.key("expert_weights_norm"), true);
                model.writer.real(model.key("expert_weights_scale"), c.always_norm ? 1.0f : 2.5f);
            }
            model.add_experts(q8_0);
            model.add_shared();
            model.add("blk.1.exp_probs_b.bias", {experts}, f32);
            const Folder folder;
            const Handle checkpoint = model.open(folder);
            EXPECT_STREQ(checkpoint->info().family, c.family);
            const moe_layer_desc& desc = checkpoint->layer_desc(1);
            expect_gguf_sizes(desc);
            EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
            EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
            EXPECT_EQ(desc.has_selection_bias, 1);
            EXPECT_EQ(desc.routed_scale, c.always_norm ? 0.0f : keys ? 2.5f : 1.0f);
            EXPECT_EQ(desc.renormalize,
                      keys || c.always_norm ? MOE_RENORMALIZE_SUM_CLAMP : MOE_RENORMALIZE_NONE);
            EXPECT_EQ(desc.shared_intermediate, shared_width);
        }
    }
}

TEST(GgufFamilies, OthersFollowTheirArchitecture) {
    GgufModel llama4("llama4");
    llama4.add_experts(q8_0);
    llama4.add_shared();
    const Folder folder;
    const Handle scout = llama4.open(folder);
    EXPECT_EQ(scout->layer_desc(1).post_score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(scout->layer_desc(1).weight_on, MOE_WEIGHT_ON_INPUT);
    EXPECT_EQ(scout->layer_desc(1).renormalize, MOE_RENORMALIZE_NONE);
    llama4.add("blk.1.ffn_down_exps.scale", {experts}, f32);
    EXPECT_EQ(llama4.failure().text,
              "model.gguf: 'ffn_down_exps.scale' of llama4 multiplies what an expert gives, and "
              "its weights multiply what it takes");

    GgufModel ernie("ernie4_5-moe");
    ernie.add_experts(q8_0);
    ernie.add("blk.1.exp_probs_b.bias", {experts}, f32);
    const Folder second;
    const moe_layer_desc biased = ernie.open(second)->layer_desc(1);
    EXPECT_EQ(biased.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(biased.has_selection_bias, 1);
    EXPECT_EQ(biased.renormalize, MOE_RENORMALIZE_SUM_CLAMP);

    GgufModel ling("bailingmoe2");
    ling.writer.integer(ling.key("expert_gating_func"), 2);
    ling.writer.flag(ling.key("expert_weights_norm"), true);
    ling.writer.integer(ling.key("expert_group_count"), 2);
    ling.writer.integer(ling.key("expert_group_used_count"), 1);
    ling.add_experts(q8_0);
    ling.add("blk.1.exp_probs_b.bias", {experts}, f32);
    const Folder third;
    const moe_layer_desc grouped = ling.open(third)->layer_desc(1);
    EXPECT_EQ(grouped.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(grouped.n_group, 2);

    moe_checkpoint_options options{};
    options.family = "dots1";
    EXPECT_EQ(ling.open(third, options)->layer_desc(1).score, MOE_SCORE_SIGMOID);
    options.family = "dbrx";
    const Failure other = failure_of([&] { ling.open(third, options)->tensors(1); });
    EXPECT_EQ(other.text,
              "model.gguf: 'bailingmoe2.expert_gating_func' is 2, but models of this architecture "
              "have a softmax (1)");
    options.family = "longcat_flash";
    const Failure failure = failure_of([&] { ling.open(third, options); });
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("'longcat_flash' is not read from GGUF"), std::string::npos)
        << failure.text;
}

TEST(GgufFamilies, Deepseek2ReadsItsRoutingKeys) {
    GgufModel model("deepseek2");
    model.writer.integer(model.key("expert_gating_func"), 2);
    model.writer.flag(model.key("expert_weights_norm"), true);
    model.writer.real(model.key("expert_weights_scale"), 2.5f);
    model.writer.integer(model.key("expert_group_count"), 2);
    model.writer.integer(model.key("expert_group_used_count"), 1);
    model.add_experts(q8_0);
    model.add_shared();
    model.add("blk.1.exp_probs_b.bias", {experts}, f32);
    const Folder folder;
    const Handle checkpoint = model.open(folder);
    EXPECT_STREQ(checkpoint->info().family, "deepseek_v3");
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_CLAMP);
    EXPECT_EQ(desc.has_routed_scale, 1);
    EXPECT_EQ(desc.routed_scale, 2.5f);
    EXPECT_EQ(desc.n_group, 2);
    EXPECT_EQ(desc.topk_group, 1);
    EXPECT_EQ(desc.group_score, MOE_GROUP_SCORE_TOP2_SUM);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.has_shared_expert_gate, 0);
    EXPECT_EQ(desc.shared_intermediate, shared_width);
    EXPECT_TRUE(find_tensor(checkpoint, 1, MOE_ROLE_SELECTION_BIAS, 0));
}

TEST(GgufFamilies, Deepseek2WithoutKeysIsSoftmax) {
    GgufModel model("deepseek2");
    model.add_experts(q8_0);
    const Folder folder;
    const Handle checkpoint = model.open(folder);
    EXPECT_STREQ(checkpoint->info().family, "deepseek_v2");
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_NONE);
    EXPECT_EQ(desc.has_routed_scale, 1);
    EXPECT_EQ(desc.routed_scale, 1.0f);
    EXPECT_EQ(desc.has_selection_bias, 0);
    EXPECT_EQ(desc.n_group, 0);
    // A caller who knows better.
    moe_checkpoint_options options{};
    options.family = "deepseek_v3";
    EXPECT_EQ(model.open(folder, options)->layer_desc(1).score, MOE_SCORE_SIGMOID);
}

TEST(GgufFamilies, GptOssHasBiases) {
    GgufModel model("gpt-oss");
    model.add("blk.1.ffn_gate_inp.bias", {experts}, f32);
    model.add_experts(mxfp4);
    model.add("blk.1.ffn_gate_exps.bias", {width, experts}, f32);
    model.add("blk.1.ffn_up_exps.bias", {width, experts}, f32);
    model.add("blk.1.ffn_down_exps.bias", {hidden, experts}, f32);
    const Folder folder;
    const Handle checkpoint = model.open(folder);
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    expect_gguf_sizes(desc);
    EXPECT_EQ(desc.post_score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.activation_alpha, 1.702f);
    EXPECT_EQ(desc.up_limit, 7.0f);
    EXPECT_EQ(find_tensor(checkpoint, 1, MOE_ROLE_UP, MOE_ALL_EXPERTS)->format.block_id, 39);
    const LayerTensor* bias = find_tensor(checkpoint, 1, MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS);
    ASSERT_TRUE(bias);
    EXPECT_EQ(bias->tensor.columns, hidden);
    EXPECT_EQ(bias->tensor.n_experts, experts);
    expect_gguf_bytes(checkpoint);
}

TEST(GgufFamilies, TakeFusedOldAndScaledExperts) {
    GgufModel fused("qwen3next");
    fused.add("blk.1.ffn_gate_up_exps.weight", {hidden, 2 * width, experts}, q8_0);
    fused.add("blk.1.ffn_down_exps.weight", {width, hidden, experts}, q8_0);
    const Folder folder;
    const Handle first = fused.open(folder);
    expect_gguf_sizes(first->layer_desc(1));
    EXPECT_EQ(find_tensor(first, 1, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS)->tensor.gate_up_order,
              MOE_GATE_UP_GATE_FIRST);

    GgufModel old("llama");
    for (int e = 0; e < experts; ++e) {
        old.add("blk.1.ffn_gate." + std::to_string(e) + ".weight", {hidden, width}, q8_0);
        old.add("blk.1.ffn_up." + std::to_string(e) + ".weight", {hidden, width}, q8_0);
        old.add("blk.1.ffn_down." + std::to_string(e) + ".weight", {width, hidden}, q8_0);
    }
    const Folder other;
    const Handle second = old.open(other);
    expect_gguf_sizes(second->layer_desc(1));
    EXPECT_EQ(second->tensors(1).size(), 13u);
    EXPECT_EQ(find_tensor(second, 1, MOE_ROLE_DOWN, 3)->name, "blk.1.ffn_down.3.weight");

    GgufModel scaled("qwen3moe");
    scaled.add("blk.1.ffn_gate_exps.weight", {hidden, width, experts}, nvfp4);
    scaled.add("blk.1.ffn_up_exps.weight", {hidden, width, experts}, nvfp4);
    scaled.add("blk.1.ffn_down_exps.weight", {width, hidden, experts}, q8_0);
    scaled.writer.tensor("blk.1.ffn_up_exps.scale", {experts}, f32,
                         raw(1.0f) + raw(2.0f) + raw(3.0f) + raw(4.0f));
    const Folder third;
    const Handle last = scaled.open(third);
    const LayerTensor* up = find_tensor(last, 1, MOE_ROLE_UP, MOE_ALL_EXPERTS);
    ASSERT_EQ(up->tensor.n_global_scales, experts);
    EXPECT_EQ(up->tensor.global_scale[3], 4.0f);
    EXPECT_EQ(up->format.global_scale, MOE_GLOBAL_SCALE_MULTIPLY);
    EXPECT_EQ(find_tensor(last, 1, MOE_ROLE_GATE, MOE_ALL_EXPERTS)->format.global_scale,
              MOE_GLOBAL_SCALE_NONE);
}

TEST(GgufFamilies, NameWhatIsWrong) {
    const auto expect = [](const GgufModel& model, moe_status status, const char* text) {
        const Failure failure = model.failure();
        EXPECT_EQ(failure.status, status) << failure.text;
        EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text;
    };
    GgufModel unknown("mamba");
    unknown.add_experts(q8_0);
    expect(unknown, MOE_ERROR_UNSUPPORTED,
           "architecture 'mamba' is none that this version knows: llama");

    GgufModel shape("llama");
    shape.add("blk.1.ffn_gate_exps.weight", {hidden, width, experts}, q8_0);
    shape.add("blk.1.ffn_up_exps.weight", {hidden, width, experts}, q8_0);
    shape.add("blk.1.ffn_down_exps.weight", {width, hidden, experts + 1}, q8_0);
    expect(shape, MOE_ERROR_CORRUPT_FILE,
           "ffn_down_exps.weight': has shape [5, 64, 32], [4, 64, 32]");

    GgufModel rank("llama");
    rank.add("blk.1.ffn_gate_exps.weight", {hidden}, q8_0);
    expect(rank, MOE_ERROR_CORRUPT_FILE, "ffn_gate_exps.weight': has shape [64], too few");

    GgufModel missing("llama");
    missing.add("blk.1.ffn_gate_exps.weight", {hidden, width, experts}, q8_0);
    expect(missing, MOE_ERROR_NOT_FOUND, "blk.1.ffn_up_exps.weight");

    GgufModel bias("gpt-oss");
    bias.add_experts(mxfp4);
    expect(bias, MOE_ERROR_NOT_FOUND, "blk.1.ffn_gate_inp.bias");

    GgufModel gate("qwen2moe");
    gate.add_experts(q8_0);
    gate.add_shared();
    expect(gate, MOE_ERROR_NOT_FOUND, "blk.1.ffn_gate_inp_shexp.weight");

    GgufModel half("qwen2moe");
    half.add_experts(q8_0);
    half.add("blk.1.ffn_up_shexp.weight", {hidden, shared_width}, f32);
    expect(half, MOE_ERROR_NOT_FOUND, "blk.1.ffn_gate_shexp.weight");

    GgufModel fork("qwen3moe");
    fork.writer.tensor("blk.1.ffn_gate_exps.weight", {hidden, width, experts}, 156, noise(64, 1));
    fork.writer.tensor("blk.1.ffn_up_exps.weight", {hidden, width, experts}, 156, noise(64, 2));
    fork.writer.tensor("blk.1.ffn_down_exps.weight", {width, hidden, experts}, 156, noise(64, 3));
    EXPECT_EQ(fork.failure().text,
              "model.gguf: tensor 'blk.1.ffn_gate_exps.weight': type GGML_TYPE_156 is not read");
    GgufModel beside("qwen3moe");
    beside.writer.tensor("blk.1.attn_k.weight", {hidden, width}, 152, noise(64, 4));
    beside.add_experts(q8_0);
    beside.add("blk.1.ffn_down_exps.bias", {hidden, experts}, f32);
    expect(beside, MOE_ERROR_UNSUPPORTED, "blk.1.ffn_down_exps.bias': is a bias");

    GgufModel gating("deepseek2");
    gating.writer.integer("deepseek2.expert_gating_func", 9);
    gating.add_experts(q8_0);
    expect(gating, MOE_ERROR_CORRUPT_FILE, "'deepseek2.expert_gating_func' is 9");

    GgufModel groups("deepseek2");
    groups.writer.integer("deepseek2.expert_group_count", 2);
    groups.add_experts(q8_0);
    expect(groups, MOE_ERROR_NOT_FOUND, "expert_group_used_count");
}

// llama.cpp multiplies what any type gives by a factor, and refuses a file with tensors that it
// does not know. Of the factors those of down are read, as the experts' own.
TEST(GgufFamilies, RefuseWhatTheyDoNotRead) {
    const auto expect = [](uint32_t type, const std::string& name, const Shape& ne,
                           const std::string& why) {
        GgufModel model("qwen3moe");
        model.add_experts(type);
        model.add(name, ne, f32);
        const Failure failure = model.failure();
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
        EXPECT_EQ(failure.text, "model.gguf: tensor '" + name + "': " + why);
    };
    const std::pair<uint32_t, const char*> types[] = {
        {f32, "F32"}, {1, "F16"}, {30, "BF16"}, {q8_0, "Q8_0"}};
    for (const auto& [type, name] : types)
        for (const char* matrix : {"gate", "up"})
            expect(type, std::string("blk.1.ffn_") + matrix + "_exps.scale", {experts},
                   std::string("beside a weight in ") + name);
    const std::string unread = "is not read, and would change the result";
    expect(q8_0, "blk.1.ffn_gate_inp_shexp.weight", {hidden}, unread);
    expect(q8_0, "blk.1.ffn_gate_chexps.weight", {hidden, width, 2}, unread);
    expect(q8_0, "blk.1.ffn_gate_inp.scale", {hidden}, unread);
    expect(q8_0, "blk.1.ffn_gate_inp_norm.weight", {hidden}, unread);
    expect(q8_0, "blk.1.exp_probs_b.bias", {experts}, "is a bias, which this family does not have");
    GgufModel bytes("qwen3moe");
    bytes.add_experts(24);
    EXPECT_EQ(bytes.failure().text,
              "model.gguf: tensor 'blk.1.ffn_gate_exps.weight': type I8 is not read");
    GgufModel beside("qwen3moe");
    beside.add_experts(q8_0);
    for (const char* name : {"blk.1.attn_q.bias", "blk.1.attn_q.scale", "blk.1.ffn_norm.weight",
                             "blk.1.ffn_up_exps.input_scale"})
        beside.add(name, {1}, f32);
    EXPECT_EQ(beside.failure().text, "");
}

TEST(GgufFamilies, NeedAnArchitecture) {
    const Folder folder;
    GgufWriter writer;
    writer.integer("x", 1);
    const Failure failure = failure_of([&] { open_path(folder.write("m.gguf", writer.file())); });
    EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
    EXPECT_NE(failure.text.find("general.architecture"), std::string::npos) << failure.text;
}

// Part of a split: the first has the keys of the model and, as converters do it, perhaps no
// tensors.
struct Parts {
    GgufModel first{"llama"};
    GgufWriter second;

    explicit Parts(const std::string& last = "blk.1.ffn_down_exps.weight") {
        set_split(first.writer, 0, 2, 5);
        set_split(second, 1, 2, 5);
        add("blk.1.ffn_gate_exps.weight", {hidden, width, experts}, 34 * 2 * width * experts);
        add("blk.1.ffn_up_exps.weight", {hidden, width, experts}, 34 * 2 * width * experts);
        add(last, {width, hidden, experts}, 34 * hidden * experts);
    }
    void add(const std::string& name, const Shape& ne, uint64_t bytes) {
        second.tensor(name, ne, q8_0, noise(bytes, seed_of(name)));
    }
    static void set_split(GgufWriter& writer, uint16_t no, uint16_t count, int32_t tensors) {
        writer.pair("split.no", 2, raw(no));
        writer.pair("split.count", 2, raw(count));
        writer.pair("split.tensors.count", 5, raw(tensors));
    }
    Failure failure(const Folder& folder) const {
        folder.write("m-00001-of-00002.gguf", first.writer.file());
        folder.write("m-00002-of-00002.gguf", second.file());
        return failure_of([&] { open_path(folder.path("m-00001-of-00002.gguf"))->tensors(1); });
    }
    void replace(GgufWriter& writer, size_t index, const std::string& key, uint16_t value) {
        writer.pairs[index] = gguf_string(key) + raw<uint32_t>(2) + raw(value);
    }
};

TEST(GgufSplit, OpensFromAnyPart) {
    const Folder folder;
    const Parts parts;
    ASSERT_EQ(parts.failure(folder).text, "");
    for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
        for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
            moe_checkpoint_options options{};
            options.io = io;
            const Handle checkpoint = open_path(folder.path(name), options);
            EXPECT_EQ(checkpoint->info().n_files, 2);
            EXPECT_EQ(checkpoint->info().n_tensors, 5u);
            EXPECT_EQ(checkpoint->tensors(1).size(), 4u);
            expect_gguf_bytes(checkpoint);
        }
    }
}

TEST(GgufSplit, OpensTheFolderThatHoldsOneModel) {
    const Folder folder;
    const Parts parts;
    ASSERT_EQ(parts.failure(folder).text, "");
    EXPECT_EQ(open_path(folder.path())->info().n_files, 2);
    folder.write("other.gguf", "GGUF");
    const Failure two = failure_of([&] { open_path(folder.path()); });
    EXPECT_EQ(two.status, MOE_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(two.text.find("holds 3 GGUF files"), std::string::npos) << two.text;
    std::filesystem::remove(folder.path("other.gguf"));
    std::filesystem::remove(folder.path("m-00002-of-00002.gguf"));
    const Failure missing = failure_of([&] { open_path(folder.path()); });
    EXPECT_NE(missing.text.find("m-00002-of-00002.gguf"), std::string::npos) << missing.text;
}

// As repositories have it that keep the configuration of the original.
TEST(GgufSplit, OpensAFolderWithAConfigBesideTheGguf) {
    const Folder folder;
    const Parts parts;
    folder.write("config.json", mixtral().config);
    ASSERT_EQ(parts.failure(folder).text, "");
    EXPECT_EQ(open_path(folder.path())->info().is_gguf, 1);
    mixtral().write(folder);
    EXPECT_EQ(open_path(folder.path())->info().is_gguf, 0);
}

TEST(GgufSplit, RefusesPartsThatDoNotFit) {
    const Folder folder;
    const auto expect = [&](const Parts& parts, moe_status status, const char* text) {
        const Failure failure = parts.failure(folder);
        EXPECT_EQ(failure.status, status) << failure.text;
        EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text;
    };
    Parts count;
    count.replace(count.second, 1, "split.count", 3);
    expect(count, MOE_ERROR_CORRUPT_FILE,
           "m-00002-of-00002.gguf: split.count is 3, the name says 2");
    Parts number;
    number.replace(number.second, 0, "split.no", 0);
    expect(number, MOE_ERROR_CORRUPT_FILE, "split.no is 0, the name says part 2 of 2");
    Parts tensors;
    tensors.second.tensor("blk.9.extra", {32}, q8_0, noise(34, 1));
    expect(tensors, MOE_ERROR_CORRUPT_FILE, "split.tensors.count is 5, but the 2 parts have 6");
    expect(Parts("blk.0.ffn_gate.weight"), MOE_ERROR_CORRUPT_FILE,
           "'blk.0.ffn_gate.weight' is also in");
    Parts none;
    none.second.pairs.erase(none.second.pairs.begin());
    expect(none, MOE_ERROR_NOT_FOUND, "split.no");
}

TEST(GgufSplit, NamesAMissingPart) {
    const Folder folder;
    const Parts parts;
    parts.failure(folder);
    std::filesystem::rename(folder.path("m-00001-of-00002.gguf"), folder.path("renamed.gguf"));
    const Failure missing = failure_of([&] { open_path(folder.path("m-00002-of-00002.gguf")); });
    EXPECT_EQ(missing.status, MOE_ERROR_IO);
    EXPECT_NE(missing.text.find("m-00001-of-00002.gguf"), std::string::npos) << missing.text;
    const Failure renamed = failure_of([&] { open_path(folder.path("renamed.gguf")); });
    EXPECT_EQ(renamed.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_NE(renamed.text.find("split.count is 2, but the name"), std::string::npos)
        << renamed.text;
}

}  // namespace
}  // namespace moe::test
