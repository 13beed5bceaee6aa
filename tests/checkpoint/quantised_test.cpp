// The spellings of quantised weights, as the tools write them: formats, tables and ranges; and what
// is said of wrong ones. Their values are in tests/oracle.
#include "libmoe/base/half.hpp"
#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/quantised_models.hpp"

namespace moe::test {
namespace {

Model quantised(const std::string& config) {
    return qwen("qwen3_moe", config.empty() ? "" : ",\"quantization_config\":{" + config + "}",
                false);
}

Model without_weight(const std::string& stem, const std::string& config) {
    Model model = quantised(config);
    model.tensors.erase(stem + ".weight");
    return model;
}

std::vector<int32_t> groups_in_order(int64_t columns, int32_t group) {
    std::vector<int32_t> index;
    for (int32_t k = 0; k < columns; ++k) index.push_back(k / group);
    return index;
}

std::string format_text(const Model& model, moe_role role = MOE_ROLE_UP) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    return format_name(find_tensor(checkpoint, 0, role, 1)->format).text;
}

void expect_failure(const Model& model, moe_status status, const std::string& text) {
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text;
}

TEST(Fp8, FollowsTheShapeOfItsScales) {
    const struct {
        const char* config;
        const char* scale;
        const char* type;
        Shape shape;
        const char* text;
    } cases[] = {
        {"", "weight_scale", "F32", {}, "fp8_128x128"},  // one block, one scale: the same
        {"\"weight_block_size\":[16,16]", "weight_scale", "F32", {1}, "f8_e4m3 allxall f32"},
        {"\"weight_block_size\":[16,16]", "weight_scale", "BF16", {1}, "f8_e4m3 allxall bf16"},
        {"", "weight_scale", "BF16", {32, 1}, "f8_e4m3 1xall bf16"},
        {"", "weight_scale", "F32", {32}, "f8_e4m3 1xall f32"},
        {"", "weight_scale", "U8", {32, 2}, "f8_e4m3 1x32 f8_e8m0"},
        {"", "weight_scale_inv", "U8", {32, 2}, "f8_e4m3 1x32 f8_e8m0"},
        {"", "weight_scale_inv", "F8_E8M0", {1, 2}, "f8_e4m3 32x32 f8_e8m0"},
        {"", "scale", "F8_E8M0", {1, 1}, "fp8_128x128_e8m0"},
        {"\"weight_block_size\":[16,32]", "weight_scale_inv", "F32", {2, 2}, "f8_e4m3 16x32 f32"},
        {"\"weight_block_size\":[16,32]", "weight_scale", "F32", {2, 1, 2, 1}, "f8_e4m3 16x32 f32"},
        // 32 blocks side by side, and as many rows: two sizes mean what they say.
        {"\"weight_block_size\":[128,2]", "weight_scale", "F32", {1, 32}, "f8_e4m3 128x2 f32"},
        {"\"weight_block_size\":[128,2]", "weight_scale", "F32", {32, 1}, "f8_e4m3 1xall f32"},
        {"\"config_groups\":{\"group_0\":{\"weights\":{\"block_structure\":[16,32]}}}",
         "weight_scale",
         "BF16",
         {2, 2},
         "f8_e4m3 16x32 bf16"},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.text);
        Model model = quantised(c.config);
        model.add(up + ".weight", "F8_E4M3", {width, hidden});
        model.add(up + "." + c.scale, c.type, c.shape);
        EXPECT_EQ(format_text(model), c.text);
    }
}

TEST(Fp8, ShapesOfScalesThatFitNothing) {
    for (const Shape& shape : {Shape{32, 2}, Shape{3}, Shape{64, 1}, Shape{2, 2}}) {
        Model model = quantised("");
        model.add(up + ".weight", "F8_E4M3", {width, hidden});
        model.add(up + ".weight_scale", "F32", shape);
        expect_failure(model, MOE_ERROR_CORRUPT_FILE, "up_proj.weight_scale': has shape [");
    }
}

