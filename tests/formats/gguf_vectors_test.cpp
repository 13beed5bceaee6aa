// Decoding against the values that the Python package gguf gives for the same blocks, bit for bit
// (tests/formats/gguf/README.md).
#include <gtest/gtest.h>

#include "libmoe/formats/entries.hpp"
#include "tests/formats/matrices.hpp"
#include "tests/support/npy.hpp"

namespace moe {
namespace {

const std::string folder = "tests/formats/gguf/";

class GgufVectors : public testing::TestWithParam<const char*> {
  protected:
    // nvfp4_gguf has a global scale of its own, which the package leaves out.
    const FormatTraits& traits() const {
        const std::string name = GetParam();
        return name == "nvfp4" ? nvfp4_gguf_alone_format : *find_format(name.c_str());
    }
};

INSTANTIATE_TEST_SUITE_P(Formats, GgufVectors,
                         testing::Values("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k",
                                         "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq2_xxs",
                                         "iq2_xs", "iq3_xxs", "iq3_s", "nvfp4"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GgufVectors, AreDecodedToTheSameBits) {
    const auto blocks = moe_test::read_npy<uint8_t>(folder + GetParam() + "_blocks.npy");
    const auto wanted = moe_test::read_npy<float>(folder + GetParam() + "_values.npy");
    const auto block_bytes = static_cast<size_t>(traits().block_bytes);
    ASSERT_EQ(blocks.size() % block_bytes, 0u);
    const auto rows = static_cast<int64_t>(blocks.size() / block_bytes);
    ASSERT_GE(rows, 14);
    test::Stored stored(traits(), rows, traits().block_columns);
    ASSERT_EQ(wanted.size(), static_cast<size_t>(rows * traits().block_columns));
    std::memcpy(stored.data.data(), blocks.data(), blocks.size());
    const std::vector<float> values = test::decode_all(stored);
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (traits().format.block_id == 40 && wanted[i] == 0) {
            ASSERT_EQ(values[i], 0.0f) << i;  // the package has no -0 of E2M1
            continue;
        }
        ASSERT_TRUE(test::same_float(values[i], wanted[i]))
            << "block " << i / static_cast<size_t>(traits().block_columns) << ", column "
            << i % static_cast<size_t>(traits().block_columns) << ": " << values[i] << ", not "
            << wanted[i];
    }
}

}  // namespace
}  // namespace moe
