// Every refusal of the readers of quantised spellings: its status, and a sentence with the file,
// the tensor or the key, and the value.
#include "tests/checkpoint/quantised_models.hpp"

namespace moe::test {
namespace {

constexpr moe_status not_found = MOE_ERROR_NOT_FOUND;

// An expert's up matrix in a spelling, and the configuration beside it.
struct Spelled {
    explicit Spelled(const std::string& config)
        : model(qwen("qwen3_moe", ",\"quantization_config\":{" + config + "}", false)) {}

    SpelledMatrix matrix() { return {model, up, width, hidden}; }
    Spelled& with(const char* end, const char* type, const Shape& shape) {
        model.add(up + end, type, shape);
        return *this;
    }
    Spelled& without(const char* end) {
        EXPECT_EQ(model.tensors.erase(up + end), 1u);
        return *this;
    }
    Model model;
};

void refuses(const Model& model, moe_status status, const std::string& text,
             moe_checkpoint_options options = {}) {
    const Failure failure = layer_failure(model, 0, options);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text << "\n  lacks: " << text;
}

// `text`: what follows the name of the tensor.
void refuses(const Spelled& spelled, moe_status status, const char* end, const std::string& text) {
    refuses(spelled.model, status, "model.safetensors: tensor '" + up + end + "': " + text);
}

void refuses_config(const Spelled& spelled, moe_status status, const std::string& text) {
    refuses(spelled.model, status, "config.json: " + text);
}

void lacks(const Spelled& spelled, const char* end) {
    refuses(spelled.model, not_found, "model.safetensors: there is no tensor '" + up + end + "'");
}

Spelled gptq(const std::string& config = ",\"bits\":4") {
    Spelled out("\"quant_method\":\"gptq\"" + config);
    out.matrix().gptq(4, false);
    return out;
}

TEST(GptqRefusals, Tensors) {
    lacks(gptq().without(".scales"), ".scales");
    lacks(gptq().without(".qzeros"), ".qzeros");
    lacks(gptq(",\"bits\":4,\"desc_act\":true").without(".g_idx"), ".g_idx");
    refuses(gptq().with(".qweight", "I8", {8, 32}), unsupported, ".qweight",
            "is I8, I32 is wanted");
    refuses(gptq().with(".qzeros", "F32", {4, 4}), unsupported, ".qzeros", "is F32, I32 is wanted");
    refuses(gptq().with(".scales", "U8", {4, 32}), unsupported, ".scales",
            "is U8, F16 or BF16 or F32 is wanted");
    refuses(gptq().with(".scales", "F16", {}), corrupt, ".scales",
            "has shape [], too few dimensions");
    refuses(gptq().with(".scales", "F16", {3, 32}), corrupt, ".scales",
            "has 3 groups of 64 columns, which no group_size");
    refuses(gptq().with(".scales", "F16", {0, 32}), corrupt, ".scales",
            "has 0 groups of 64 columns");
    refuses(gptq().with(".scales", "F16", {4, 31}), corrupt, ".scales",
            "has shape [4, 31], [4, 32] is wanted");
    refuses(gptq().with(".qweight", "I32", {9, 32}), corrupt, ".qweight",
            "has shape [9, 32], [8, 32] is wanted");
    refuses(gptq().with(".qzeros", "I32", {4, 4, 1}), corrupt, ".qzeros",
            "has shape [4, 4, 1], [4, 4] is wanted");
}

TEST(GptqRefusals, OrderOfColumns) {
    refuses(gptq().with(".g_idx", "F32", {64}), unsupported, ".g_idx", "is F32, I32 is wanted");
    refuses(gptq().with(".g_idx", "I32", {63}), corrupt, ".g_idx",
            "has shape [63], [64] is wanted");
    Spelled spelled = gptq();
    add_ints(spelled.model, up + ".g_idx", small_groups(hidden, true));
    refuses(spelled, corrupt, ".g_idx", "is out of order, but desc_act is not true");
    for (const int32_t wrong : {4, -2}) {
        auto index = small_groups(hidden, false);
        index[63] = wrong;
        add_ints(spelled.model, up + ".g_idx", index);
        refuses(spelled, corrupt, ".g_idx",
                "the group of column 63 is " + std::to_string(wrong) + ", there are 4");
    }
}

TEST(GptqRefusals, Configuration) {
    const std::string key = "'quantization_config.";
    refuses_config(gptq(""), not_found, "has no key " + key + "bits'");
    refuses_config(gptq(",\"bits\":9"), corrupt, key + "bits' is 9, outside 1 to 8");
    refuses_config(gptq(",\"bits\":4.5"), corrupt, key + "bits' is a fraction");
    refuses_config(gptq(",\"bits\":4,\"group_size\":-2"), corrupt,
                   key + "group_size' is -2, outside");
    refuses_config(gptq(",\"bits\":4,\"group_size\":\"x\""), corrupt,
                   key + "group_size' is a text");
    refuses_config(gptq(",\"bits\":4,\"desc_act\":1"), corrupt, key + "desc_act' is an integer");
    refuses_config(gptq(",\"bits\":4,\"checkpoint_format\":2"), corrupt,
                   key + "checkpoint_format' is an integer");
    Spelled unnamed("");
    unnamed.matrix().gptq(4, false);
    refuses(unnamed, not_found, ".qweight",
            "config.json has no quant_method, which says whether this is GPTQ or AWQ");
    refuses(gptq(",\"bits\":4,\"checkpoint_format\":\"mar\\nlin\""), unsupported, ".qweight",
            "checkpoint_format 'mar?lin' is not read: its shape is [8, 32]");
}

Spelled awq(const std::string& config = "") {
    Spelled out("\"quant_method\":\"awq\"" + config);
    out.matrix().awq();
    return out;
}

TEST(AwqRefusals, TensorsAndLayouts) {
    lacks(awq().without(".scales"), ".scales");
    lacks(awq().without(".qzeros"), ".qzeros");
    refuses(awq().with(".qweight", "F32", {64, 4}), unsupported, ".qweight", "is F32, I32");
    refuses(awq().with(".qzeros", "I8", {4, 4}), unsupported, ".qzeros", "is I8, I32");
    refuses(awq().with(".scales", "I32", {4, 32}), unsupported, ".scales", "is I32, F16");
    refuses(awq().with(".scales", "F16", {5, 32}), corrupt, ".scales",
            "has 5 groups of 64 columns");
    refuses(awq().with(".qweight", "I32", {64, 5}), corrupt, ".qweight",
            "has shape [64, 5], [64, 4] is wanted");
    refuses(awq().with(".scales", "F16", {4, 33}), corrupt, ".scales",
            "has shape [4, 33], [4, 32] is wanted");
    refuses(awq().with(".qzeros", "I32", {3, 4}), corrupt, ".qzeros",
            "has shape [3, 4], [4, 4] is wanted");
    for (const char* key : {"version", "checkpoint_format"})
        refuses(awq(std::string(",\"") + key + "\":\"gemv\""), unsupported, ".qweight",
                "the AWQ layout 'gemv' is not read: its shape is [64, 4]");
}

Spelled packed(int64_t bits = 4, bool has_zeros = true) {
    Spelled out("");
    out.matrix().packed(bits, has_zeros);
    return out;
}

TEST(PackQuantizedRefusals, Tensors) {
    lacks(packed().without(".weight_scale"), ".weight_scale");
    refuses(packed().with(".weight_packed", "I64", {32, 8}), unsupported, ".weight_packed",
            "is I64");
    refuses(packed().with(".weight_packed", "I32", {8}), corrupt, ".weight_packed",
            "has shape [8], too few dimensions");
    refuses(packed().with(".weight_packed", "I32", {32, 17}), corrupt, ".weight_packed",
            "has shape [32, 17], [32, 16] is wanted");
    refuses(packed().with(".weight_packed", "I32", {31, 8}), corrupt, ".weight_packed",
            "has shape [31, 8], [32, 8] is wanted");
    refuses(packed().with(".weight_scale", "U8", {32, 4}), unsupported, ".weight_scale",
            "is U8, F16");
    refuses(packed().with(".weight_scale", "F32", {2}), corrupt, ".weight_scale",
            "has shape [2], [1] is wanted");
    refuses(packed().with(".weight_scale", "F32", {32, 5}), corrupt, ".weight_scale",
            "has 5 groups of 64 columns");
    refuses(packed().with(".weight_scale", "F32", {33, 4}), corrupt, ".weight_scale",
            "has shape [33, 4], [32, 4] is wanted");
    refuses(packed().with(".weight_zero_point", "I8", {4, 4}), unsupported, ".weight_zero_point",
            "is I8, I32 is wanted");
    refuses(packed().with(".weight_zero_point", "I32", {4, 3}), corrupt, ".weight_zero_point",
            "has shape [4, 3], [4, 4] is wanted");
    refuses(packed().with(".weight_g_idx", "I64", {64}), unsupported, ".weight_g_idx", "is I64");
    refuses(packed().with(".weight_g_idx", "I32", {65}), corrupt, ".weight_g_idx",
            "has shape [65], [64] is wanted");
    Spelled spelled = packed();
    add_ints(spelled.model, up + ".weight_g_idx", std::vector<int32_t>(hidden, 4));
    refuses(spelled, corrupt, ".weight_g_idx", "the group of column 0 is 4, there are 4");
}

TEST(PackQuantizedRefusals, SizesThatContradictTheConfiguration) {
    Spelled spelled = packed();
    TestTensor& sizes = spelled.model.tensors[up + ".weight_shape"];
    sizes.bytes = raw<int64_t>(32) + raw<int64_t>(56);
    refuses(spelled, corrupt, ".weight_shape", "is [32, 56], [32, 64] is wanted");
    sizes = {"I32", {2}, raw<int32_t>(32) + raw<int32_t>(64)};  // Kimi-K2's
    EXPECT_EQ(layer_failure(spelled.model).text, "");
    refuses(packed().with(".weight_shape", "F32", {2}), unsupported, ".weight_shape",
            "is F32, I64");
}

// What every group of the configuration says must be there.
TEST(PackQuantizedRefusals, TensorsThatTheConfigurationPromises) {
    const auto with_groups = [](const char* first, const char* second) {
        Spelled out(std::string("\"config_groups\":{\"group_0\":{\"weights\":{") + first +
                    "}},\"group_1\":{\"weights\":{" + second + "}}}");
        out.model.tensors = packed(4, false).model.tensors;
        return out;
    };
    constexpr const char *asymmetric = "\"symmetric\":false", *ordered = "\"actorder\":\"group\"";
    lacks(with_groups(asymmetric, asymmetric), ".weight_zero_point");
    lacks(with_groups(ordered, ""), ".weight_g_idx");
    for (const char* other : {"\"symmetric\":true", "\"symmetric\":true,\"actorder\":\"weight\""}) {
        const Failure failure = layer_failure(with_groups(asymmetric, other).model);
        EXPECT_EQ(failure.status, MOE_OK) << failure.text;
    }
}

// A Qwen3-MoE whose experts are of another width.
Model of_width(int64_t columns, const std::string& config = "") {
    Model model = qwen("qwen3_moe", ",\"quantization_config\":{" + config + "}", false);
    const std::string key = "\"moe_intermediate_size\":";
    model.config.replace(model.config.find(key) + key.size(), 2, std::to_string(columns));
    for (int e = 0; e < experts; ++e) {
        const std::string stem = mlp0 + "experts." + std::to_string(e) + ".";
        model.add(stem + "gate_proj.weight", "BF16", {columns, hidden});
        model.add(stem + "up_proj.weight", "BF16", {columns, hidden});
        model.add(stem + "down_proj.weight", "BF16", {hidden, columns});
    }
    return model;
}

const std::string down = mlp0 + "experts.1.down_proj";
const std::string down_sentence = "model.safetensors: tensor '" + down;

// 16 columns of 3 and of 4 bits fill two words.
TEST(PackQuantizedRefusals, BitsThatOnlyTheConfigurationKnows) {
    const auto bits = [](const char* group, int n) {
        return std::string("\"config_groups\":{\"") + group +
               "\":{\"weights\":{\"num_bits\":" + std::to_string(n) + "}}}";
    };
    const auto spelled = [](const std::string& config) {
        Model model = of_width(16, config);
        SpelledMatrix{model, down, hidden, 16}.packed(4, false);
        return model;
    };
    for (const int n : {3, 4}) {
        const Folder folder;
        const Handle checkpoint = open_model(folder, spelled(bits("group_1", n)));
        EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 1)->format.bits, n);
    }
    const std::string sentence = down_sentence +
                                 ".weight_packed': has 2 words for 16 columns, which are 3 to 4 "
                                 "bits; no num_bits of the configuration says which";
    refuses(spelled(""), corrupt, sentence);
    refuses(spelled(bits("group_0", 8)), corrupt, sentence);
    refuses(spelled(bits("group_0", 0)), corrupt,
            "config.json: 'quantization_config.config_groups.group_0.weights.num_bits' is 0");
}