TEST(Fp8, StacksHaveTheirScalesByExpert) {
    Model model;
    model.config = mixtral().config;
    const std::string block = "model.layers.0.mlp.";
    model.add(block + "gate.weight", "F32", {experts, hidden});
    for (const char* name : {"experts.gate_up_proj", "experts.down_proj"}) {
        const bool is_down = std::string(name).find("down") != std::string::npos;
        model.add(block + name, "F8_E4M3",
                  is_down ? Shape{experts, hidden, width} : Shape{experts, 2 * width, hidden});
        model.add(block + name + "_scale", "F32", {experts, 64, 1});
    }
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
    EXPECT_STREQ(format_name(gate_up->format).text, "f8_e4m3 1xall f32");
    EXPECT_EQ(gate_up->tensor.scale_bytes, 4u * 4 * 64);
    model.add(block + "experts.down_proj_scale", "F32", {64, 1});
    expect_failure(model, MOE_ERROR_CORRUPT_FILE, "its first size must be the 4 experts");
}

TEST(Fp4, SpellingsOfCompressedTensorsModelOptAndDeepSeek) {
    Model model = without_weight(up, "");
    model.add(up + ".weight_packed", "U8", {width, hidden / 2});
    model.add(up + ".weight_scale", "F8_E4M3", {width, hidden / 16});
    add_floats(model, up + ".weight_global_scale", {8.0f});
    add_floats(model, up + ".input_global_scale", {4.0f});
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
    EXPECT_EQ(tensor->format.global_scale, MOE_GLOBAL_SCALE_DIVIDE);
    EXPECT_EQ(*tensor->tensor.global_scale, 8.0f);
    EXPECT_EQ(*tensor->tensor.input_scale, 0.25f) << "as others mean it: x / input_scale";
    // MXFP4: the type of the scales says so.
    for (const char* type : {"U8", "F8_E8M0"}) {
        Model packed = without_weight(up, "");
        packed.add(up + ".weight_packed", "U8", {width, hidden / 2});
        packed.add(up + ".weight_scale", type, {width, hidden / 32});
        EXPECT_EQ(format_text(packed), "mxfp4");
    }
    Model modelopt = quantised("");
    modelopt.add(up + ".weight", "U8", {width, hidden / 2});
    modelopt.add(up + ".weight_scale", "U8", {width, hidden / 32});
    EXPECT_EQ(format_text(modelopt), "mxfp4");
    Model deepseek_v4 = quantised("");
    deepseek_v4.add(up + ".weight", "I8", {width, hidden / 2});
    deepseek_v4.add(up + ".scale", "F8_E8M0", {width, hidden / 32});
    EXPECT_EQ(format_text(deepseek_v4), "mxfp4");
}

TEST(Nvfp4, TakesTheScaleOfTheActivations) {
    Model model = quantised("");
    make_nvfp4(model, up, width, hidden);
    std::string bytes;
    for (int k = 0; k < hidden; ++k) bytes += raw<uint16_t>(static_cast<uint16_t>(0x3F80 + k));
    model.tensors[up + ".pre_quant_scale"] = {"BF16", {hidden}, bytes};
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
    EXPECT_EQ(tensor->format.pre_quant_scale, 1);
    ASSERT_EQ(tensor->tensor.pre_quant_scale_bytes, 4u * hidden);
    const auto* values = static_cast<const float*>(tensor->tensor.pre_quant_scale);
    for (int k = 0; k < hidden; ++k) EXPECT_EQ(values[k], 1.0f + static_cast<float>(k) / 128);
}

