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
        tensor.global_scale = &global;
        tensor.n_global_scales = 1;
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