TEST(Int8Refusals, Tensors) {
    const auto int8 = [](const Shape& shape) {
        Spelled spelled("");
        return spelled.with(".weight", "I8", shape).with(".weight_scale", "BF16", {32, 1});
    };
    refuses(int8({32, 63}), corrupt, ".weight", "has shape [32, 63], [32, 64] is wanted");
    refuses(int8({32, 32}), unsupported, ".weight",
            "two codes of 4 bits in a byte are read for quant_method 'w4afp8', not ''");
    refuses(int8({32, 64}).with(".weight_scale", "F32", {31, 1}), corrupt, ".weight_scale",
            "has shape [31, 1], [1, 1] is wanted for blocks of 128 x 128");
    refuses(int8({32, 64}).with(".weight_zero_point", "I8", {32, 1}), unsupported,
            ".weight_zero_point", "beside a weight in");
}

TEST(BnbRefusals, Int8) {
    const auto int8 = [] {
        Spelled out("");
        out.matrix().int8();
        return out;
    };
    refuses(int8().with(".weight", "I8", {32, 63}), corrupt, ".weight",
            "has shape [32, 63], [32, 64] is wanted");
    refuses(int8().with(".SCB", "F32", {31}), corrupt, ".SCB", "has shape [31], [32] is wanted");
    refuses(int8().with(".SCB", "I32", {32}), unsupported, ".SCB", "is I32, F32 or BF16 or F16");
}