// Tools that quantise activations, too, write them: compressed-tensors, w8a8_int8, blockwise_int8.
TEST(Int8, FollowsTheShapeOfItsScales) {
    const struct {
        const char* config;
        const char* scale;
        const char* type;
        Shape shape;
        int32_t group_rows, group_columns;
    } cases[] = {
        {"", "weight_scale", "F32", {32, 1}, 1, -1},
        {"", "weight_scale", "BF16", {32}, 1, -1},
        {"", "weight_scale", "F16", {}, 128, 128},  // one block, one scale: the same
        {"\"weight_block_size\":[16,32]", "weight_scale", "F32", {1}, -1, -1},
        {"\"weight_block_size\":[16,32]", "weight_scale_inv", "F32", {2, 2}, 16, 32},
    };
    for (const auto& c : cases) {
        Model model = quantised(c.config);
        model.add(up + ".weight", "I8", {width, hidden});
        int64_t n = 1;
        for (const int64_t size : c.shape) n *= size;
        std::string bytes;
        for (int64_t i = 0; i < n; ++i) {
            const auto value = static_cast<float>(i + 1);  // exact in each of the types
            if (c.type == std::string("F32")) bytes += raw(value);
            if (c.type == std::string("BF16")) bytes += raw(float_to_bf16(value));
            if (c.type == std::string("F16")) bytes += raw(float_to_f16(value));
        }
        model.tensors[up + "." + c.scale] = {c.type, c.shape, bytes};
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
        EXPECT_EQ(tensor->format.type, MOE_TYPE_I8);
        EXPECT_EQ(tensor->format.group_rows, c.group_rows) << c.type;
        EXPECT_EQ(tensor->format.group_columns, c.group_columns) << c.type;
        EXPECT_EQ(tensor->format.scale_type, MOE_TYPE_F32);
        ASSERT_EQ(tensor->tensor.scale_bytes, static_cast<uint64_t>(4 * n));
        const auto* scales = static_cast<const float*>(tensor->tensor.scales);
        for (int64_t i = 0; i < n; ++i) EXPECT_EQ(scales[i], static_cast<float>(i + 1));
    }
}

// Zero points of symmetric codes, which compressed-tensors wrote for a while.
TEST(Int8, ZeroPointsOfZeroSayNothing) {
    for (const char* type : {"I8", "F8_E4M3"}) {
        Model model = quantised("");
        model.add(up + ".weight", type, {width, hidden});
        add_floats(model, up + ".weight_scale", std::vector<float>(width, 0.5f));
        const std::string name = up + ".weight_zero_point";
        model.tensors[name] = {type, {width, 1}, std::string(width, '\0')};
        EXPECT_EQ(layer_failure(model).text, "") << type;
        model.tensors[name].bytes[5] = 1;
        expect_failure(model, MOE_ERROR_UNSUPPORTED, "weight_zero_point': beside a weight in");
    }
}

// The type F4 of safetensors counts codes where bytes have two.
TEST(Fp4, OfTheirOwnTypeAreAsBytes) {
    Model mxfp4 = quantised("");
    mxfp4.add(up + ".weight", "F4", {width, hidden});
    mxfp4.add(up + ".scale", "F8_E8M0", {width, hidden / 32});
    EXPECT_EQ(format_text(mxfp4), "mxfp4");
    Model nvfp4 = quantised("");
    make_nvfp4(nvfp4, up, width, hidden);
    nvfp4.add(up + ".weight", "F4", {width, hidden});
    EXPECT_EQ(format_text(nvfp4), "nvfp4");
    Model packed = without_weight(up, "");
    packed.add(up + ".weight_packed", "F4", {width, hidden});
    packed.add(up + ".weight_scale", "F8_E8M0", {width, hidden / 32});
    EXPECT_EQ(format_text(packed), "mxfp4");
    nvfp4.add(up + ".weight", "F4", {width, hidden / 2});
    expect_failure(nvfp4, MOE_ERROR_CORRUPT_FILE, "up_proj.weight': has shape");
}

TEST(Nvfp4, AScaleOfTheActivationsThatIsMissingIsOne) {
    Model model = quantised("");
    for (int expert = 0; expert < 4; ++expert) {
        const std::string name =
            "model.layers.0.mlp.experts." + std::to_string(expert) + ".up_proj";
        make_nvfp4(model, name, width, hidden);
        if (expert == 2) continue;
        std::string bytes;
        for (int k = 0; k < hidden; ++k) bytes += raw<uint16_t>(0x4000);
        model.tensors[name + ".pre_quant_scale"] = {"BF16", {hidden}, bytes};
    }
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    for (int expert = 0; expert < 4; ++expert) {
        const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, expert);
        EXPECT_EQ(tensor->format.pre_quant_scale, 1);
        ASSERT_EQ(tensor->tensor.pre_quant_scale_bytes, 4u * hidden);
        const auto* values = static_cast<const float*>(tensor->tensor.pre_quant_scale);
        for (int k = 0; k < hidden; ++k) EXPECT_EQ(values[k], expert == 2 ? 1.0f : 2.0f);
    }
    // Gate and down have none at all.
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 1)->format.pre_quant_scale, 0);
}

