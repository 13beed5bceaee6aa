// Blocks and codebooks of kbit with known contents; golden_gguf_test.cpp has those of ggml.
#include <gtest/gtest.h>

#include "libmoe/base/element.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

constexpr uint32_t plane_words[5] = {0x55555555, 0x33333333, 0xF0F0F0F0, 0xA55AA55A, 0xC663399C};

// Codes (7 l + 3) mod 2^bits, both ways.
TEST(Golden, KbitPlanes) {
    for (int bits = 2; bits <= 5; ++bits) {
        const std::string name = "kbit" + std::to_string(bits);
        test::Stored stored(*find_format(name.c_str()), 1, 32);
        const float* codebook = builtin_codebook(stored.traits->format);
        std::vector<float> source(32);
        for (int l = 0; l < 32; ++l) source[l] = codebook[(7 * l + 3) % (1 << bits)];
        stored.encode(source.data());
        EXPECT_EQ(load<uint8_t>(stored.scales.data()), 0xB0);
        for (int b = 0; b < bits; ++b) {
            EXPECT_EQ(load<uint32_t>(stored.data.data() + 4 * b), plane_words[b]) << name << b;
        }
        EXPECT_EQ(test::decode_all(stored), source) << name;
    }
}

TEST(Golden, NormalFloatCodebooks) {
    const std::vector<std::vector<double>> halves = {
        {0.27699357, 1},
        {0.10254128, 0.31860366, 0.57827693, 1},
        {0.04209539, 0.12734099, 0.21594630, 0.31090474, 0.41681889, 0.54220915, 0.70756882, 1},
        {0.01818866, 0.05467815, 0.09150908, 0.12892599, 0.16720095, 0.20664923, 0.24765123,
         0.29068497, 0.33637723, 0.38558921, 0.43957144, 0.50026846, 0.57099831, 0.65825421,
         0.77810454, 1}};
    for (int bits = 2; bits <= 5; ++bits) {
        const std::string name = "kbit" + std::to_string(bits) + "_f32";
        const float* codebook = builtin_codebook(find_format(name.c_str())->format);
        ASSERT_NE(codebook, nullptr);
        const int half = 1 << (bits - 1);
        for (int i = 0; i < half; ++i) {
            EXPECT_NEAR(codebook[half + i], halves[bits - 2][i], 5.1e-9) << name << " " << i;
            EXPECT_EQ(codebook[half - 1 - i], -codebook[half + i]) << name << " " << i;
        }
    }
}

// Value i, times the normaliser, is the quantile (i + 1/2) / 2^bits of the normal distribution.
TEST(Golden, NormalFloatCodebooksAreQuantiles) {
    const double normalizers[] = {1.15034938, 1.53412056, 1.86273181, 2.15387464};
    for (int bits = 2; bits <= 5; ++bits) {
        const std::string name = "kbit" + std::to_string(bits);
        const float* codebook = builtin_codebook(find_format(name.c_str())->format);
        for (int i = 0; i < 1 << bits; ++i) {
            const double quantile = codebook[i] * normalizers[bits - 2];
            const double probability = 0.5 * std::erfc(-quantile / std::numbers::sqrt2);
            EXPECT_NEAR(probability, std::ldexp(i + 0.5, -bits), 5e-8) << name << " " << i;
        }
    }
}

}  // namespace
}  // namespace moe