Spelled four_bits(bool is_nested = true, const std::string& state = "") {
    Spelled out("");
    out.matrix().four_bits(true, is_nested,
                           state.empty() ? bnb_state(width, hidden, true, is_nested) : state);
    return out;
}

TEST(BnbRefusals, Tensors) {
    lacks(four_bits().without(".weight.quant_map"), ".weight.quant_map");
    lacks(four_bits().without(".weight.absmax"), ".weight.absmax");
    lacks(four_bits().without(".weight.nested_absmax"), ".weight.nested_absmax");
    lacks(four_bits().without(".weight.nested_quant_map"), ".weight.nested_quant_map");
    refuses(four_bits().with(".weight", "U8", {1024}), corrupt, ".weight",
            "has shape [1024], [1024, 1] is wanted");
    refuses(four_bits().with(".weight.quant_map", "F32", {15}), corrupt, ".weight.quant_map",
            "has shape [15], 16 values are wanted");
    refuses(four_bits().with(".weight.quant_map", "U8", {16}), unsupported, ".weight.quant_map",
            "is U8, F32");
    refuses(four_bits().with(".weight.quant_map", "F32", {16}), unsupported, ".weight.quant_map",
            "is not the table of nf4");
    refuses(four_bits().with(".weight.absmax", "U8", {31}), corrupt, ".weight.absmax",
            "has shape [31], [32] is wanted");
    refuses(four_bits().with(".weight.absmax", "F16", {32}), unsupported, ".weight.absmax",
            "is F16, F32 or U8 is wanted");
    refuses(four_bits().with(".weight.nested_absmax", "F32", {2}), corrupt, ".weight.nested_absmax",
            "has shape [2], 1 values are wanted");
    refuses(four_bits().with(".weight.nested_quant_map", "F32", {16}), corrupt,
            ".weight.nested_quant_map", "has shape [16], 256 values are wanted");
}