TEST(Kbit, WidthAndScalesFollowFromTheShapes) {
    const auto kbit = [](int64_t words, const char* scale_type, int64_t groups) {
        Model model = without_weight(up, "");
        model.add(up + ".weight_planes", "I32", {width, words});
        model.add(up + ".weight_absmax", scale_type, {width, groups});
        return model;
    };
    const int64_t groups = hidden / 32;
    for (int bits = 2; bits <= 5; ++bits) {
        const std::string name = "kbit" + std::to_string(bits);
        EXPECT_EQ(format_text(kbit(groups * bits, "U8", groups)), name);
        EXPECT_EQ(format_text(kbit(groups * bits, "F32", groups)), name + "_f32");
    }
    const Folder folder;
    const Handle checkpoint = open_model(folder, kbit(groups * 3, "U8", groups));
    const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
    EXPECT_EQ(tensor->tensor.data_bytes, 4u * width * groups * 3);
    EXPECT_EQ(tensor->tensor.scale_bytes, 1u * width * groups);
    expect_failure(kbit(groups * 6, "U8", groups), corrupt, "up_proj.weight_planes': has shape");
    expect_failure(kbit(groups, "U8", groups), corrupt, "up_proj.weight_planes': has shape");
    expect_failure(kbit(groups * 3, "U8", groups + 1), corrupt, "weight_absmax': has shape");
    expect_failure(kbit(groups * 3, "F16", groups), MOE_ERROR_UNSUPPORTED,
                   "weight_absmax': is F16, U8 or F32 is wanted");
}

Model gptq_model(const std::string& config, int bits = 4, int32_t group = 32) {
    Model model =
        without_weight(up, "\"quant_method\":\"gptq\",\"bits\":" + std::to_string(bits) + config);
    const int64_t groups = hidden / group;
    model.add(up + ".qweight", "I32", {hidden * bits / 32, width});
    model.add(up + ".qzeros", "I32", {groups, width * bits / 32});
    model.add(up + ".scales", "F16", {groups, width});
    add_ints(model, up + ".g_idx", groups_in_order(hidden, group));
    return model;
}

TEST(Gptq, VersionsWidthsAndOrder) {
    EXPECT_EQ(format_text(gptq_model(",\"group_size\":32")), "int4 gptq 1x32 f16 zeros-1");
    EXPECT_EQ(format_text(gptq_model(",\"group_size\":32,\"checkpoint_format\":\"gptq_v2\"")),
              "int4 gptq 1x32 f16 zeros");
    EXPECT_EQ(format_text(gptq_model("", 3)), "int3 gptq 1x32 f16 zeros-1");
    EXPECT_EQ(format_text(gptq_model("", 8, 64)), "int8 gptq 1xall f16 zeros-1");
    Model permuted = gptq_model(",\"desc_act\":true");
    auto index = groups_in_order(hidden, 32);
    std::swap(index[0], index[63]);
    add_ints(permuted, up + ".g_idx", index);
    EXPECT_EQ(format_text(permuted), "int4 gptq 1x32 f16 zeros-1 act_order");
    // As static groups leave it: in order throughout the layer, so without a table.
    EXPECT_EQ(format_text(gptq_model(",\"group_size\":32,\"desc_act\":true")),
              "int4 gptq 1x32 f16 zeros-1");
    const Folder folder;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        moe_checkpoint_options options{};
        options.io = io;
        const Handle checkpoint = open_model(folder, permuted, options);
        const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
        EXPECT_EQ(tensor->tensor.permutation_bytes, 4u * hidden);
        EXPECT_EQ(tensor->tensor.permutation[0], 1);
        EXPECT_EQ(tensor->tensor.permutation[63], 0);
        EXPECT_EQ(read_range(checkpoint, tensor->zero_points),
                  noise(2 * 4 * 4, seed_of(up + ".qzeros")));
        EXPECT_EQ(tensor->tensor.zero_points != nullptr, io == MOE_IO_MMAP);
    }
}

