// hf_quant_config.json, which ModelOpt writes beside config.json: what it says where config.json
// has no quantization_config, and that the tensors decide the formats in every spelling of it.
#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/quantised_models.hpp"

namespace moe::test {
namespace {

constexpr const char* beside = "hf_quant_config.json";

std::string modelopt(const std::string& quantization) {
    return R"({"producer":{"name":"modelopt","version":"0.47.0"},"quantization":{)" + quantization +
           "}}";
}

// Layer 0 of the model with that file beside it.
struct Opened {
    Opened(const Model& model, const std::string& quant_config) {
        model.write(folder);
        folder.write(beside, quant_config);
        checkpoint = open_path(folder.path());
    }
    std::string format(int32_t expert = 1) const {
        return format_name(find_tensor(checkpoint, 0, MOE_ROLE_UP, expert)->format).text;
    }
    Folder folder;
    Handle checkpoint;
};

Failure modelopt_failure(const Model& model, const std::string& quant_config) {
    return failure_of([&] { Opened(model, quant_config).checkpoint->tensors(0); });
}

void refuses_modelopt(const Model& model, const std::string& quant_config, moe_status status,
                      const std::string& text) {
    const Failure failure = modelopt_failure(model, quant_config);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text << "\n  lacks: " << text;
}

Model with_fp8(const char* scale_type, const Shape& scale_shape, const std::string& more = "") {
    Model model = qwen("qwen3_moe", more, false);
    SpelledMatrix{model, up, width, hidden}.fp8(scale_type, scale_shape);
    return model;
}

Model with_nvfp4() {
    Model model = qwen("qwen3_moe", "", false);
    make_nvfp4(model, up, width, hidden);
    return model;
}

TEST(ModelOpt, NamesOfAlgorithmsLeaveTheFormatToTheTensors) {
    const std::string excluded = R"("exclude_modules":["lm_head","model.layers.*.mlp.gate"])";
    const struct {
        Model model;
        std::string quantization;
        const char* text;
    } cases[] = {
        {with_nvfp4(), R"("quant_algo":"NVFP4","kv_cache_quant_algo":"FP8","group_size":16,)",
         "nvfp4"},
        {with_nvfp4(), R"("quant_algo":"W4A16_NVFP4","kv_cache_quant_algo":null,"group_size":16,)",
         "nvfp4"},
        {with_fp8("F32", {}, R"(,"quantization_config":null)"),
         R"("quant_algo":"FP8","kv_cache_quant_algo":null,)", "fp8_128x128"},
        {with_fp8("F32", {32}), R"("quant_algo":"FP8_PER_CHANNEL_PER_TOKEN",)",
         "f8_e4m3 1xall f32"},
        {with_fp8("F32", {1, 1, 1, 1}), R"("quant_algo":"fp8_pb_wo",)", "fp8_128x128"},
        {with_fp8("U8", {32, 2}), R"("quant_algo":"MXFP8","group_size":32,)",
         "f8_e4m3 1x32 f8_e8m0"},
        {with_nvfp4(),
         R"("quant_algo":"MIXED_PRECISION","quantized_layers":{"model.layers.0.mlp.experts":)"
         R"({"quant_algo":"NVFP4","group_size":16}},)",
         "nvfp4"},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.quantization);
        const Opened opened(c.model, modelopt(c.quantization + excluded));
        EXPECT_EQ(opened.format(), c.text);
        EXPECT_EQ(opened.format(0), "bf16") << "an expert that was left as it was";
        EXPECT_EQ(find_tensor(opened.checkpoint, 0, MOE_ROLE_ROUTER, 0)->format.type,
                  MOE_TYPE_BF16);
    }
}

TEST(ModelOpt, SettingsAreThoseOfQuantizationConfig) {
    const Model model = with_fp8("F32", {2, 2});
    EXPECT_EQ(Opened(model, modelopt(R"("weight_block_size":[16,32])")).format(),
              "f8_e4m3 16x32 f32");
    refuses_modelopt(model, modelopt(""), MOE_ERROR_CORRUPT_FILE, "wanted for blocks of 128 x 128");
    refuses_modelopt(model, modelopt(R"("weight_block_size":["a",32])"), MOE_ERROR_CORRUPT_FILE,
                     "hf_quant_config.json: 'quantization.weight_block_size.0' is a text");

    Model packed = qwen("qwen3_moe", "", false);
    SpelledMatrix{packed, up, width, hidden}.packed(4, false);
    packed.add(up + ".weight_scale", "BF16", {width, 2});
    const Opened opened(packed, modelopt("\"group_size\":40"));
    EXPECT_EQ(find_tensor(opened.checkpoint, 0, MOE_ROLE_UP, 1)->format.group_columns, 40);
}

TEST(ModelOpt, ConfigComesFirst) {
    const std::string of_16 = modelopt(R"("weight_block_size":[16,16])");
    for (const std::string config : {R"(,"quantization_config":{"weight_block_size":[16,32]})",
                                     R"(,"text_config":{"quantization_config":{)"
                                     R"("weight_block_size":[16,32]}})"}) {
        const Model model = with_fp8("F32", {2, 2}, config);
        EXPECT_EQ(Opened(model, of_16).format(), "f8_e4m3 16x32 f32");
        EXPECT_EQ(Opened(model, "broken").format(), "f8_e4m3 16x32 f32") << "not even read";
    }
}

TEST(ModelOpt, OneFileIsReadWithIt) {
    const Folder folder;
    with_fp8("F32", {2, 2}).write(folder);
    folder.write(beside, modelopt(R"("weight_block_size":[16,32])"));
    const Handle checkpoint = open_path(folder.path("model.safetensors"));
    EXPECT_STREQ(format_name(find_tensor(checkpoint, 0, MOE_ROLE_UP, 1)->format).text,
                 "f8_e4m3 16x32 f32");
}

TEST(ModelOpt, GroupsOfNvfp4AreOf16) {
    Model model = with_nvfp4();
    model.add(up + ".weight_scale", "F8_E4M3", {width, hidden / 32});
    refuses_modelopt(model, modelopt("\"quant_algo\":\"NVFP4\",\"group_size\":32"),
                     MOE_ERROR_UNSUPPORTED,
                     "tensor '" + up + ".weight_scale': NVFP4 in groups of 32 columns is not read");
    refuses_modelopt(model, modelopt("\"group_size\":16"), MOE_ERROR_CORRUPT_FILE,
                     "has shape [32, 2], [32, 4] is wanted");
    // Of a part that is quantised otherwise.
    EXPECT_EQ(Opened(with_nvfp4(), modelopt("\"group_size\":32")).format(), "nvfp4");
    refuses_modelopt(model, modelopt("\"group_size\":\"16\""), MOE_ERROR_CORRUPT_FILE,
                     "hf_quant_config.json: 'quantization.group_size' is a text");
}

TEST(ModelOpt, BrokenFilesAreRefusedByName) {
    for (const auto& [text, sentence] :
         {std::pair<const char*, const char*>{"", "hf_quant_config.json: not valid JSON"},
          {"{\"quantization\":{\"quant_algo\":\"NVFP4\"}", "hf_quant_config.json: not valid JSON"},
          {"[]", "hf_quant_config.json: the JSON is not an object"},
          {"\"NVFP4\"", "hf_quant_config.json: the JSON is not an object"}})
        refuses_modelopt(with_nvfp4(), text, MOE_ERROR_CORRUPT_FILE, sentence);
    // As ModelOpt writes it where only the cache is quantised, and with nothing in it.
    for (const char* empty : {R"({"quantization":{"quant_algo":null}})", "{}"})
        EXPECT_EQ(Opened(with_nvfp4(), empty).format(), "nvfp4");
}

}  // namespace
}  // namespace moe::test