TEST(BnbRefusals, States) {
    const char* state = ".weight.quant_state.bitsandbytes__nf4";
    const auto json = [](const std::string& shape, const std::string& more) {
        return "{\"shape\":" + shape + ",\"blocksize\":64" + more + "}";
    };
    const std::string nested = ",\"nested_blocksize\":256,\"nested_offset\":";
    const struct {
        std::string json;
        moe_status status;
        std::string text;
    } cases[] = {
        {"x", corrupt, "not valid JSON at byte 1"},
        {"[]", corrupt, "the JSON is not an object"},
        {"{}", not_found, "has no key 'shape.0'"},
        {json("[-1,64]", ""), corrupt, "'shape.0' is -1, outside 0 to"},
        {json("[33,64]", ""), corrupt, "'shape.0' is 33, 32 is wanted"},
        {json("[32]", ""), not_found, "has no key 'shape.1'"},
        {json("[32,63]", ""), corrupt, "'shape.1' is 63, 64 is wanted"},
        {json("[32,\"64\"]", ""), corrupt, "'shape.1' is a text, an integer is wanted"},
        {"{\"shape\":[32,64]}", not_found, "has no key 'blocksize'"},
        {json("[32,64]", ",\"blocksize\":16777217"), corrupt, "'blocksize' is 16777217, outside 1"},
        {json("[32,64]", ""), not_found, "has no key 'nested_blocksize'"},
        {json("[32,64]", ",\"nested_blocksize\":128"), corrupt,
         "'nested_blocksize' is 128, 256 is wanted"},
        {json("[32,64]", ",\"nested_blocksize\":256"), corrupt, "has no 'nested_offset'"},
        {json("[32,64]", nested + "true"), corrupt, "'nested_offset' is true or false, a number"},
        {json("[32,64]", nested + "1e39"), corrupt, "'nested_offset' is 1e+39, not finite"},
        {std::string(65537, ' '), corrupt, "has 65537 bytes, at most 65536 are read"},
    };
    for (const auto& c : cases) refuses(four_bits(true, c.json), c.status, state, c.text);
}