// n codes, one bit after another; the last one differs by `change`.
std::string stream_of(uint32_t code, int bits, int64_t n, uint32_t change = 0) {
    std::string bytes(static_cast<size_t>(n * bits / 8), '\0');
    for (int64_t i = 0; i < n; ++i)
        for (int bit = 0; bit < bits; ++bit) {
            const uint32_t value = i + 1 < n ? code : code ^ change;
            const int64_t at = i * bits + bit;
            const auto set = static_cast<unsigned char>((value >> bit & 1u) << at % 8);
            bytes[static_cast<size_t>(at / 8)] |= static_cast<char>(set);
        }
    return bytes;
}

// A symmetric file has the middle as its zero points; one that contradicts itself is refused, as
// nobody can know which of the two it means.
TEST(Gptq, SymmetricFilesHaveTheMiddleAsZeroPoint) {
    const std::string v2 = ",\"checkpoint_format\":\"gptq_v2\"", sym = ",\"sym\":true";
    for (const int bits : {2, 3, 4, 8}) {
        const uint32_t middle = 1u << (bits - 1);
        const auto with = [&](const std::string& config, uint32_t code, uint32_t change = 0) {
            Model model = gptq_model(config, bits);
            model.tensors[up + ".qzeros"].bytes = stream_of(code, bits, width * 2, change);
            return model;
        };
        const std::string format = "int" + std::to_string(bits) + " gptq 1x32 f16 zeros";
        EXPECT_EQ(format_text(with(sym, middle - 1)), format + "-1");
        EXPECT_EQ(format_text(with(sym + v2, middle)), format);
        EXPECT_EQ(format_text(with("", middle)), format + "-1");
        EXPECT_EQ(format_text(with(",\"sym\":false", middle)), format + "-1");
        expect_failure(with(sym, middle), corrupt,
                       "up_proj.qzeros': holds the zero points of checkpoint_format gptq_v2, but");
        expect_failure(with(sym + v2, middle - 1), corrupt,
                       "up_proj.qzeros': holds the zero points of checkpoint_format gptq, but");
        expect_failure(with(sym, middle - 1, 1), corrupt, "not all zero points are");
        expect_failure(with(sym + v2, middle, 1), corrupt,
                       "as sym says in checkpoint_format gptq_v2");
    }
}

TEST(Gptq, WrongOnes) {
    Model model = gptq_model("");
    auto index = groups_in_order(hidden, 32);
    std::swap(index[0], index[63]);
    add_ints(model, up + ".g_idx", index);
    expect_failure(model, corrupt, "up_proj.g_idx': is out of order, but desc_act is not true");
    index[5] = 2;
    add_ints(model, up + ".g_idx", index);
    expect_failure(model, corrupt, "g_idx': the group of column 5 is 2, there are 2");
    index[5] = -7;
    add_ints(model, up + ".g_idx", index);
    expect_failure(model, corrupt, "the group of column 5 is -7");
    model = gptq_model(",\"desc_act\":true");
    model.tensors.erase(up + ".g_idx");
    expect_failure(model, MOE_ERROR_NOT_FOUND, "up_proj.g_idx");
    model = gptq_model("");
    model.tensors.erase(up + ".qzeros");
    expect_failure(model, MOE_ERROR_NOT_FOUND, "up_proj.qzeros");
    model = gptq_model("");
    model.add(up + ".qweight", "I32", {hidden / 8, width + 8});
    expect_failure(model, corrupt, "qweight': has shape [8, 40], [8, 32] is wanted");
    model = gptq_model("");
    model.add(up + ".qzeros", "I32", {2, 5});
    expect_failure(model, corrupt, "qzeros': has shape [2, 5], [2, 4] is wanted");
    model = gptq_model("");
    model.add(up + ".scales", "F16", {3, width});
    expect_failure(model, corrupt, "scales': has 3 groups of 64 columns");
    model = gptq_model("");
    model.add(up + ".qweight", "F32", {8, width});
    expect_failure(model, MOE_ERROR_UNSUPPORTED, "qweight': is F32, I32 is wanted");
    expect_failure(gptq_model(",\"checkpoint_format\":\"marlin\""), MOE_ERROR_UNSUPPORTED,
                   "checkpoint_format 'marlin'");
    model = gptq_model("");
    model.config.replace(model.config.find("gptq"), 4, "hqq!");
    expect_failure(model, MOE_ERROR_UNSUPPORTED,
                   "quant_method 'hqq!', neither gptq nor awq, is not read");
}

