// Every byte of a ggml block through all of its values, and every f16 in front of every code of the
// small types, against the formula of the type.
#include <gtest/gtest.h>

#include "tests/formats/gguf_formula.hpp"

namespace moe {
namespace {

using test::Stored;

std::vector<const FormatTraits*> ggml_formats() {
    std::vector<const FormatTraits*> formats;
    for (const FormatTraits& traits : all_formats())
        if (traits.format.type == MOE_TYPE_GGUF) formats.push_back(&traits);
    return formats;
}

class GgufBytes : public testing::TestWithParam<const FormatTraits*> {
  protected:
    const FormatTraits& traits() const { return *GetParam(); }

    // Random bytes with f16 fields of moderate size.
    Stored random_block(uint64_t seed) const {
        Stored stored(traits(), 1, traits().block_columns);
        stored.data = test::random_bytes(stored.bytes.data, seed);
        test::Random random(seed);
        for (const size_t place : test::f16_places(traits().format))
            store(stored.data.data() + place, float_to_f16(static_cast<float>(random.gaussian())));
        return stored;
    }

    void expect_formula(const Stored& stored, std::vector<float>& values) const {
        traits().decode(stored.view(), 0, 0, stored.columns, values.data());
        for (int64_t i = 0; i < stored.columns; ++i) {
            const auto wanted = static_cast<float>(
                test::gguf_value(traits().format.block_id, stored.data.data(), i));
            ASSERT_TRUE(test::same_float(values[static_cast<size_t>(i)], wanted))
                << "column " << i << ": " << values[static_cast<size_t>(i)] << ", not " << wanted;
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Formats, GgufBytes, testing::ValuesIn(ggml_formats()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(GgufBytes, EveryByteCountsInEveryValue) {
    Stored stored = random_block(11);
    std::vector<float> values(static_cast<size_t>(stored.columns));
    std::vector<float> before = values;
    size_t n_idle = 0;
    for (size_t place = 0; place < stored.data.size(); ++place) {
        const std::byte kept = stored.data[place];
        int changes = 0;
        for (int byte = 0; byte < 256; ++byte) {
            stored.data[place] = static_cast<std::byte>(byte);
            before = values;
            ASSERT_NO_FATAL_FAILURE(expect_formula(stored, values))
                << "byte " << place << " is " << byte;
            changes += !std::equal(values.begin(), values.end(), before.begin(), test::same_float);
        }
        n_idle += changes < 100;
        stored.data[place] = kept;
    }
    // Under a scale that happens to be zero codes do not show.
    EXPECT_LE(n_idle, stored.data.size() / 8);
}

TEST_P(GgufBytes, EveryHalfBeforeEveryCodeOfSmallTypes) {
    if (traits().block_columns != 32 || test::f16_places(traits().format).empty()) return;
    Stored stored = random_block(12);
    std::vector<float> values(32);
    for (const size_t place : test::f16_places(traits().format)) {
        const auto kept = load<uint16_t>(stored.data.data() + place);
        for (int bits = 0; bits < 65536; ++bits) {
            store(stored.data.data() + place, static_cast<uint16_t>(bits));
            ASSERT_NO_FATAL_FAILURE(expect_formula(stored, values))
                << "f16 at " << place << " is " << bits;
        }
        store(stored.data.data() + place, kept);
    }
}

}  // namespace
}  // namespace moe
