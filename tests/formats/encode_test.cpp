// Encoders: their error on Gaussian weights, the rule of each format on small known blocks, zeros,
// values of every size, and what has no code.
#include <gtest/gtest.h>

#include <limits>

#include "libmoe/base/element.hpp"
#include "libmoe/base/error.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

using test::Stored;

Stored encoded(const char* name, int64_t rows, int64_t columns, const std::vector<float>& source) {
    Stored stored(*find_format(name), rows, columns);
    stored.encode(source.data());
    return stored;
}

struct Expected {
    const char* name;
    double error;
};

class EncodeError : public testing::TestWithParam<Expected> {};
// Relative L2 error of the format on N(0, 1) weights. f16 and bf16: 0.58 of half a unit of the last
// place, averaged over the binade.
INSTANTIATE_TEST_SUITE_P(
    Formats, EncodeError,
    testing::Values(
        Expected{"f16", 0.00021}, Expected{"bf16", 0.00166}, Expected{"fp8_128x128", 0.0265},
        Expected{"nvfp4", 0.0950}, Expected{"mxfp4", 0.1142}, Expected{"kbit2", 0.4255},
        Expected{"kbit3", 0.1779}, Expected{"kbit4", 0.0879}, Expected{"kbit5", 0.0501},
        Expected{"kbit2_f32", 0.4255}, Expected{"kbit3_f32", 0.1775}, Expected{"kbit4_f32", 0.0870},
        Expected{"kbit5_f32", 0.0484}, Expected{"q8_0", 0.0054}, Expected{"mxfp4_gguf", 0.1142},
        Expected{"q4_k", 0.0712}, Expected{"q4_0", 0.0858}, Expected{"q4_1", 0.0781},
        Expected{"q5_0", 0.0427}, Expected{"q5_1", 0.0379}, Expected{"q2_k", 0.2958},
        Expected{"q3_k", 0.1507}, Expected{"q5_k", 0.0360}, Expected{"q6_k", 0.0177},
        Expected{"iq4_nl", 0.0761}, Expected{"iq4_xs", 0.0767}, Expected{"nvfp4_gguf", 0.0950}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(EncodeError, IsThatOfTheFormat) {
    const std::vector<float> source = test::gaussian(200 * 1280);
    const Stored stored = encoded(GetParam().name, 200, 1280, source);
    const double error = test::relative_error(source, test::decode_all(stored));
    EXPECT_LT(error, 1.25 * GetParam().error);
    EXPECT_GT(error, 0.5 * GetParam().error);
}

// Block scales follow the size of the weights.
TEST_P(EncodeError, DoesNotDependOnTheSizeOfTheWeights) {
    for (const float size : {0.002f, 0.02f, 8.0f}) {
        std::vector<float> source = test::gaussian(16 * 512);
        for (float& value : source) value *= size;
        const Stored stored = encoded(GetParam().name, 16, 512, source);
        const double error = test::relative_error(source, test::decode_all(stored));
        // E4M4 has few bits for scales below 2^-10; none of these are.
        EXPECT_LT(error, 1.3 * GetParam().error) << size;
    }
}

TEST(Encode, F32IsExact) {
    const std::vector<float> source = test::gaussian(7 * 13);
    EXPECT_EQ(test::decode_all(encoded("f32", 7, 13, source)), source);
}

std::vector<FormatTraits> written_formats() {
    std::vector<FormatTraits> formats;
    for (const FormatTraits& traits : all_formats())
        if (traits.encode) formats.push_back(traits);
    return formats;
}

class Encode : public testing::TestWithParam<FormatTraits> {};
INSTANTIATE_TEST_SUITE_P(Formats, Encode, testing::ValuesIn(written_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Encode, ZerosDecodeToZeros) {
    const Stored stored = encoded(GetParam().name, 2, 256, std::vector<float>(512));
    for (const float value : test::decode_all(stored)) ASSERT_EQ(value, 0.0f);
}

TEST_P(Encode, EndsOfTheRangeStayFinite) {
    if (GetParam().format.scale_type == MOE_TYPE_NONE && GetParam().block_columns == 1) return;
    for (const float size : {1e-44f, 1e-38f, 1e-20f, 1e20f, 3e38f}) {
        std::vector<float> source = test::gaussian(2 * 256);
        for (float& value : source) value = std::clamp(value / 4, -1.0f, 1.0f) * size;
        for (const float value : test::decode_all(encoded(GetParam().name, 2, 256, source))) {
            ASSERT_TRUE(std::isfinite(value)) << size;
        }
    }
}

TEST_P(Encode, RefusesWhatHasNoCode) {
    const FormatTraits& traits = GetParam();
    if (traits.format.scale_type == MOE_TYPE_NONE && traits.block_columns == 1) return;
    for (const float bad : {std::numeric_limits<float>::infinity(), -HUGE_VALF, NAN}) {
        std::vector<float> source = test::gaussian(3 * 256);
        source[2 * 256 + 77] = bad;
        Stored stored(traits, 3, 256);
        try {
            stored.encode(source.data());
            FAIL() << "no error for " << bad;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), MOE_ERROR_INVALID_ARGUMENT);
            const std::string text = error.what();
            EXPECT_NE(text.find("source[2, 77]"), std::string::npos) << text;
            EXPECT_NE(text.find(traits.name), std::string::npos) << text;
        }
        for (const std::byte byte : stored.data) ASSERT_EQ(byte, std::byte{0});
    }
}

TEST(Encode, Fp8ScalesAreOfBlocksAlsoAtTheEdges) {
    std::vector<float> source(130 * 129, 1.0f);
    source[0] = -896.0f;          // block 0, 0
    source[128] = 448.0f;         // block 0, 1
    source[128 * 129] = 44.8f;    // block 1, 0
    source[129 * 129 + 128] = 0;  // block 1, 1 has one row of 1 left
    const Stored stored = encoded("fp8_128x128", 130, 129, source);
    const auto scale = [&stored](int i) { return load<float>(stored.scales.data() + 4 * i); };
    EXPECT_EQ(scale(0), 2.0f);
    EXPECT_EQ(scale(1), 1.0f);
    EXPECT_EQ(scale(2), 44.8f / 448.0f);
    EXPECT_EQ(scale(3), 1.0f / 448.0f);
    EXPECT_EQ(load<uint8_t>(stored.data.data()), 0xFE);
    EXPECT_EQ(load<uint8_t>(stored.data.data() + 1), 0x30);  // 1 / 2
    EXPECT_EQ(load<uint8_t>(encoded("fp8_128x128", 1, 1, {0.0f}).data.data()), 0x00);
    EXPECT_EQ(load<float>(encoded("fp8_128x128", 1, 1, {0.0f}).scales.data()), 1.0f);
}

TEST(Encode, Nvfp4FollowsTheRule) {
    std::vector<float> source(64);
    source[0] = -2688.0f;  // global 1, scale 448, code -6
    source[1] = 448.0f * 0.75f;
    source[16] = 6.0f;  // scale 1
    source[17] = -2.5f;
    source[48] = 6 * 0x1p-12f;  // below the smallest scale, 2^-9
    const Stored stored = encoded("nvfp4", 1, 64, source);
    EXPECT_EQ(stored.global_scale, 1.0f);
    const auto scale = [&stored](int i) { return load<uint8_t>(stored.scales.data() + i); };
    EXPECT_EQ(scale(0), 0x7E);
    EXPECT_EQ(scale(1), 0x38);
    EXPECT_EQ(scale(2), 0x38);  // zeros
    EXPECT_EQ(scale(3), 0x01);
    EXPECT_EQ(load<uint8_t>(stored.data.data()), 0x2F);       // -6 low, 1 high
    EXPECT_EQ(load<uint8_t>(stored.data.data() + 8), 0xC7);   // 6 low, -2 high
    EXPECT_EQ(load<uint8_t>(stored.data.data() + 24), 0x02);  // 0.75 is a tie: 1
    EXPECT_EQ(encoded("nvfp4", 1, 16, std::vector<float>(16)).global_scale, 1.0f);
}

TEST(Encode, Mxfp4FollowsTheFloorRule) {
    std::vector<float> source(128);
    source[0] = 6.0f;
    source[32] = -7.9f;  // beyond 6: saturates
    source[33] = 5.0f;   // tie: 4
    source[64] = 0.9f;   // 2^-1 -> scale 2^-3
    source[96] = 0x1p-126f;
    const Stored stored = encoded("mxfp4", 1, 128, source);
    EXPECT_EQ(load<uint8_t>(stored.scales.data()), 127);
    EXPECT_EQ(load<uint8_t>(stored.scales.data() + 1), 127);
    EXPECT_EQ(load<uint8_t>(stored.scales.data() + 2), 124);
    EXPECT_EQ(load<uint8_t>(stored.scales.data() + 3), 0);
    EXPECT_EQ(load<uint8_t>(stored.data.data()), 0x07);
    EXPECT_EQ(load<uint8_t>(stored.data.data() + 16), 0x6F);
    EXPECT_EQ(test::decode_all(stored)[96], 0x1p-126f);
}

// No other code comes closer, and of equally close ones the first is taken.
void expect_nearest_codes(const Stored& stored, const std::vector<float>& source) {
    const int bits = stored.traits->format.bits;
    const float* codebook = stored.view().codebook;
    const std::vector<float> decoded = test::decode_all(stored);
    for (size_t i = 0; i < source.size(); ++i) {
        const std::byte* place = stored.scales.data() + i / 32 * size_t(stored.traits->scale_bytes);
        const double scale = stored.traits->scale_bytes == 1 ? e4m4_to_f32(load<uint8_t>(place))
                                                             : load<float>(place);
        double least = INFINITY;
        for (int c = 0; c < 1 << bits; ++c) {
            least = std::min(least, std::abs(codebook[c] * scale - source[i]));
        }
        ASSERT_NEAR(std::abs(double(decoded[i]) - source[i]), least, 1e-6 * scale) << i;
    }
}

TEST(Encode, KbitCodesAreNearestUnderTheDecodedScale) {
    const std::vector<float> source = test::gaussian(8 * 64);
    for (const FormatTraits& traits : all_formats()) {
        if (traits.format.type != MOE_TYPE_CODEBOOK) continue;
        expect_nearest_codes(encoded(traits.name, 8, 64, source), source);
    }
}

// Beyond what the codebook reaches, however far: the end of it, though in float32 every code would
// be equally far.
TEST(Encode, KbitCodesOfValuesBeyondTheScaleAreTheLast) {
    for (const char* name : {"kbit2", "kbit3", "kbit4", "kbit5"})
        for (const float size : {100.0f, 0x1p27f, 0x1p29f, 0x1p60f, 3e38f}) {
            std::vector<float> source(32, size);
            for (size_t i = 0; i < 32; i += 3) source[i] = -size;
            const std::vector<float> values = test::decode_all(encoded(name, 1, 32, source));
            for (size_t i = 0; i < 32; ++i)
                ASSERT_EQ(values[i], i % 3 ? 31.0f : -31.0f) << name << ' ' << size << ' ' << i;
        }
}

TEST(Encode, KbitTakesTheFirstCodeOnTies) {
    std::vector<float> source(32);
    source[0] = 1.0f;
    const Stored stored = encoded("kbit4_f32", 1, 32, source);
    EXPECT_EQ(test::decode_all(stored)[1], builtin_codebook(stored.traits->format)[7]);
}

TEST(Encode, KbitScales) {
    const auto scale_byte = [](float largest) {
        std::vector<float> source(32, largest / 2);
        source[5] = -largest;
        return load<uint8_t>(encoded("kbit3", 1, 32, source).scales.data());
    };
    EXPECT_EQ(scale_byte(1.0f), 0xB0);
    EXPECT_EQ(scale_byte(1.99f), 0xC0);     // carries into the exponent
    EXPECT_EQ(scale_byte(1.03125f), 0xB0);  // tie: even
    EXPECT_EQ(scale_byte(1.09375f), 0xB2);
    EXPECT_EQ(scale_byte(100.0f), 0xFF);
    EXPECT_EQ(scale_byte(0x1p-14f), 0x01);
    EXPECT_EQ(scale_byte(0x1p-16f), 0x00);
    std::vector<float> source(32, 0.125f);
    source[5] = -0.7f;
    EXPECT_EQ(load<float>(encoded("kbit3_f32", 1, 32, source).scales.data()), 0.7f);
}

TEST(Encode, KbitWithACodebookGiven) {
    moe_format format = find_format("kbit2_f32")->format;
    format.codebook = MOE_CODEBOOK_GIVEN;
    Stored stored(*find_format(format), 1, 32);
    EXPECT_THROW(stored.encode(std::vector<float>(32).data()), Error);
    stored.codebook = {-0.5f, 0.0f, 0.25f, 1.0f};
    std::vector<float> source(32);
    for (size_t i = 0; i < 32; ++i) source[i] = 3.0f * stored.codebook[(i * 3 + 1) % 4];
    stored.encode(source.data());
    EXPECT_EQ(test::decode_all(stored), source);
}

TEST(Encode, Q8_0RoundsHalvesAwayFromZero) {
    std::vector<float> source(32);
    source[0] = 127.0f;
    source[1] = 0.5f;
    source[2] = -0.5f;
    source[3] = 2.5f;
    source[4] = -126.4f;
    const std::vector<float> decoded = test::decode_all(encoded("q8_0", 1, 32, source));
    EXPECT_EQ(decoded[0], 127.0f);
    EXPECT_EQ(decoded[1], 1.0f);
    EXPECT_EQ(decoded[2], -1.0f);
    EXPECT_EQ(decoded[3], 3.0f);
    EXPECT_EQ(decoded[4], -126.0f);
}

// One-sided and constant sub-blocks: the span always holds zero.
TEST(Encode, Q4KHandlesOneSidedBlocks) {
    for (const float offset : {-10.0f, 10.0f}) {
        std::vector<float> source = test::gaussian(2 * 256);
        for (float& value : source) value = offset + value * 0.5f;
        const std::vector<float> decoded = test::decode_all(encoded("q4_k", 2, 256, source));
        EXPECT_LT(test::relative_error(source, decoded), 0.05) << offset;
    }
    const std::vector<float> constant(256, -3.0f);
    const std::vector<float> decoded = test::decode_all(encoded("q4_k", 1, 256, constant));
    EXPECT_LT(test::relative_error(constant, decoded), 1e-3);
}

}  // namespace
}  // namespace moe