TEST(BnbRefusals, RowsOfASharedExpert) {
    Model model = deepseek("deepseek_v3", "", true);
    const std::string stem = "model.layers.1.mlp.shared_experts.gate_proj";
    SpelledMatrix{model, stem, shared_width, hidden}.four_bits(false, false, "{\"shape\":[0,64]}");
    const Failure failure = layer_failure(model, 1);
    EXPECT_EQ(failure.status, corrupt);
    EXPECT_EQ(failure.text, "model.safetensors: tensor '" + stem +
                                ".weight.quant_state.bitsandbytes__fp4': 'shape.0' is 0, outside 1 "
                                "to 16777216");
}

// Of all experts in one tensor, as Mixtral's new files have them.
Model stack(const char* gate_up_type) {
    Model model;
    model.config = mixtral().config;
    model.add(mlp0 + "gate.weight", "F32", {experts, hidden});
    add_merged(model, mlp0, false);
    model.add(mlp0 + "experts.gate_up_proj", gate_up_type, {experts, 2 * width, hidden});
    return model;
}

TEST(StackRefusals, SpellingsThatAreOfOneExpert) {
    const std::string name = mlp0 + "experts.gate_up_proj";
    const std::string sentence = "model.safetensors: tensor '" + name;
    Model model = stack("I8");
    model.add(name + ".SCB", "F32", {64});
    refuses(model, unsupported, sentence + "': type I8 in a merged tensor of experts");
    model = stack("U8");
    model.add(name + ".quant_state.bitsandbytes__nf4", "U8", {2});
    model.tensors[name + ".weight.quant_state.bitsandbytes__nf4"] = {"U8", {2}, "{}"};
    refuses(model, unsupported, sentence + "': type U8 in a merged tensor of experts");
    for (const char* method : {"gptq", "awq"}) {
        model = stack("BF16");
        model.config.insert(
            1, std::string("\"quantization_config\":{\"quant_method\":\"") + method + "\"},");
        for (const char* end : {".qweight", ".qzeros"}) model.add(name + end, "I32", {4, 4});
        model.add(name + ".scales", "F16", {4, 4});
        refuses(model, unsupported, sentence + ".qweight': type I32 in a merged tensor");
    }
    model = stack("BF16");
    model.add(name + ".weight_packed", "I32", {4, 4});
    model.add(name + ".weight_scale", "F16", {4, 4});
    refuses(model, unsupported, sentence + ".weight_packed': type I32 in a merged tensor");
}