Model awq_model(const std::string& config) {
    Model model = without_weight(up, "\"quant_method\":\"awq\",\"bits\":4" + config);
    model.add(up + ".qweight", "I32", {hidden, width / 8});
    model.add(up + ".qzeros", "I32", {2, width / 8});
    model.add(up + ".scales", "BF16", {2, width});
    return model;
}

TEST(Awq, IsReadInTheGemmLayoutOnly) {
    EXPECT_EQ(format_text(awq_model(",\"version\":\"gemm\"")), "int4 awq 1x32 bf16 zeros");
    expect_failure(awq_model(",\"version\":\"gemv\""), MOE_ERROR_UNSUPPORTED, "AWQ layout 'gemv'");
    Model model = awq_model("");
    model.add(up + ".qweight", "I32", {hidden, width / 4});
    expect_failure(model, MOE_ERROR_CORRUPT_FILE, "has shape [64, 8], [64, 4] is wanted");
}

Model packed_model(int64_t bits, int64_t groups, const std::string& config = "") {
    Model model = without_weight(up, config);
    model.add(up + ".weight_packed", "I32", {width, hidden * bits / 32});
    model.add(up + ".weight_scale", "BF16", {width, groups});
    model.tensors[up + ".weight_shape"] = {"I64", {2}, raw(width) + raw(hidden)};
    return model;
}

TEST(PackQuantized, WidthsGroupsZeroPointsAndOrder) {
    for (int64_t bits = 1; bits <= 8; ++bits)
        EXPECT_EQ(format_text(packed_model(bits, 2)),
                  "int" + std::to_string(bits) + " bit_stream 1x32 bf16");
    EXPECT_EQ(format_text(packed_model(4, 1)), "int4 bit_stream 1xall bf16");
    // Two groups of 48, the second not full: only the configuration can tell.
    const char* config = "\"config_groups\":{\"group_0\":{\"weights\":{\"group_size\":48}}}";
    EXPECT_EQ(format_text(packed_model(4, 2, config)), "int4 bit_stream 1x48 bf16");
    Model model = packed_model(3, 2);
    model.add(up + ".weight_zero_point", "I32", {3, 2});
    EXPECT_EQ(format_text(model), "int3 bit_stream 1x32 bf16 zeros");
    add_ints(model, up + ".weight_g_idx", groups_in_order(hidden, 32));
    EXPECT_EQ(format_text(model), "int3 bit_stream 1x32 bf16 zeros");
    auto index = groups_in_order(hidden, 32);
    std::swap(index[0], index[63]);
    add_ints(model, up + ".weight_g_idx", index);
    EXPECT_EQ(format_text(model), "int3 bit_stream 1x32 bf16 zeros act_order");
    add_ints(model, up + ".weight_g_idx", std::vector<int32_t>(hidden, -1));
    EXPECT_EQ(format_text(model), "int3 bit_stream 1x32 bf16 zeros") << "-1 throughout is none";
    model = packed_model(4, 2);
    model.add(up + ".weight_scale", "F32", {1});
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_UP, 1)->format.group_rows, -1);
}

TEST(PackQuantized, WrongOnes) {
    Model model = packed_model(4, 2);
    model.add(up + ".weight_packed", "I32", {width, 17});
    expect_failure(model, MOE_ERROR_CORRUPT_FILE, "weight_packed': has shape [32, 17]");
    model = packed_model(4, 2);
    model.add(up + ".weight_zero_point", "I32", {3, 2});
    expect_failure(model, MOE_ERROR_CORRUPT_FILE,
                   "weight_zero_point': has shape [3, 2], [4, 2] is wanted");
    expect_failure(packed_model(4, 3), MOE_ERROR_CORRUPT_FILE, "has 3 groups of 64 columns");
    model = packed_model(4, 2);
    model.add(up + ".weight_scale", "BF16", {hidden, 2});
    expect_failure(model, MOE_ERROR_CORRUPT_FILE, "has shape [64, 2], [32, 2] is wanted");
}

