// Blocks of the ggml types with known contents: byte i is 37 i + 11, then d = 1 and dmin or m = 0.5
// (of mxfp4 e = 0x80, of nvfp4 the scales 0x38 0x40 0x30 0x01). Sums over a block find what a few
// elements would not.
#include <gtest/gtest.h>

#include "libmoe/base/element.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

struct Golden {
    const char* name;
    double plain, by_index, absolute;  // sums of y, of i * y and of |y|
    float first, second, sixteenth, last;
};

void PrintTo(const Golden& golden, std::ostream* out) {
    *out << golden.name;
}

class GoldenGguf : public testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(
    Formats, GoldenGguf,
    testing::Values(Golden{"q4_0", -21, -497, 123, -3, 2, -3, 0},
                    Golden{"q4_1", 261, 3986, 261, 15.5f, 4.5f, 9.5f, 12.5f},
                    Golden{"q5_0", 15, 97, 247, 9, -2, 14, 1},
                    Golden{"q5_1", 521, 7644, 521, 19.5f, 24.5f, 19.5f, 5.5f},
                    Golden{"q8_0", -176, -7904, 2172, 85, 122, -91, -48},
                    Golden{"q2_k", 2059, 241071, 2564, 33, 0, -1.5f, 4.5f},
                    Golden{"q3_k", 958, 176187, 9210, 81, -108, -96, 42},
                    Golden{"q4_k", 54440, 7518400, 55028, 315.5f, -25.5f, 315.5f, 48.5f},
                    Golden{"q5_k", 116216, 15911232, 116559, 811.5f, -25.5f, 811.5f, 108.5f},
                    Golden{"q6_k", 4612, 779808, 266502, -1431, 1696, -432, -60},
                    Golden{"iq4_nl", -257, -6662, 1705, -35, 25, -35, 1},
                    Golden{"iq4_xs", -11005, -2080129, 166663, 65, -1, 65, -16},
                    Golden{"mxfp4_gguf", 25, 613, 151, 0, 6, 3, 6},
                    Golden{"nvfp4_gguf", -4.4892578125, -171.83984375, 118.0673828125, -6, 2, 12,
                           0x1p-10f}),
    [](const auto& info) { return std::string(info.param.name); });

test::Stored golden_block(const FormatTraits& traits) {
    test::Stored stored(traits, 1, traits.block_columns);
    for (size_t i = 0; i < stored.data.size(); ++i) stored.data[i] = std::byte(37 * i + 11);
    uint16_t bits = 0x3C00;
    for (const size_t place : test::f16_places(traits.format)) {
        store(stored.data.data() + place, bits);
        bits = 0x3800;
    }
    if (traits.format.block_id == 39) store<uint8_t>(stored.data.data(), 0x80);
    if (traits.format.block_id == 40) store<uint32_t>(stored.data.data(), 0x01304038);
    return stored;
}

TEST_P(GoldenGguf, BlockDecodesToKnownSums) {
    const Golden& golden = GetParam();
    const auto values = test::decode_all(golden_block(*find_format(golden.name)));
    double plain = 0, by_index = 0, absolute = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        plain += values[i];
        by_index += static_cast<double>(i) * values[i];
        absolute += std::abs(values[i]);
    }
    EXPECT_EQ(plain, golden.plain);
    EXPECT_EQ(by_index, golden.by_index);
    EXPECT_EQ(absolute, golden.absolute);
    EXPECT_EQ(values[0], golden.first);
    EXPECT_EQ(values[1], golden.second);
    EXPECT_EQ(values[16], golden.sixteenth);
    EXPECT_EQ(values.back(), golden.last);
}

}  // namespace
}  // namespace moe