Spelled fp8(const std::string& config = "") {
    Spelled out(config);
    out.matrix().fp8("F32", {1, 1});
    return out;
}

TEST(Fp8Refusals, Tensors) {
    lacks(fp8().without(".weight_scale"), ".weight_scale_inv");
    refuses(fp8().with(".weight", "F8_E4M3", {32, 65}), corrupt, ".weight",
            "has shape [32, 65], [32, 64] is wanted");
    refuses(fp8().with(".weight_scale", "I32", {1}), unsupported, ".weight_scale",
            "is I32, F32 or");
    refuses(fp8().with(".weight_scale", "F32", {3, 5}), corrupt, ".weight_scale",
            "has shape [3, 5], [1, 1] is wanted for blocks of 128 x 128, or one scale, or one per "
            "row of [32, 64]");
    refuses(fp8("\"weight_block_size\":[16,32]").with(".weight_scale", "F32", {2, 3}), corrupt,
            ".weight_scale", "has shape [2, 3], [2, 2] is wanted for blocks of 16 x 32");
    for (const char* size : {"[0,128]", "[128,65537]"})
        refuses_config(fp8(std::string("\"weight_block_size\":") + size), corrupt,
                       "'quantization_config.weight_block_size.");
}

TEST(Fp8Refusals, Stacks) {
    const std::string name = mlp0 + "experts.gate_up_proj";
    const std::string sentence = "model.safetensors: tensor '" + name;
    Model model = stack("F8_E4M3");
    model.add(name + "_scale", "F32", {3, 64, 1});
    refuses(model, corrupt,
            sentence + "_scale': has shape [3, 64, 1], its first size must be the 4 experts");
    model.add(name + "_scale", "F32", {4, 3});
    refuses(model, corrupt,
            sentence +
                "_scale': has shape [4, 3], [1, 1] is wanted for blocks of 128 x 128, or "
                "one scale, or one for gate and one for up, or one per row of [4, 64, 64]");
    model.add(name + "_scale", "F32", {4, 1, 2});
    model.config.insert(1, "\"quantization_config\":{\"weight_block_size\":[64,32]},");
    moe_checkpoint_options options{};
    options.gate_up_order = MOE_GATE_UP_INTERLEAVED;
    refuses(model, unsupported, sentence + "': a block of 64 rows has rows of gate and of up",
            options);
}