std::vector<float> bnb_table(moe_codebook codebook) {
    moe_format format{};
    format.type = MOE_TYPE_CODEBOOK;
    format.codebook = codebook;
    const float* table = builtin_codebook(format);
    return {table, table + 16};
}

Model bnb_model(const std::string& state, bool nested) {
    Model model = quantised("\"quant_method\":\"bitsandbytes\"");
    SpelledMatrix{model, up, width, hidden}.four_bits(
        true, nested, state.empty() ? bnb_state(width, hidden, true, true) : state);
    return model;
}

TEST(Bnb, FourBitsPlainAndNested) {
    EXPECT_EQ(format_text(bnb_model("", false)), "codebook4 nibble_high_first nf4 1x64 f32");
    const Folder folder;
    const Handle checkpoint = open_model(folder, bnb_model("", true));
    const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
    EXPECT_STREQ(format_name(tensor->format).text,
                 "codebook4 nibble_high_first nf4 1x64 u8 nested");
    EXPECT_EQ(tensor->tensor.nested_offset, 0.125f);
    EXPECT_EQ(tensor->tensor.nested_scale_bytes, 4u);
    EXPECT_EQ(tensor->tensor.nested_scales[0], 0.5f);
    EXPECT_EQ(tensor->tensor.nested_codebook[255], 0.25f);
}

// bnb_4bit_quant_storage: training with sharded parameters wants codes in the type of the others.
TEST(Bnb, CodesMayBeStoredAsElementsOfAnotherType) {
    const std::string weight = up + ".weight";
    constexpr int64_t bytes = width * hidden / 2;
    const std::string wanted = bnb_model("", false).tensors[weight].bytes;
    for (const auto& [type, size] :
         {std::pair<const char*, int64_t>{"I8", 1}, {"BF16", 2}, {"F16", 2}, {"F32", 4}}) {
        Model model = bnb_model("", true);
        model.tensors[weight] = {type, {bytes / size, 1}, wanted};
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
        EXPECT_STREQ(format_name(tensor->format).text,
                     "codebook4 nibble_high_first nf4 1x64 u8 nested");
        EXPECT_EQ(read_range(checkpoint, tensor->data), wanted) << type;
        model.add(weight, type, {bytes, 2});
        expect_failure(model, corrupt,
                       "up_proj.weight': has shape [1024, 2], [" + std::to_string(bytes / size) +
                           ", 1] is wanted");
    }
    Model model = bnb_model("", false);
    model.add(weight, "I64", {bytes / 8, 1});
    expect_failure(model, MOE_ERROR_UNSUPPORTED, "up_proj.weight': is I64, U8 or I8 or");
    model = bnb_model("", false);
    model.tensors.erase(weight + ".quant_state.bitsandbytes__nf4");
    expect_failure(model, MOE_ERROR_NOT_FOUND,
                   "no tensor '" + weight + ".quant_state.bitsandbytes__nf4'");
}

