// Codes under grids of scales in the spellings that are rare: W4AFP8, FP4 in other groups, E5M2,
// and FP8 of all experts in one tensor. Their values are in tests/oracle.
#include "libmoe/base/half.hpp"
#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/quantised_models.hpp"

namespace moe::test {
namespace {

Model with_up(const std::string& config, const char* type, const Shape& shape,
              const char* scale = nullptr, const char* scale_type = "", const Shape& scales = {}) {
    Model model = qwen("qwen3_moe", config, false);
    model.add(up + ".weight", type, shape);
    if (scale) model.add(up + scale, scale_type, scales);
    return model;
}

std::string format_of_up(const Model& model) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    return format_name(find_tensor(checkpoint, 0, MOE_ROLE_UP, 1)->format).text;
}

void refused(const Model& model, moe_status status, const std::string& text,
             moe_checkpoint_options options = {}) {
    const Failure failure = layer_failure(model, 0, options);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text << "\n  lacks: " << text;
}

const std::string w4afp8 = ",\"quantization_config\":{\"quant_method\":\"w4afp8\"}";

TEST(W4afp8, IsInt4UnderScalesOfGroups) {
    const auto with = [](const char* type, const Shape& scales) {
        return with_up(w4afp8, "I8", {width, hidden / 2}, ".weight_scale_inv", type, scales);
    };
    EXPECT_EQ(format_of_up(with("BF16", {width, 2})), "int4 nibble_low_first 1x32 bf16");
    EXPECT_EQ(format_of_up(with("F32", {width, 4})), "int4 nibble_low_first 1x16 f32");
    EXPECT_EQ(format_of_up(with("BF16", {width, 1})), "int4 nibble_low_first 1xall bf16");
    refused(with("BF16", {width, 3}), corrupt,
            "up_proj.weight_scale_inv': has 3 groups of 64 columns");
    refused(with("BF16", {width, 64}), corrupt, "up_proj.weight_scale_inv': groups of 1 columns");
    refused(with("BF16", {31, 2}), corrupt,
            "up_proj.weight_scale_inv': has shape [31, 2], [32, 2] is wanted");
    refused(with_up(w4afp8, "I8", {31, hidden / 2}, ".weight_scale_inv", "BF16", {32, 2}), corrupt,
            "up_proj.weight': has shape [31, 32], [32, 32] is wanted");
    const std::string other = ",\"quantization_config\":{\"quant_method\":\"w4a8\"}";
    refused(with_up(other, "I8", {width, hidden / 2}, ".weight_scale_inv", "BF16", {32, 2}),
            unsupported,
            "up_proj.weight': two codes of 4 bits in a byte are read for quant_method 'w4afp8', "
            "not 'w4a8'");
}

TEST(Fp4, InOtherGroupsOfColumns) {
    const std::string fp4 = ",\"expert_dtype\":\"fp4\"";
    const auto with = [&](const char* scale_type, int64_t groups, const char* type = "I8") {
        const int64_t columns = std::string(type) == "F4" ? hidden : hidden / 2;
        return with_up(fp4, type, {width, columns}, ".scale", scale_type, {width, groups});
    };
    EXPECT_EQ(format_of_up(with("F8_E8M0", 1)), "e2m1 nibble_low_first 1xall f8_e8m0");
    EXPECT_EQ(format_of_up(with("F8_E8M0", 2)), "mxfp4");
    EXPECT_EQ(format_of_up(with("BF16", 2)), "e2m1 nibble_low_first 1x32 bf16");
    EXPECT_EQ(format_of_up(with("F32", 4)), "e2m1 nibble_low_first 1x16 f32");
    EXPECT_EQ(format_of_up(with("F8_E4M3", 1, "U8")), "e2m1 nibble_low_first 1xall f8_e4m3");
    EXPECT_EQ(format_of_up(with("BF16", 2, "F4")), "e2m1 nibble_low_first 1x32 bf16");
    // A configuration that contradicts the shapes.
    for (const char* key : {"expert_group_size", "group_size"}) {
        Model model = with("F8_E8M0", 1);
        model.config.insert(1, std::string("\"quantization_config\":{\"") + key + "\":32},");
        refused(model, corrupt,
                "up_proj.scale': has 1 groups of 64 columns, but '" + std::string(key) +
                    "' of the configuration is 32");
    }
    // Bytes of FP4 and of int4 look alike.
    refused(with_up("", "U8", {width, hidden / 2}, ".weight_scale", "BF16", {width, 2}),
            unsupported, "up_proj.weight_scale': is BF16, F8_E4M3 or U8 or F8_E8M0 is wanted");
    // NVFP4 without its global scale is not FP4 in groups.
    refused(with("F8_E4M3", 4, "U8"), MOE_ERROR_NOT_FOUND, "up_proj.weight_scale_2'");
    refused(with("F8_E8M0", 4), corrupt, "up_proj.scale': has shape [32, 4], [32, 2] is wanted");
}

TEST(E5m2, AloneAndUnderScales) {
    const Shape shape{width, hidden};
    EXPECT_EQ(format_of_up(with_up("", "F8_E5M2", shape)), "f8_e5m2");
    EXPECT_EQ(format_of_up(with_up("", "F8_E5M2", shape, ".weight_scale", "F32", {width, 1})),
              "f8_e5m2 1xall f32");
    EXPECT_EQ(format_of_up(with_up("", "F8_E5M2", shape, ".weight_scale_inv", "BF16", {1, 1})),
              "f8_e5m2 128x128 bf16");
    refused(with_up("", "F8_E5M2", shape, ".weight_scale", "I32", {1}), unsupported,
            "up_proj.weight_scale': is I32");
    refused(with_up("", "F8_E5M2", {width, 63}), corrupt,
            "up_proj.weight': has shape [32, 63], [32, 64] is wanted");
}

// ---- all experts in one tensor

const std::string gate_up = mlp0 + "experts.gate_up_proj", down = mlp0 + "experts.down_proj";

Model merged(const char* type, bool transposed) {
    Model model;
    model.config = mixtral().config;
    model.add(mlp0 + "gate.weight", "F32", {experts, hidden});
    add_merged(model, mlp0, transposed);
    for (const std::string& name : {gate_up, down})
        model.add(name, type, model.tensors[name].shape);
    add_floats(model, down + "_scale", {1, 2, 3, 4});
    return model;
}

void set_floats(Model& model, const std::string& name, const Shape& shape, int first = 1) {
    std::string bytes;
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    for (int64_t i = 0; i < n; ++i) bytes += raw(static_cast<float>(first + i));
    model.tensors[name] = {"F32", shape, bytes};
}

struct Scales {
    std::string format;
    std::vector<float> values;
    moe_orientation orientation;
};

Scales scales_of(const Model& model, moe_checkpoint_options options = {}) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model, options);
    const LayerTensor* tensor = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
    Scales out{format_name(tensor->format).text, {}, tensor->tensor.orientation};
    out.values.resize(tensor->tensor.scale_bytes / sizeof(float));
    std::memcpy(out.values.data(), tensor->tensor.scales, tensor->tensor.scale_bytes);
    return out;
}

