// Encoders of the ggml types: the largest error of an element, blocks that come back as they were,
// and where each rule puts a code.
#include <gtest/gtest.h>

#include "libmoe/base/element.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

using test::Stored;

Stored encoded(const char* name, const std::vector<float>& source) {
    Stored stored(*find_format(name), 1, static_cast<int64_t>(source.size()));
    stored.encode(source.data());
    return stored;
}

struct Bound {
    const char* name;
    int columns;       // that share a scale
    double error;      // of an element, over the largest magnitude of those columns
    double one_sided;  // relative L2 error of N(3, 1/2) and N(-3, 1/2)
};

void PrintTo(const Bound& bound, std::ostream* out) {
    *out << bound.name;
}

class EncodeGguf : public testing::TestWithParam<Bound> {};
// Codes of [-n, n - 1] miss a positive extreme by a step, the others by half of one; scales of 4 or
// 6 bits, and what was fitted to all columns, by more.
INSTANTIATE_TEST_SUITE_P(
    Formats, EncodeGguf,
    testing::Values(Bound{"q4_0", 32, 1.001 / 8, 0.05}, Bound{"q4_1", 32, 1.001 / 15, 0.014},
                    Bound{"q5_0", 32, 1.008 / 16, 0.025}, Bound{"q5_1", 32, 1.001 / 31, 0.0066},
                    Bound{"q2_k", 16, 0.5, 0.3}, Bound{"q3_k", 16, 0.3, 0.095},
                    Bound{"q5_k", 32, 0.05, 0.014}, Bound{"q6_k", 16, 0.038, 0.012},
                    Bound{"iq4_nl", 32, 0.13, 0.066}, Bound{"iq4_xs", 32, 0.15, 0.066}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(EncodeGguf, NoElementIsFurtherOffThanTheBound) {
    const auto n = static_cast<size_t>(GetParam().columns);
    const std::vector<float> source = test::gaussian(256 * 400, 9);
    const std::vector<float> decoded = test::decode_all(encoded(GetParam().name, source));
    double worst = 0;
    for (size_t first = 0; first < source.size(); first += n) {
        float largest = 0, error = 0;
        for (size_t i = first; i < first + n; ++i) {
            largest = std::max(largest, std::abs(source[i]));
            error = std::max(error, std::abs(decoded[i] - source[i]));
        }
        worst = std::max(worst, static_cast<double>(error) / static_cast<double>(largest));
    }
    EXPECT_LE(worst, GetParam().error);
    EXPECT_GT(worst, GetParam().error / 1.5);
}

TEST_P(EncodeGguf, TwiceIsNearlyTheSameAsOnce) {
    const std::vector<float> source = test::gaussian(256 * 40, 10);
    const std::vector<float> once = test::decode_all(encoded(GetParam().name, source));
    const std::vector<float> twice = test::decode_all(encoded(GetParam().name, once));
    EXPECT_LT(test::relative_error(once, twice), 0.1 * test::relative_error(source, once));
}

// One-sided values: minima are not negative, and offsets of the small types may be anything.
TEST_P(EncodeGguf, OneSidedBlocks) {
    for (const float offset : {-3.0f, 3.0f}) {
        std::vector<float> source = test::gaussian(2 * 256);
        for (float& value : source) value = offset + value * 0.5f;
        const std::vector<float> decoded = test::decode_all(encoded(GetParam().name, source));
        EXPECT_LT(test::relative_error(source, decoded), GetParam().one_sided) << offset;
    }
}

// What steps fitted to the codes reach; without the fit q2_k is at 0.329, q3_k at 0.155, q6_k at
// 0.0188, and with one end of the table alone iq4_nl is at 0.0799 and iq4_xs at 0.0780.
TEST(EncodeGguf, FittedStepsStayAtWhatTheyReach) {
    const std::pair<const char*, double> errors[] = {{"q2_k", 0.2764},
                                                     {"q3_k", 0.1504},
                                                     {"q6_k", 0.0185},
                                                     {"iq4_nl", 0.0765},
                                                     {"iq4_xs", 0.0770}};
    const std::vector<float> source = test::gaussian(1000 * 256, 12);
    for (const auto& [name, error] : errors) {
        const std::vector<float> decoded = test::decode_all(encoded(name, source));
        EXPECT_LT(test::relative_error(source, decoded), error) << name;
    }
}

// Codes that reach both ends of their range, under a scale that f16 holds: the same bytes again.
TEST(EncodeGguf, BlocksOfSmallTypesComeBack) {
    const std::pair<const char*, size_t> types[] = {
        {"q4_0", 2}, {"q4_1", 4}, {"q5_0", 6}, {"q5_1", 8}};
    for (const auto& [name, q] : types) {
        Stored stored(*find_format(name), 8, 32);
        stored.data = test::random_bytes(stored.bytes.data, 21);
        const auto block = static_cast<size_t>(stored.traits->block_bytes);
        for (std::byte* place = stored.data.data(); place != stored.data.data() + 8 * block;
             place += block) {
            store<uint16_t>(place, 0xB400);                            // -1/4
            if (q == 4 || q == 8) store<uint32_t>(place, 0xC1003400);  // 1/4, -5/2
            place[q] = std::byte{0xF0};                                // columns 0 and 16
            if (q > 4) place[q - 4] &= std::byte{0xFE};                // fifth bit of column 0
            if (q > 4) place[q - 2] |= std::byte{0x01};                // of column 16
        }
        Stored again(*stored.traits, 8, 32);
        again.encode(test::decode_all(stored).data());
        EXPECT_EQ(again.data, stored.data) << name;
    }
}

TEST(EncodeGguf, SymmetricTypesPutTheExtremeAtTheLowestCode) {
    std::vector<float> source(32);
    source[3] = 4.0f;   // d = -1/2: code 0
    source[4] = -4.0f;  // beyond code 15, -3.5
    source[5] = 0.75f;  // halves go away from zero: -2 steps of -1/2
    source[20] = -0.24f;
    const std::vector<float> decoded = test::decode_all(encoded("q4_0", source));
    EXPECT_EQ(decoded[3], 4.0f);
    EXPECT_EQ(decoded[4], -3.5f);
    EXPECT_EQ(decoded[5], 1.0f);
    EXPECT_EQ(decoded[20], 0.0f);
    EXPECT_EQ(load<uint16_t>(encoded("q4_0", source).data.data()), 0xB800);
}

TEST(EncodeGguf, Iq4TakesTheBetterEndOfItsTable) {
    std::vector<float> source(32, 0.0f);
    for (size_t i = 0; i < 32; ++i) source[i] = i % 2 ? 113.0f : -104.0f;
    EXPECT_EQ(test::decode_all(encoded("iq4_nl", source)), source);
    for (float& value : source) value = -value;  // d is negative
    EXPECT_EQ(test::decode_all(encoded("iq4_nl", source)), source);
}

TEST(EncodeGguf, ScalesOfKBlocksFollowTheirSubBlocks) {
    for (const char* name : {"q3_k", "q6_k", "iq4_xs", "q2_k", "q5_k"}) {
        std::vector<float> source = test::gaussian(256, 3);
        for (size_t i = 0; i < 256; ++i) source[i] *= i < 32 ? 1.0f : 0.25f;
        const std::vector<float> decoded = test::decode_all(encoded(name, source));
        const std::vector<float> small(source.begin() + 32, source.end());
        const std::vector<float> got(decoded.begin() + 32, decoded.end());
        EXPECT_LT(test::relative_error(small, got), 0.4) << name;
    }
}

}  // namespace
}  // namespace moe