TEST(Bnb, WrongStatesAndTables) {
    const auto state = [](const char* shape, const char* block, const char* nested) {
        return std::string("{\"shape\":") + shape + ",\"blocksize\":" + block +
               ",\"nested_blocksize\":" + nested + "}";
    };
    expect_failure(bnb_model(state("[64,32]", "64", "256"), false), corrupt,
                   "'shape.0' is 64, 32 is wanted");
    expect_failure(bnb_model(state("[32,64]", "0", "256"), false), corrupt,
                   "'blocksize' is 0, outside 1 to");
    expect_failure(bnb_model(state("[32,64]", "32", "256"), false), corrupt,
                   "absmax': has shape [32], [64] is wanted");
    expect_failure(bnb_model(state("[32,64]", "64", "128"), true), corrupt,
                   "'nested_blocksize' is 128, 256 is wanted");
    expect_failure(bnb_model(state("[32,64]", "64", "256"), true), corrupt,
                   "has no 'nested_offset'");
    expect_failure(bnb_model("{\"shape\":[32,64]", false), corrupt, "not valid JSON");
    Model model = bnb_model("", false);
    auto table = bnb_table(MOE_CODEBOOK_BNB_NF4);
    table[3] = -0.4f;
    add_floats(model, up + ".weight.quant_map", table);
    expect_failure(model, MOE_ERROR_UNSUPPORTED, "quant_map': is not the table of nf4");
    model = bnb_model("", true);
    add_floats(model, up + ".weight.nested_quant_map", std::vector<float>(255));
    expect_failure(model, corrupt, "nested_quant_map': has shape [255], 256 values");
}

TEST(Bnb, Int8DividesItsRowScalesBy127) {
    Model model = quantised("\"quant_method\":\"bitsandbytes\"");
    model.add(up + ".weight", "I8", {width, hidden});
    std::vector<float> scb;
    for (int n = 0; n < width; ++n) scb.push_back(static_cast<float>(n + 1) * 0.3f);
    add_floats(model, up + ".SCB", scb);
    model.add(up + ".weight_format", "U8", {});
    const Folder folder;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        moe_checkpoint_options options{};
        options.io = io;
        const Handle checkpoint = open_model(folder, model, options);
        const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
        EXPECT_STREQ(format_name(tensor->format).text, "i8 1xall f32");
        ASSERT_EQ(tensor->tensor.scale_bytes, 4u * width);
        for (int n = 0; n < width; ++n)
            EXPECT_EQ(static_cast<const float*>(tensor->tensor.scales)[n],
                      scb[static_cast<size_t>(n)] / 127.0f);
    }
    add_floats(model, up + ".SCB", {1.0f});
    expect_failure(model, MOE_ERROR_CORRUPT_FILE, "SCB': has shape [1], [32] is wanted");
}

// The width of a shared expert is that of its tensors, in every spelling.
TEST(SharedExpert, HasItsWidthFromPackedTensors) {
    const std::string stem = "model.layers.1.mlp.shared_experts.";
    for (const char* method : {"gptq", "awq", "packed", "bnb"}) {
        SCOPED_TRACE(method);
        const std::string name = method;
        Model model = deepseek(
            "deepseek_v3",
            ",\"quantization_config\":{\"quant_method\":\"" + name + "\",\"bits\":4}", true);
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
            const bool is_down = std::string(part) == "down_proj";
            const int64_t n = is_down ? hidden : shared_width, k = is_down ? shared_width : hidden;
            const std::string tensor = stem + part;
            if (name != "bnb") model.tensors.erase(tensor + ".weight");
            if (name == "gptq") model.add(tensor + ".qweight", "I32", {k / 8, n});
            if (name == "awq") model.add(tensor + ".qweight", "I32", {k, n / 8});
            if (name == "gptq" || name == "awq") {
                model.add(tensor + ".qzeros", "I32", {1, n / 8});
                model.add(tensor + ".scales", "F16", {1, n});
            }
            if (name == "packed") {
                model.add(tensor + ".weight_packed", "I32", {n, k / 8});
                model.add(tensor + ".weight_scale", "BF16", {n, 1});
            }
            if (name != "bnb") continue;
            model.add(tensor + ".weight", "U8", {n * k / 2, 1});
            model.add(tensor + ".weight.absmax", "F32", {n * k / 64});
            add_floats(model, tensor + ".weight.quant_map", bnb_table(MOE_CODEBOOK_BNB_FP4));
            const std::string json = "{\"blocksize\":64,\"shape\":[" + std::to_string(n) + "," +
                                     std::to_string(k) + "]}";
            model.tensors[tensor + ".weight.quant_state.bitsandbytes__fp4"] = {
                "U8", {static_cast<int64_t>(json.size())}, json};
        }
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        EXPECT_EQ(checkpoint->layer_desc(1).shared_intermediate, shared_width);
    }
}

}  // namespace
}  // namespace moe::test