std::vector<float> count(int n) {
    std::vector<float> values;
    for (int i = 1; i <= n; ++i) values.push_back(static_cast<float>(i));
    return values;
}

moe_checkpoint_options transposed_files() {
    moe_checkpoint_options options{};
    options.has_orientation = 1;
    options.orientation = MOE_ORIENTATION_IN_OUT;
    return options;
}

TEST(MergedFp8, APairOfScalesIsForGateAndUp) {
    for (const Shape& shape : {Shape{experts, 2}, Shape{experts, 2, 1}}) {
        Model model = merged("F8_E4M3", false);
        set_floats(model, gate_up + "_scale", shape);
        const Scales scales = scales_of(model);
        EXPECT_EQ(scales.format, "f8_e4m3 32xall f32");
        EXPECT_EQ(scales.values, count(8));
    }
    Model model = merged("F8_E4M3", true);
    set_floats(model, gate_up + "_scale", {experts, 2});
    const Scales scales = scales_of(model, transposed_files());
    EXPECT_EQ(scales.format, "f8_e4m3 32xall f32");
    EXPECT_EQ(scales.values, count(8));
    EXPECT_EQ(scales.orientation, MOE_ORIENTATION_IN_OUT);
}

TEST(MergedFp8, OneScaleIsForAllExperts) {
    for (const Shape& shape : {Shape{}, Shape{1}}) {
        Model model = merged("F8_E4M3", false);
        set_floats(model, gate_up + "_weight_scale", shape, 7);  // ModelOpt's name
        const Scales scales = scales_of(model);
        EXPECT_EQ(scales.format, "f8_e4m3 allxall f32");
        EXPECT_EQ(scales.values, std::vector<float>(experts, 7));
    }
}

