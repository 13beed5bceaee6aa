// Formats through moe.h: what is said of them, and matrices that are written and read.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/api.hpp"

namespace moe_test {
namespace {

moe_format format_named(const char* name) {
    auto format = sized<moe_format>();
    EXPECT_MOE_OK(moe_format_by_name(name, &format));
    return format;
}

moe_format_info info_of(const moe_format& format) {
    auto info = sized<moe_format_info>();
    EXPECT_MOE_OK(moe_format_get_info(&format, &info));
    return info;
}

// A ramp of both signs, in a format, and what is read of it again.
struct Written {
    static constexpr int64_t rows = 3, columns = 512;

    explicit Written(const char* name) : format(format_named(name)) {
        for (size_t i = 0; i < source.size(); ++i)
            source[i] = std::sin(0.37f * static_cast<float>(i)) * (i % 7 ? 1.0f : 0.3f);
        uint64_t data_bytes = 0, scale_bytes = 0;
        EXPECT_MOE_OK(moe_format_size(&format, rows, columns, &data_bytes, &scale_bytes));
        EXPECT_EQ(scale_bytes, 0u);
        data.resize(data_bytes);
        args.format = &format;
        args.source = source.data();
        args.rows = rows;
        args.columns = columns;
        args.data = data.data();
        args.data_bytes = data_bytes;
        args.global_scale = &global;
    }
    std::vector<float> read() const {
        auto tensor = sized<moe_tensor>();
        tensor.role = MOE_ROLE_ROUTER;
        tensor.format = &format;
        tensor.rows = rows;
        tensor.columns = columns;
        tensor.data = data.data();
        tensor.data_bytes = data.size();
        if (format.global_scale != MOE_GLOBAL_SCALE_NONE) {
            tensor.global_scale = &global;
            tensor.n_global_scales = 1;
        }
        std::vector<float> out(source.size(), NAN);
        EXPECT_MOE_OK(moe_dequantize(&tensor, 0, out.data(), out.size()));
        return out;
    }

    moe_format format;
    std::vector<float> source = std::vector<float>(rows * columns);
    std::vector<std::byte> data;
    float global = 1.0f;
    moe_quantize_args args = sized<moe_quantize_args>();
};

TEST(Formats, OfGgufAreWrittenAndReadAgain) {
    const std::pair<const char*, double> errors[] = {
        {"q4_0", 0.12},  {"q4_1", 0.08},  {"q5_0", 0.06},      {"q5_1", 0.04},      {"q2_k", 0.3},
        {"q3_k", 0.18},  {"q4_k", 0.08},  {"q5_k", 0.04},      {"q6_k", 0.03},      {"q8_0", 0.01},
        {"iq4_nl", 0.1}, {"iq4_xs", 0.1}, {"mxfp4_gguf", 0.2}, {"nvfp4_gguf", 0.13}};
    for (const auto& [name, error] : errors) {
        Written written(name);
        ASSERT_MOE_OK(moe_quantize(&written.args)) << name;
        EXPECT_LT(worst_row_error(written.read(), written.source, Written::columns), error) << name;
    }
}

TEST(Formats, ThatAreOnlyReadSaySo) {
    for (const char* name : {"iq2_xxs", "iq2_xs", "iq3_xxs", "iq3_s"}) {
        Written written(name);
        const moe_format_info info = info_of(written.format);
        EXPECT_EQ(info.has_decode, 1) << name;
        EXPECT_EQ(info.has_encode, 0) << name;
        EXPECT_EQ(info.block_columns, 256) << name;
        EXPECT_MOE_ERROR(moe_quantize(&written.args), MOE_ERROR_UNSUPPORTED, name);
    }
}

TEST(Dequantize, ExpertIsOfRolesWithExpertsOnly) {
    const moe_format format = format_named("f32");
    const std::vector<float> values(3 * 32, 0.5f);
    std::vector<float> out(values.size());
    auto tensor = sized<moe_tensor>();
    tensor.format = &format;
    tensor.rows = 3;
    tensor.columns = 32;
    tensor.data = values.data();
    tensor.data_bytes = values.size() * sizeof(float);
    const auto read = [&](moe_role role, int32_t of_tensor, int64_t expert) {
        tensor.role = role;
        tensor.expert = of_tensor;
        out.assign(out.size(), NAN);
        return moe_dequantize(&tensor, expert, out.data(), out.size());
    };
    for (const int32_t ignored : {MOE_ALL_EXPERTS, 7}) {
        EXPECT_MOE_OK(read(MOE_ROLE_ROUTER, ignored, 0));
        EXPECT_EQ(out, values);
        EXPECT_MOE_ERROR(read(MOE_ROLE_ROUTER, ignored, 1), MOE_ERROR_INVALID_ARGUMENT,
                         "expert is 1");
    }
    EXPECT_MOE_ERROR(read(MOE_ROLE_DOWN, MOE_ALL_EXPERTS, 0), MOE_ERROR_INVALID_ARGUMENT,
                     "expert is 0, the tensor has 0");
    EXPECT_MOE_OK(read(MOE_ROLE_DOWN, 7, 0));
}

TEST(ConvertScales, NamesTheFieldThatIsWrong) {
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    std::vector<std::byte> source(128), scales(512);
    const auto call = [&](auto change) {
        auto args = sized<moe_convert_scales_args>();
        args.layout = MOE_SCALE_LAYOUT_TILED_128X4;
        args.rows = 32;
        args.columns = 4;
        args.source = source.data();
        args.source_bytes = source.size();
        args.scales = scales.data();
        args.scale_bytes = scales.size();
        change(args);
        return moe_convert_scales(&args);
    };
    EXPECT_MOE_OK(call([](auto&) {}));
    EXPECT_MOE_ERROR(call([](auto& a) { a.scales = nullptr; }), bad, "scales is NULL");
    EXPECT_MOE_ERROR(call([](auto& a) { a.scale_bytes = 511; }), bad, "scale_bytes is 511");
    EXPECT_MOE_ERROR(call([](auto& a) { a.source = nullptr; }), bad, "source is NULL");
    EXPECT_MOE_ERROR(call([](auto& a) { a.source_bytes = 127; }), bad, "source_bytes is 127");
}

TEST(Formats, SayTheirBits) {
    const std::pair<const char*, double> bits[] = {
        {"q4_0", 4.5},      {"q4_1", 5},         {"q5_0", 5.5},       {"q5_1", 6},
        {"q2_k", 2.625},    {"q3_k", 3.4375},    {"q5_k", 5.5},       {"q6_k", 6.5625},
        {"iq4_nl", 4.5},    {"iq4_xs", 4.25},    {"nvfp4_gguf", 4.5}, {"iq2_xxs", 2.0625},
        {"iq2_xs", 2.3125}, {"iq3_xxs", 3.0625}, {"iq3_s", 3.4375}};
    for (const auto& [name, wanted] : bits)
        EXPECT_EQ(info_of(format_named(name)).bits_per_weight, wanted) << name;
}

}  // namespace
}  // namespace moe_test
