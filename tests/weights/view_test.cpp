// Views of tensors, halves, parts and copies in every format: the same elements as the whole,
// wherever they lie.
#include "libmoe/weights/view.hpp"
#include "libmoe/weights/matrix_copy.hpp"

#include <gtest/gtest.h>

#include "libmoe/base/error.hpp"
#include "tests/formats/sources.hpp"
#include "tests/support/matrices.hpp"
#include "tests/weights/parts.hpp"
#include "tests/weights/refusal.hpp"

namespace moe {
namespace {

using test::Placing;
using test::Random;
using test::random_range;
using test::Range;
using test::same_float;
using test::TensorStack;

constexpr int64_t n_experts = 3;

#define EXPECT_REFUSED(tensor, index, text)                                           \
    EXPECT_NE(test::refusal_of(tensor, index, MOE_ERROR_INVALID_ARGUMENT).find(text), \
              std::string::npos)                                                      \
        << test::refusal_of(tensor, index, MOE_ERROR_INVALID_ARGUMENT)

std::vector<float> decode(const Matrix& matrix) {
    return test::decode_all(matrix, *matrix.traits);
}

void expect_same(const std::vector<float>& got, const std::vector<float>& wanted,
                 const std::string& what) {
    ASSERT_EQ(got.size(), wanted.size()) << what;
    for (size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(same_float(got[i], wanted[i]))
            << what << ": element " << i << " is " << got[i] << ", not " << wanted[i];
}

std::vector<float> elements(const std::vector<float>& whole, int64_t width, const Range& range) {
    std::vector<float> out;
    for (int64_t r = range.row; r < range.row + range.rows; ++r)
        for (int64_t k = range.column; k < range.column + range.columns; ++k)
            out.push_back(whole[static_cast<size_t>(r * width + k)]);
    return out;
}

// Copies into a buffer of exactly copy_bytes bytes between two canaries.
std::vector<float> decode_copy(const Matrix& part, uint64_t bytes) {
    constexpr uint64_t guard = 64;
    constexpr std::byte canary{0xC5};
    std::vector<std::byte> memory(bytes + 2 * guard, canary);
    const Matrix copy = copy_part(part, memory.data() + guard);
    EXPECT_EQ(copy.column_stride, 0);
    for (uint64_t i = 0; i < guard; ++i) {
        EXPECT_EQ(memory[i], canary) << "wrote before the copy";
        EXPECT_EQ(memory[memory.size() - 1 - i], canary) << "wrote past copy_bytes";
    }
    const auto outside = [&](const std::byte* p) {
        return p && (p < memory.data() + guard || p >= memory.data() + guard + bytes);
    };
    EXPECT_FALSE(outside(copy.data) || outside(copy.scales));
    return decode(copy);
}

void check_parts(const Matrix& matrix, const std::vector<float>& whole, uint64_t seed,
                 const std::string& what) {
    Random random(seed);
    for (int i = 0; i < 12; ++i) {
        const Range range =
            i ? random_range(random, matrix) : Range{0, matrix.rows, 0, matrix.columns};
        const std::string name = what + " part [" + std::to_string(range.row) + " +" +
                                 std::to_string(range.rows) + ", " + std::to_string(range.column) +
                                 " +" + std::to_string(range.columns) + "]";
        const Matrix part = part_of(matrix, range.row, range.rows, range.column, range.columns);
        const auto wanted = elements(whole, matrix.columns, range);
        ASSERT_NO_FATAL_FAILURE(expect_same(decode(part), wanted, name));
        const uint64_t bytes =
            copy_bytes(matrix.format, range.row + matrix.scale_row_phase, range.rows,
                       range.column + matrix.scale_column_phase, range.columns);
        ASSERT_NO_FATAL_FAILURE(expect_same(decode_copy(part, bytes), wanted, name + " copied"));
    }
}

// Placings that a format can have.
std::vector<Placing> placings_of(const FormatTraits& traits) {
    std::vector<Placing> all = {{},
                                {.row_padding = 64, .scale_row_padding = 12, .expert_padding = 128},
                                {.by_table = true},
                                {.row_padding = 4, .by_table = true, .one_global_scale = true},
                                {.expert_padding = 20, .one_global_scale = true}};
    if (!is_plain(traits.format)) return all;
    all.push_back({.transposed = true});
    all.push_back({.row_padding = 24, .expert_padding = 8, .transposed = true});
    all.push_back({.transposed = true, .by_table = true});
    return all;
}

// Formats of the table, and those that only files have.
std::vector<const FormatTraits*> formats_of_rows() {
    std::vector<const FormatTraits*> all;
    for (const FormatTraits& traits : all_formats()) all.push_back(&traits);
    for (const FormatTraits& traits : test::one_row_grids()) all.push_back(&traits);
    for (const char* name : {"kbit3", "kbit5_f32"}) {
        moe_format format = test::format_named(name).format;
        format.codebook = MOE_CODEBOOK_GIVEN;
        all.push_back(&get_format(format, name));
    }
    return all;
}

class ViewOf : public testing::TestWithParam<const FormatTraits*> {};

std::string name_of_view(const testing::TestParamInfo<const FormatTraits*>& info) {
    std::string name = info.param->name;
    for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return name + "_" + std::to_string(info.index);
}

TEST_P(ViewOf, WholePartAndCopyHoldTheSameElements) {
    const FormatTraits& traits = *GetParam();
    uint64_t seed = 1;
    for (const Placing& placing : placings_of(traits)) {
        for (const auto& [rows, columns] :
             {std::pair<int64_t, int64_t>{200, 512}, {17, 256}, {1, 768}}) {
            const TensorStack stack(traits, n_experts, rows, columns, placing, ++seed);
            for (int64_t e = 0; e < n_experts; ++e) {
                const Matrix view = view_of(stack.tensor, e, "tensor");
                const std::string what = std::string(traits.name) + " expert " + std::to_string(e);
                ASSERT_NO_FATAL_FAILURE(expect_same(decode(view), stack.values(e), what));
                ASSERT_NO_FATAL_FAILURE(check_parts(view, stack.values(e), seed, what));
                const Matrix single = view_of(stack.single(static_cast<int32_t>(e)), 0, "tensor");
                ASSERT_NO_FATAL_FAILURE(
                    expect_same(decode(single), stack.values(e), what + " alone"));
            }
        }
    }
}

TEST_P(ViewOf, HalvesOfFusedMatricesHoldTheirRows) {
    const FormatTraits& traits = *GetParam();
    constexpr int64_t half_rows = 80;  // so that the second half begins inside a group of 128 rows
    for (const Placing& placing : placings_of(traits)) {
        const TensorStack stack(traits, n_experts, 2 * half_rows, 512, placing, 5);
        const Matrix fused = view_of(stack.tensor, 1, "gate_up");
        for (const auto order :
             {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST, MOE_GATE_UP_INTERLEAVED})
            for (const auto half : {GateUpHalf::gate, GateUpHalf::up}) {
                if (order == MOE_GATE_UP_INTERLEAVED && traits.format.group_rows > 1) {
                    EXPECT_THROW(gate_up_half(fused, order, half), Error);
                    continue;
                }
                const bool up = half == GateUpHalf::up;
                std::vector<float> wanted;
                for (int64_t i = 0; i < half_rows; ++i) {
                    const int64_t row = order == MOE_GATE_UP_INTERLEAVED          ? 2 * i + up
                                        : up == (order == MOE_GATE_UP_GATE_FIRST) ? half_rows + i
                                                                                  : i;
                    for (int64_t k = 0; k < 512; ++k) wanted.push_back(stack.at(1, row, k));
                }
                const Matrix matrix = gate_up_half(fused, order, half);
                const std::string what =
                    std::string(traits.name) + " order " + std::to_string(order);
                ASSERT_NO_FATAL_FAILURE(expect_same(decode(matrix), wanted, what));
                ASSERT_NO_FATAL_FAILURE(check_parts(matrix, wanted, 11, what));
            }
    }
}

TEST_P(ViewOf, PartsOfPartsAreParts) {
    const FormatTraits& traits = *GetParam();
    const TensorStack stack(traits, 1, 300, 1024, {}, 9);
    const Matrix whole = view_of(stack.tensor, 0, "tensor");
    const Matrix part = part_of(whole, 45, 240, 256, 768);
    ASSERT_NO_FATAL_FAILURE(
        check_parts(part, elements(stack.values(), 1024, {45, 240, 256, 768}), 13, traits.name));
}

TEST_P(ViewOf, ByteCountsAreCheckedToTheByte) {
    const FormatTraits& traits = *GetParam();
    for (const Placing& placing : placings_of(traits)) {
        const TensorStack stack(traits, n_experts, 130, 256, placing, 3);
        EXPECT_NO_THROW(view_of(stack.tensor, 2, "tensor"));
        moe_tensor tensor = stack.tensor;
        tensor.data_bytes -= 1;
        EXPECT_REFUSED(tensor, 2,
                       "tensor gate of expert 2: data has " + std::to_string(tensor.data_bytes));
        EXPECT_REFUSED(tensor, 2, "need " + std::to_string(tensor.data_bytes + 1));
        tensor = stack.tensor;
        if (!tensor.scale_bytes) continue;
        tensor.scale_bytes -= 1;
        EXPECT_REFUSED(tensor, 2, "scales has " + std::to_string(tensor.scale_bytes));
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, ViewOf, testing::ValuesIn(formats_of_rows()), name_of_view);

TEST(View, RefusesWhatPointersAndStridesCannotBe) {
    const TensorStack stack(test::format_named("bf16"), n_experts, 8, 64);
    moe_tensor tensor = stack.tensor;
    tensor.data = nullptr;
    EXPECT_REFUSED(tensor, 0, "data is NULL");
    tensor = stack.tensor;
    tensor.row_stride = 127;
    EXPECT_REFUSED(tensor, 0, "row_stride is 127, one row has 128 bytes");
    tensor.row_stride = -128;
    EXPECT_REFUSED(tensor, 0, "row_stride is -128");
    tensor = stack.tensor;
    tensor.expert_stride = -1;
    EXPECT_REFUSED(tensor, 0, "expert stride is -1");
    tensor = stack.tensor;
    tensor.rows = 0;
    EXPECT_REFUSED(tensor, 0, "shape is [0, 64]");
    tensor = stack.tensor;
    tensor.orientation = static_cast<moe_orientation>(7);
    EXPECT_REFUSED(tensor, 0, "orientation is 7");
}

// What would be read if the format had it: values would not be those that were meant.
TEST(View, RefusesWhatTheFormatHasNoUseFor) {
    const TensorStack stack(test::format_named("bf16"), n_experts, 8, 64);
    const float floats[64] = {};
    const int32_t ints[64] = {};
    const void* const pointers[n_experts] = {};
    const auto refuse = [&](const char* name, const auto& give) {
        moe_tensor tensor = stack.tensor;
        give(tensor);
        EXPECT_REFUSED(tensor, 0, std::string(name) + " is given, the format bf16 has none");
    };
    refuse("scales", [&](auto& t) { t.scales = floats; });
    refuse("scales_per_expert", [&](auto& t) { t.scales_per_expert = pointers; });
    refuse("global_scale", [&](auto& t) { t.global_scale = floats; });
    refuse("pre_quant_scale", [&](auto& t) { t.pre_quant_scale = floats; });
    refuse("zero_points", [&](auto& t) { t.zero_points = ints; });
    refuse("permutation", [&](auto& t) { t.permutation = ints; });
    refuse("codebook", [&](auto& t) { t.codebook = floats; });
    refuse("nested_scales", [&](auto& t) { t.nested_scales = floats; });
    refuse("nested_codebook", [&](auto& t) { t.nested_codebook = floats; });
    moe_tensor tensor = stack.tensor;
    tensor.input_scale = floats;
    EXPECT_NO_THROW(view_of(tensor, 0, "tensor"));
    tensor.role = MOE_ROLE_UP;
    tensor.gate_up_order = MOE_GATE_UP_INTERLEAVED;
    EXPECT_REFUSED(tensor, 0, "gate_up_order is 3, the role up is not fused");
    tensor = stack.tensor;
    tensor.data_per_expert = pointers;
    EXPECT_REFUSED(tensor, 0, "data and data_per_expert are both given");
    tensor = stack.tensor;
    tensor.expert_stride = 8 * 128 - 1;
    EXPECT_REFUSED(tensor, 0, "data expert stride is 1023, one expert has 1024 bytes");
    const auto gptq = test::random_source(
        test::int_format(MOE_PACKING_GPTQ, 4, 32, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED), 8, 64);
    tensor = gptq.tensor();
    int32_t groups[64];
    for (int32_t k = 0; k < 64; ++k) groups[k] = k / 32;
    tensor.permutation = groups;
    tensor.permutation_bytes = sizeof groups;
    EXPECT_NO_THROW(view_of(tensor, 0, "tensor")) << "without act order, and in order";
    groups[31] = 1;
    EXPECT_REFUSED(tensor, 0, "permutation is given");
    const TensorStack kbit(test::format_named("kbit4"), n_experts, 8, 64);
    tensor = kbit.tensor;
    tensor.codebook = floats;
    EXPECT_REFUSED(tensor, 0, "codebook is given");
}

TEST(View, SizesThatOverflowAreRefused) {
    const TensorStack stack(test::format_named("f32"), n_experts, 8, 64);
    moe_tensor tensor = stack.tensor;
    tensor.row_stride = INT64_MAX;
    EXPECT_REFUSED(tensor, 0, "overflows 64 bits");
    tensor = stack.tensor;
    tensor.expert_stride = INT64_MAX;
    EXPECT_REFUSED(tensor, 1, "data has");
    EXPECT_REFUSED(tensor, 4, "overflows 64 bits");
    tensor = stack.tensor;
    tensor.rows = INT64_MAX;
    EXPECT_REFUSED(tensor, 0, "overflows 64 bits");
    tensor = stack.tensor;
    tensor.columns = INT64_MAX;
    EXPECT_NE(test::refusal_of(tensor, 0, MOE_ERROR_INVALID_ARGUMENT), "no error");
}

TEST(View, GlobalScalesAreOneOrOnePerExpert) {
    const TensorStack stack(test::format_named("nvfp4"), n_experts, 8, 64);
    moe_tensor tensor = stack.tensor;
    EXPECT_NO_THROW(view_of(tensor, 1, "tensor"));
    for (const int64_t wrong : {int64_t{0}, int64_t{-1}, n_experts - 1, n_experts + 1}) {
        tensor.n_global_scales = wrong;
        EXPECT_REFUSED(tensor, 0, "n_global_scales is " + std::to_string(wrong));
    }
    tensor.n_global_scales = 1;
    EXPECT_NO_THROW(view_of(tensor, n_experts - 1, "tensor"));
    // One expert alone has one, and so has a role without experts.
    moe_tensor one = stack.single(2);
    one.role = MOE_ROLE_UP;
    EXPECT_NO_THROW(view_of(one, 0, "tensor"));
    one.n_experts = one.n_global_scales = n_experts;
    EXPECT_REFUSED(one, 0, "n_global_scales is " + std::to_string(n_experts));
    one.role = MOE_ROLE_SHARED_UP;
    one.expert = MOE_ALL_EXPERTS;
    EXPECT_REFUSED(one, 0, "n_global_scales is " + std::to_string(n_experts));
    tensor.global_scale = nullptr;
    EXPECT_REFUSED(tensor, 0, "global_scale is NULL");
}

TEST(View, GivenCodebooksAreChecked) {
    moe_format format = test::format_named("kbit3").format;
    format.codebook = MOE_CODEBOOK_GIVEN;
    const TensorStack stack(get_format(format, "kbit3"), n_experts, 4, 64);
    moe_tensor tensor = stack.tensor;
    tensor.codebook_bytes = 31;
    EXPECT_REFUSED(tensor, 0, "codebook has 31 bytes, 3 bits need 32");
    tensor.codebook = nullptr;
    EXPECT_REFUSED(tensor, 0, "codebook is NULL");
}

// Of a group of all rows there is one row of scales and nothing behind it.
TEST(View, InterleavedHalvesShareTheScalesOfAllRows) {
    auto format = moe_test::sized<moe_format>();
    format.type = MOE_TYPE_F8_E4M3;
    format.group_rows = -1;
    format.group_columns = 32;
    format.scale_type = MOE_TYPE_F32;
    std::vector<uint8_t> codes(32 * 64, 0x38);  // 1.0
    for (size_t i = 0; i < codes.size(); ++i)
        if (i / 64 % 2) codes[i] = 0x40;  // odd rows 2.0
    const float scales[] = {3, 5, NAN, NAN};
    auto tensor = moe_test::sized<moe_tensor>();
    tensor.role = MOE_ROLE_GATE_UP;
    tensor.format = &format;
    tensor.rows = 32;
    tensor.columns = 64;
    tensor.data = codes.data();
    tensor.data_bytes = codes.size();
    tensor.scales = scales;
    tensor.scale_bytes = 2 * sizeof(float);
    const Matrix fused = view_of(tensor, 0, "gate_up");
    for (const auto half : {GateUpHalf::gate, GateUpHalf::up}) {
        const float code = half == GateUpHalf::up ? 2 : 1;
        const auto got = decode(gate_up_half(fused, MOE_GATE_UP_INTERLEAVED, half));
        for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], code * scales[i % 64 / 32]) << "half " << code << ", element " << i;
    }
}

TEST(View, OnlyDenseFormatsLieTransposed) {
    const TensorStack stack(test::format_named("q8_0"), n_experts, 8, 64);
    moe_tensor tensor = stack.tensor;
    tensor.orientation = MOE_ORIENTATION_IN_OUT;
    EXPECT_NE(test::refusal_of(tensor, 0, MOE_ERROR_UNSUPPORTED).find("q8_0"), std::string::npos);
}

}  // namespace
}  // namespace moe