TEST(MergedFp8, ScalesOfBlocksAreTransposedWithTheCodes) {
    Model model = merged("F8_E4M3", true);
    model.config.insert(1, "\"quantization_config\":{\"weight_block_size\":[16,32]},");
    set_floats(model, gate_up + "_scale_inv", {experts, 2, 4});
    set_floats(model, down + "_scale", {experts, 1, 4});
    const Scales scales = scales_of(model, transposed_files());
    EXPECT_EQ(scales.format, "f8_e4m3 16x32 f32");
    ASSERT_EQ(scales.values.size(), 32u);
    for (size_t e = 0; e < 4; ++e)
        for (size_t row = 0; row < 4; ++row)
            for (size_t column = 0; column < 2; ++column)
                EXPECT_EQ(scales.values[e * 8 + row * 2 + column],
                          static_cast<float>(e * 8 + column * 4 + row + 1));
    // As if the codes were not transposed.
    set_floats(model, gate_up + "_scale_inv", {experts, 4, 2});
    refused(model, corrupt, "gate_up_proj_scale_inv': has shape [4, 4, 2]", transposed_files());
}

TEST(MergedFp8, ScalesOfRowsInAnyShape) {
    for (const bool transposed : {false, true})
        for (const Shape& shape :
             {Shape{experts, 64, 1}, Shape{experts, 1, 64}, Shape{experts, 64}}) {
            Model model = merged("F8_E4M3", transposed);
            set_floats(model, gate_up + "_scale", shape);
            const Scales scales =
                scales_of(model, transposed ? transposed_files() : moe_checkpoint_options{});
            EXPECT_EQ(scales.format, "f8_e4m3 1xall f32");
            EXPECT_EQ(scales.values, count(256));
        }
}

// 64 rows in blocks of 48 columns and rows: the first has 32 rows of gate and 16 of up.
TEST(MergedFp8, BlocksOfGateAndUpAreRepeatedForBoth) {
    Model model = merged("F8_E4M3", false);
    model.config.insert(1, "\"quantization_config\":{\"weight_block_size\":[48,48]},");
    set_floats(model, gate_up + "_scale_inv", {experts, 2, 2});
    set_floats(model, down + "_scale", {experts, 2, 1});
    const Scales scales = scales_of(model);
    EXPECT_EQ(scales.format, "f8_e4m3 16x48 f32");
    ASSERT_EQ(scales.values.size(), 32u);
    for (size_t e = 0; e < 4; ++e)
        for (size_t row = 0; row < 4; ++row)
            for (size_t column = 0; column < 2; ++column)
                EXPECT_EQ(scales.values[e * 8 + row * 2 + column],
                          static_cast<float>(e * 4 + row / 3 * 2 + column + 1));
}

TEST(MergedInt8, TransposedWithScalesOfRows) {
    Model model = merged("I8", true);
    set_floats(model, gate_up + "_scale", {experts, 1, 64});
    const Scales scales = scales_of(model, transposed_files());
    EXPECT_EQ(scales.format, "i8 1xall f32");
    EXPECT_EQ(scales.values, count(256));
}

}  // namespace
}  // namespace moe::test