TEST(Nvfp4Refusals, Tensors) {
    const auto nvfp4 = [] {
        Spelled out("");
        make_nvfp4(out.model, up, width, hidden);
        return out;
    };
    lacks(nvfp4().without(".weight_scale"), ".weight_scale");
    lacks(nvfp4().without(".weight_scale_2"), ".weight_scale_2");
    refuses(nvfp4().with(".weight_scale", "F32", {32, 4}), unsupported, ".weight_scale", "is F32");
    refuses(nvfp4().with(".weight", "I8", {32, 32}), unsupported, ".weight", "is I8, U8 is wanted");
    refuses(nvfp4().with(".weight", "U8", {32, 33}), corrupt, ".weight",
            "has shape [32, 33], [32, 32] is wanted");
    refuses(nvfp4().with(".weight_scale", "F8_E4M3", {32, 5}), corrupt, ".weight_scale",
            "has shape [32, 5], [32, 4] is wanted");
    refuses(nvfp4().with(".weight_scale_2", "F32", {2}), corrupt, ".weight_scale_2",
            "has shape [2], 1 values are wanted");
    refuses(nvfp4().with(".input_scale", "U8", {1}), unsupported, ".input_scale", "is U8, F32");
    Spelled packed_codes("");
    packed_codes.matrix().packed_nvfp4();
    lacks(packed_codes.without(".weight_global_scale"), ".weight_global_scale");
    Model model = of_width(24);
    make_nvfp4(model, down, hidden, 24);
    refuses(model, corrupt, down_sentence + ".weight': 24 columns are not a multiple of 16");
}

TEST(Mxfp4Refusals, Tensors) {
    const auto mxfp4 = [] {
        Spelled out("");
        out.matrix().mxfp4("U8", ".weight_scale");
        return out;
    };
    refuses(mxfp4().with(".weight", "U8", {31, 32}), corrupt, ".weight",
            "has shape [31, 32], [32, 32] is wanted");
    refuses(mxfp4().with(".weight_scale", "U8", {32, 3}), corrupt, ".weight_scale",
            "has shape [32, 3], [32, 2] is wanted");
    Model model = of_width(48);
    SpelledMatrix{model, down, hidden, 48}.mxfp4("I8", ".scale");
    refuses(model, corrupt, down_sentence + ".weight': 48 columns are not a multiple of 32");
    model = stack("U8");
    model.add(mlp0 + "experts.gate_up_proj_scale", "U8", {experts, 2 * width, 2});
    moe_checkpoint_options options{};
    options.has_orientation = 1;
    options.orientation = MOE_ORIENTATION_IN_OUT;
    refuses(model, unsupported, "gate_up_proj': orientation IN_OUT with type U8", options);
}

TEST(Mxfp4Refusals, BlocksOfGptOss) {
    const std::string name = mlp0 + "experts.gate_up_proj_";
    const std::string sentence = "model.safetensors: tensor '" + name;
    const auto with = [&](const char* end, const char* type, const Shape& shape) {
        Model model = gpt_oss(true);
        model.add(name + end, type, shape);
        return model;
    };
    Model model = gpt_oss(true);
    model.tensors.erase(name + "scales");
    refuses(model, not_found, "model.safetensors: there is no tensor '" + name + "scales'");
    refuses(with("blocks", "I8", {4, 64, 2, 16}), unsupported, sentence + "blocks': is I8, U8");
    refuses(with("scales", "F32", {4, 64, 2}), unsupported, sentence + "scales': is F32, U8");
    refuses(with("blocks", "U8", {4, 64, 2, 15}), corrupt,
            sentence + "blocks': has shape [4, 64, 2, 15], [4, 64, 2, 16] is wanted");
    refuses(with("scales", "U8", {4, 64, 3}), corrupt,
            sentence + "scales': has shape [4, 64, 3], [4, 64, 2] is wanted");
    const std::string key = "\"hidden_size\":";
    model = gpt_oss(true);
    model.config.replace(model.config.find(key) + key.size(), 2, "48");
    for (const auto& [tensor, shape] : {std::pair{"router.weight", Shape{experts, 48}},
                                        std::pair{"experts.down_proj_bias", Shape{experts, 48}}})
        model.add(mlp0 + tensor, "BF16", shape);
    refuses(model, corrupt, sentence + "blocks': 48 columns are not a multiple of 32");
}

}  // namespace
}  // namespace moe::test
