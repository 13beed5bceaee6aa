// The gemv and gemm kernels of every instruction family against double sums of the decoded weights,
// for every format that they read: one row after another, each with the bound of its kind of
// activations.
#include <gtest/gtest.h>

#include <cstring>

#include "libmoe/base/element.hpp"
#include "libmoe/cpu/features.hpp"
#include "libmoe/weights/matrix_part.hpp"
#include "tests/cpu/gemv_cases.hpp"

namespace moe::cpu {
namespace {

// Those of ARM do not read all formats yet: FamiliesOfArmReadTheirFormats has which.
bool is_of_arm(Arithmetic arithmetic) {
    return arithmetic == Arithmetic::gemv_neon || arithmetic == Arithmetic::gemv_i8mm;
}

void check_format(Arithmetic arithmetic, const FormatTraits& traits, int64_t columns, Way way,
                  bool interleaved) {
    const int64_t rows = rows_of(traits.format, 37);
    Weights weights(traits, rows, columns);
    if (interleaved) weights.interleave();
    for (const Bound& bound : bounds())
        for (const int64_t n : tokens_of(way, columns)) {
            const Activations x(arithmetic, weights.matrix, bound.type, n, bound.outlier, way,
                                bound.to_int8);
            const double error = bound_of_error(arithmetic, traits.format, x, bound);
            ASSERT_LT(worst_error(project(arithmetic, weights, x, n), weights, x.x, n), error)
                << traits.name << " columns " << columns << " rows " << n << " type "
                << type_name(bound.type) << " outlier " << bound.outlier;
        }
}

TEST(Gemv, EveryFormatKeepsTheBoundOfItsActivations) {
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats())
            for (const int64_t columns : columns_of(traits))
                for (const Way way : ways)
                    for (const bool interleaved : layouts_of(traits))
                        ASSERT_NO_FATAL_FAILURE(
                            check_format(arithmetic, traits, columns, way, interleaved));
}

// Rows as ggml takes them under weights in blocks of 256 columns: bytes under a scale for 256.
std::vector<float> in_bytes_of_256(std::vector<float> x) {
    for (size_t begin = 0; begin < x.size(); begin += 256) {
        float most = 0;
        for (size_t i = begin; i < begin + 256; ++i) most = std::max(most, std::abs(x[i]));
        for (size_t i = begin; i < begin + 256; ++i)
            x[i] = std::nearbyint(x[i] * 127 / most) * most / 127;
    }
    return x;
}

TEST(Gemv, Int8IsUsedAndAsExactAsBytesUnderScalesOf256) {
    if (!has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    constexpr int64_t rows = 64, columns = 512, n = 8;
    constexpr Arithmetic arithmetic = Arithmetic::gemv_avx512vnni;
    for (const char* name : {"q4_k", "q6_k", "q2_k", "q8_0", "nvfp4", "iq4_xs"}) {
        const FormatTraits& traits = test::format_named(name);
        const Weights weights(traits, rows, columns);
        for (const Way way : ways)
            for (const float outlier : {0.0f, 100.0f}) {
                const Activations x(arithmetic, traits.format, MOE_TYPE_BF16, n, columns, outlier,
                                    way, true);
                ASSERT_EQ(x.rows.quantization.parts, 1) << name;
                const auto right = exact(weights, x.x, n);
                const double error =
                    moe_test::worst_row_error(project(arithmetic, weights, x, n), right, rows);
                const double of_256 =
                    moe_test::worst_row_error(exact(weights, in_bytes_of_256(x.x), n), right, rows);
                EXPECT_LT(error, of_256) << name << " outlier " << outlier;
                EXPECT_GT(error, 1e-3) << name << " outlier " << outlier;
            }
    }
}

// A quantized row as the header describes it, in plain loops; columns is a multiple of 16.
std::vector<std::byte> quantized(const std::vector<float>& row, const Quantization& how) {
    const auto columns = static_cast<int64_t>(row.size());
    const int64_t padded = (columns + quantized_step - 1) / quantized_step * quantized_step;
    std::vector<std::byte> out(static_cast<size_t>(quantized_row_bytes(columns, how)));
    const auto x = [&](int64_t k) { return k < columns ? row[static_cast<size_t>(k)] : 0.0f; };
    std::byte* const of_32 = out.data() + padded / 16 * 8;
    std::byte* const integers = of_32 + padded / 16 * 4;
    const auto store_words = [&](int64_t k, int32_t code) {
        constexpr int64_t place_of_four[] = {0, 2, 1, 3};
        const int64_t place = k % 32 / 4 * 4 + place_of_four[k % 4];
        std::byte* to =
            integers + offset_of_words(columns, how) + (k / 32 * (how.parts - 1) * 32 + place) * 2;
        const int32_t upper = how.parts == 2 ? code : (code + 128) >> 8;
        store(to, static_cast<int16_t>(upper));
        if (how.parts == 3) store(to + 64, static_cast<int16_t>(code - upper * 256));
    };
    for (int64_t k = 0; k < padded; k += 32) {
        float most = 0;
        for (int64_t i = k; i < k + 32; ++i) most = std::max(most, std::fabs(x(i)));
        const float scale =
            std::max(most * (1.0f / (how.parts == 2 ? 32512.0f : 8323072.0f)), 0x1p-120f);
        float sum_of_32 = 0;
        int32_t sum_of_lows = 0;
        for (int64_t half = k; half < k + 32; half += 16) {
            int32_t sum = 0;
            for (int64_t i = half; i < half + 16; ++i) {
                const auto code = static_cast<int32_t>(std::nearbyint(x(i) * (1.0f / scale)));
                sum += code;
                sum_of_lows += static_cast<int8_t>(code);
                if (how.has_words) store_words(i, code);
                int64_t begin = 0;  // of the order
                for (int order = 0; how.orders >> order; ++order) {
                    if (!(how.orders >> order & 1)) continue;
                    const auto& columns_of_order = column_orders.column[order];
                    const auto place = std::find(std::begin(columns_of_order),
                                                 std::end(columns_of_order), i % quantized_step) -
                                       std::begin(columns_of_order);
                    const int64_t vector = i / quantized_step * 4 + place / 64;
                    int32_t rest = code;
                    for (int32_t part = how.parts - 1; part >= 0; --part) {
                        integers[begin + (vector * how.parts + part) * 64 + place % 64] =
                            static_cast<std::byte>(rest);
                        rest = (rest + 128) >> 8;
                    }
                    begin += padded * how.parts;
                }
            }
            store(out.data() + half / 16 * 4, scale);
            store(out.data() + (padded + half) / 16 * 4, static_cast<float>(sum) * scale);
            sum_of_32 += static_cast<float>(sum) * scale;
        }
        std::byte* const of_group = of_32 + k / quantized_step * 64 + k % quantized_step / 32 * 4;
        store(of_group, scale);
        store(of_group + 32, sum_of_32);
        if (how.has_low_sums)
            store(out.data() + offset_of_low_sums(columns, how) + k / 32 * 4,
                  static_cast<float>(sum_of_lows) * scale);
    }
    return out;
}

TEST(Gemv, EveryFamilyQuantizesToTheSameBytes) {
    constexpr uint32_t all_orders = (1u << static_cast<int>(ColumnOrder::count)) - 1;
    for (const Arithmetic arithmetic : families())
        for (const int64_t columns : {16, 48, 256, 272, 720})
            for (const int32_t parts : {2, 3})
                for (const uint32_t orders : {0u, 1u, 0x2Cu, all_orders}) {
                    std::vector<float> row = gaussian(columns, 3);
                    for (int64_t k = 0; k < std::min<int64_t>(columns, 32); ++k)
                        row[static_cast<size_t>(k)] *= k % 16 == 3 ? 100.0f : 1e-30f;
                    const bool has_words = columns % 32 != 0 && !is_of_arm(arithmetic);
                    Quantization how{parts, orders, false, has_words};
                    how.has_low_sums = parts == 2 && columns % 48 == 0 &&
                                       gemv_family(arithmetic)->kernels(GemvFormat::kbit4, parts);
                    std::vector<std::byte> got(
                        static_cast<size_t>(quantized_row_bytes(columns, how)), std::byte{0x5A});
                    gemv_family(arithmetic)->quantize(row.data(), columns, how, got.data());
                    EXPECT_EQ(got, quantized(row, how))
                        << columns << " columns, " << parts << " parts, orders " << orders;
                }
}

// Formats that a family does not read are decoded row by row, with the same results: only this says
// that its kernels run.
TEST(Gemv, FamiliesOfArmReadTheirFormats) {
    if (!has_neon()) GTEST_SKIP() << "no NEON with dot products of bytes";
    using enum GemvFormat;
    constexpr GemvFormat of_integers[] = {
        q4_0,  q4_1,  q5_0,       q5_1,       q8_0,    q2_k,         q3_k,     q4_k,
        q5_k,  q6_k,  iq4_nl,     iq4_xs,     iq2_xxs, iq2_xs,       iq3_xxs,  iq3_s,
        mxfp4, nvfp4, mxfp4_gguf, nvfp4_gguf, int4,    int4_nibbles, fp4_grid, int8};
    constexpr GemvFormat of_values[] = {f32,         f16,         bf16,        fp8,
                                        kbit2,       kbit3,       kbit4,       kbit5,
                                        kbit2_given, kbit3_given, kbit4_given, kbit5_given};
    for (const Arithmetic arithmetic : families()) {
        const GemvFamily& family = *gemv_family(arithmetic);
        for (const GemvFormat format : of_integers)
            EXPECT_TRUE(family.kernels(format, 2) && family.kernels(format, 3))
                << static_cast<int>(format);
        for (const GemvFormat format : of_values)
            EXPECT_TRUE(family.kernels(format, 0)) << static_cast<int>(format);
    }
}

// The kernels for matrix products of bytes add in the order of the others.
TEST(Gemv, FamiliesOfArmAgreeToTheBit) {
    if (!has_i8mm()) GTEST_SKIP() << "no I8MM";
    for (const FormatTraits& traits : known_formats())
        for (const int64_t columns : columns_of(traits))
            for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16})
                for (const int64_t n : {2, 7}) {
                    const Weights weights(traits, rows_of(traits.format, 37), columns);
                    const Activations x(Arithmetic::gemv_neon, traits.format, type, n, columns, 0);
                    ASSERT_EQ(project(Arithmetic::gemv_i8mm, weights, x, n),
                              project(Arithmetic::gemv_neon, weights, x, n))
                        << traits.name << ", " << columns << " columns";
                }
}

// Formats whose kernels take strips of weight rows in turns where four rows of activations have
// more than eight steps of 256 columns.
constexpr const char* long_formats[] = {"q8_0",   "q4_0", "q5_1", "mxfp4_gguf", "mxfp4", "nvfp4",
                                        "iq4_xs", "q2_k", "q4_k", "q5_k",       "q6_k",  "iq2_xs"};

// I8MM interleaves activation rows in a buffer of a fixed size.
TEST(Gemv, RowsMayBeLongerThanABufferOfTheirs) {
    constexpr int64_t rows = 21;
    for (const Arithmetic arithmetic : families())
        for (const char* name : long_formats) {
            const FormatTraits& traits = test::format_named(name);
            const int64_t columns = traits.block_columns == 256 ? 14336 : 5152;
            const Weights weights(traits, rows, columns);
            for (const moe_type type : {MOE_TYPE_BF16, MOE_TYPE_F32})
                for (const int64_t n : {2, 3, 4, 5}) {
                    const Activations x(arithmetic, traits.format, type, n, columns, 0);
                    EXPECT_LT(worst_error(project(arithmetic, weights, x, n), weights, x.x, n),
                              1e-4)
                        << name << ", " << n << " rows";
                }
        }
}

struct Rows {
    moe_type type;
    bool to_int8 = false;
};
constexpr Rows kinds_of_rows[] = {{MOE_TYPE_F32}, {MOE_TYPE_BF16}, {MOE_TYPE_BF16, true}};

void check_company(Arithmetic arithmetic, const Weights& weights, Rows kind, Way way, int64_t n) {
    const int64_t rows = weights.matrix.rows, columns = weights.matrix.columns;
    const Activations x(arithmetic, weights.matrix, kind.type, n, 0, way, kind.to_int8);
    const auto together = project(arithmetic, weights, x, n);
    std::vector<float> apart(together.size(), -77.0f);
    const ThreadScratch scratch(columns);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t first = 0; first < rows; first += 29)
            mlp_gemv(arithmetic)
                .project(weights.matrix, x.rows.from(i), 1, first, std::min(first + 29, rows),
                         scratch.data(), apart.data() + i * rows, rows, nullptr, nullptr);
    ASSERT_EQ(std::memcmp(together.data(), apart.data(), together.size() * 4), 0)
        << weights.matrix.traits->name << ", " << n << " rows, " << type_name(kind.type)
        << (kind.to_int8 ? " to int8" : "");
}

// A row has the same bits alone and beside others, and features in any ranges. Gemv kernels meet
// 6, 4 + 3 and 5 + 5 + 5 rows where they take any number, else 4, 2 and 1.
void check_company(Arithmetic arithmetic, const FormatTraits& traits, Rows kind, Way way,
                   bool interleaved, int64_t columns = 512) {
    Weights weights(traits, rows_of(traits.format, 70), columns);
    if (interleaved) weights.interleave();
    for (const int64_t n : {6, 7, 15}) {
        if (way == Way::panels && n < 15) continue;
        ASSERT_NO_FATAL_FAILURE(check_company(arithmetic, weights, kind, way, n));
    }
}

TEST(Gemv, ResultsDoNotDependOnTheCompany) {
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats())
            for (const Rows& kind : kinds_of_rows)
                for (const Way way : ways)
                    for (const bool interleaved : layouts_of(traits))
                        ASSERT_NO_FATAL_FAILURE(
                            check_company(arithmetic, traits, kind, way, interleaved));
}

TEST(Gemv, LongRowsDoNotDependOnTheCompany) {
    for (const Arithmetic arithmetic : families())
        for (const char* name : long_formats)
            for (const Rows& kind : kinds_of_rows)
                ASSERT_NO_FATAL_FAILURE(check_company(arithmetic, test::format_named(name), kind,
                                                      Way::rows, false, 5120));
}

// Those of a latent were not rounded to the type of x.
TEST(Gemv, Float16WeightsAreRoundedForExactBfloat16RowsAlone) {
    if (!has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    const GemvFamily& family = *gemv_family(Arithmetic::gemv_avx512vnni);
    const auto form = [&](moe_type type, bool is_computed) {
        const RowUse use{type, false, true, true, is_computed, is_computed};
        return gemm_kernels(family, GemvFormat::f16, quantization_for(family, GemvFormat::f16, use))
            .rows;
    };
    EXPECT_EQ(form(MOE_TYPE_BF16, false), RowForm::bf16);
    EXPECT_EQ(form(MOE_TYPE_BF16, true), RowForm::floats);
    EXPECT_EQ(form(MOE_TYPE_F16, false), RowForm::floats);
    EXPECT_EQ(form(MOE_TYPE_F32, false), RowForm::floats);

    // Nor where other matrices of the layer take the same rows in bfloat16.
    const RowUse of_x{MOE_TYPE_BF16, false, true, true, false, true};
    const RowUse of_latent{MOE_TYPE_BF16, false, true, true, true, true};
    for (const Arithmetic arithmetic : {Arithmetic::gemv_avx512vnni, Arithmetic::gemv_amx}) {
        const GemvFamily* any = gemv_family(arithmetic);
        if (!any) continue;
        const Quantization rows = merged(quantization_for(*any, GemvFormat::bf16, of_x),
                                         quantization_for(*any, GemvFormat::f16, of_latent));
        EXPECT_TRUE(rows.has_bf16);
        EXPECT_EQ(gemm_kernels(*any, GemvFormat::f16, rows).rows, RowForm::floats);
    }
}

// Otherwise the tests of panels would be tests of rows.
TEST(Gemv, EveryFormatHasPanels) {
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats())
            for (const bool interleaved : layouts_of(traits))
                for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16}) {
                    if (is_of_arm(arithmetic)) continue;
                    const GemvFamily& family = *gemv_family(arithmetic);
                    const GemvFormat format = gemv_format_of(traits.format, interleaved);
                    const Quantization rows =
                        quantization_for(family, format, {type, false, true, has_avx512bf16()});
                    const GemmKernels gemm = gemm_kernels(family, format, rows);
                    EXPECT_TRUE(gemm.dequantize && gemm.multiply) << traits.name;
                    EXPECT_EQ(gemm.rows == RowForm::bf16, rows.has_bf16) << traits.name;
                    EXPECT_EQ(gemm.rows == RowForm::words, rows.has_words) << traits.name;
                }
}

TEST(Gemv, ZeroRowsGiveZerosAndWhatIsNotFiniteGivesNan) {
    constexpr int64_t columns = 256;
    const auto check = [](Arithmetic arithmetic, const FormatTraits& traits, Way way,
                          bool interleaved) {
        const int64_t rows = rows_of(traits.format, 9);
        Weights weights(traits, rows, columns);
        if (interleaved) weights.interleave();
        Activations x(arithmetic, weights.matrix, MOE_TYPE_F32, 1, 0, way);
        const auto run = [&](float value) {
            if (std::isinf(value))
                x.x[70] = value;
            else
                std::fill(x.x.begin(), x.x.end(), value);
            if (x.rows.quantization.parts)
                gemv_family(arithmetic)
                    ->quantize(x.x.data(), columns, x.rows.quantization, x.bytes.data());
            return project(arithmetic, weights, x, 1);
        };
        EXPECT_EQ(run(0.0f), std::vector<float>(static_cast<size_t>(rows))) << traits.name;
        for (const float value : run(INFINITY)) EXPECT_FALSE(std::isfinite(value)) << traits.name;
        for (const float value : run(NAN)) EXPECT_TRUE(std::isnan(value)) << traits.name;
    };
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats())
            for (const Way way : ways)
                for (const bool interleaved : layouts_of(traits))
                    check(arithmetic, traits, way, interleaved);
}

// Codes that mean NaN: of a scale, or of a weight.
TEST(Gemv, NanOfWeightsIsKept) {
    struct Case {
        const char* format;
        bool in_scales;
        uint16_t code;
        size_t at = 0;     // in the block
        size_t bytes = 1;  // of the code
    };
    constexpr int64_t rows = 3;
    constexpr uint16_t f16_nan = 0x7E00;
    const auto check = [](Arithmetic arithmetic, const Case& one, int64_t columns) {
        const FormatTraits& traits = test::format_named(one.format);
        test::Stored stored = Weights::make(traits, rows, columns);
        auto& bytes = one.in_scales ? stored.scales : stored.data;
        // At the begin of row 1.
        std::memcpy(bytes.data() + bytes.size() / 3 + one.at, &one.code, one.bytes);
        for (const Way way : ways)
            for (const bool interleaved : layouts_of(traits)) {
                Weights weights(stored);
                if (interleaved) weights.interleave();
                const Activations x(arithmetic, weights.matrix, MOE_TYPE_F32, 1, 0, way);
                const auto got = project(arithmetic, weights, x, 1);
                EXPECT_TRUE(std::isnan(got[1])) << one.format << columns;
                EXPECT_TRUE(std::isfinite(got[0]) && std::isfinite(got[2]))
                    << one.format << columns;
            }
    };
    // Kernels that read what is left of a row of 288 columns together with the next row.
    for (const Arithmetic arithmetic : families())
        for (const int64_t columns : {512, 288})
            for (const Case& one :
                 {Case{"nvfp4", true, 0x7F}, Case{"nvfp4", true, 0xFF}, Case{"mxfp4", true, 0xFF},
                  Case{"fp8_128x128", false, 0x7F}, Case{"fp8_128x128", false, 0xFF},
                  Case{"mxfp4_gguf", false, 0xFF}, Case{"q4_0", false, f16_nan, 0, 2},
                  Case{"q8_0", false, f16_nan, 0, 2}, Case{"q4_1", false, f16_nan, 2, 2},
                  Case{"q5_1", false, f16_nan, 2, 2}})
                check(arithmetic, one, columns);
}

// A row of each code of E4M3 with activations that are zero but for one: what comes out is what the
// code means, the subnormal numbers and NaN too.
TEST(Gemv, EveryCodeOfFp8IsExact) {
    constexpr int64_t rows = 256, columns = 288;
    for (const char* name : {"fp8_per_tensor", "fp8_per_32_columns"}) {
        const auto grids = test::one_row_grids();
        const auto traits = std::find_if(grids.begin(), grids.end(), [&](const FormatTraits& one) {
            return !std::strcmp(one.name, name);
        });
        ASSERT_NE(traits, grids.end());
        test::Stored stored = Weights::make(*traits, rows, columns);
        for (size_t at = 0; at < stored.data.size(); ++at)
            stored.data[at] = static_cast<std::byte>(at / columns);
        const Weights weights(stored);
        for (const Arithmetic arithmetic : families())
            for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16})
                for (const int64_t column : {0, 37, 255, 287}) {
                    Activations x(arithmetic, traits->format, type, 1, columns, 0);
                    std::fill(x.x.begin(), x.x.end(), 0.0f);
                    x.x[static_cast<size_t>(column)] = 1.0f;
                    x.quantize(arithmetic, 1, columns);
                    const auto got = project(arithmetic, weights, x, 1);
                    for (size_t row = 0; row < rows; ++row) {
                        const float right =
                            weights.values[row * columns + static_cast<size_t>(column)];
                        EXPECT_TRUE(got[row] == right ||
                                    (std::isnan(got[row]) && std::isnan(right)))
                            << name << " code " << row << ": " << got[row] << ", not " << right;
                    }
                }
    }
}

// Rows that are not rounded to bfloat16, as a latent, are read in pairs of it.
TEST(Gemv, PairsOfBfloat16AreNearlyFloat32) {
    if (!has_avx512bf16()) GTEST_SKIP() << "no AVX-512 with BF16";
    constexpr Arithmetic arithmetic = Arithmetic::gemv_avx512vnni;
    constexpr int64_t rows = 37, columns = 720, n = 7;
    for (const char* name : {"bf16", "fp8_128x128"}) {
        const FormatTraits& traits = test::format_named(name);
        const int64_t width = traits.format.group_columns == 128 ? 640 : columns;
        const Weights weights(traits, rows, width);
        Activations x(arithmetic, traits.format, MOE_TYPE_F32, n, width, 100);
        const GemvFamily& family = *gemv_family(arithmetic);
        const GemvFormat format = gemv_format_of(traits.format);
        x.rows.quantization =
            quantization_for(family, format, {MOE_TYPE_BF16, false, false, true, true});
        EXPECT_TRUE(x.rows.quantization.has_bf16_pair);
        x.quantize(arithmetic, n, width);
        const double error = moe_test::worst_row_error(project(arithmetic, weights, x, n),
                                                       exact(weights, x.x, n), rows);
        EXPECT_LT(error, 1e-5) << name;
        EXPECT_GT(error, 1e-7) << name << ": float32 was read";
    }
}

// An infinite activation gives infinities of the sign of its weight: what a pair of bfloat16 rounds
// off of it is zero, not the difference of infinities.
TEST(Gemv, AnInfiniteFloat16GivesInfinities) {
    constexpr int64_t rows = 37, columns = 256, column = 70;
    for (const char* name : {"bf16", "fp8_128x128"}) {
        const FormatTraits& traits = test::format_named(name);
        const Weights weights(traits, rows, columns);
        for (const Arithmetic arithmetic : families()) {
            Activations x(arithmetic, traits.format, MOE_TYPE_F16, 1, columns, 0);
            x.x[column] = std::numeric_limits<float>::infinity();
            x.quantize(arithmetic, 1, columns);
            const auto got = project(arithmetic, weights, x, 1);
            for (size_t row = 0; row < rows; ++row) {
                const float weight = weights.values[row * columns + column];
                if (weight == 0) continue;
                EXPECT_EQ(got[row], weight * x.x[column]) << name << ", weight " << weight;
            }
        }
    }
}

// Whether the kernels of a family read a matrix where it lies, with activations of either kind.
bool is_read(Arithmetic arithmetic, const Matrix& matrix) {
    const GemvFormat format = gemv_format_of(matrix);
    GemvWeights weights;
    return reads(*gemv_family(arithmetic), format) &&
           describe_gemv_weights(matrix, format, weights);
}

TEST(Gemv, EveryKnownFormatHasAKernel) {
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats())
            for (const bool interleaved : layouts_of(traits))
                EXPECT_TRUE(
                    is_of_arm(arithmetic) ||
                    reads(*gemv_family(arithmetic), gemv_format_of(traits.format, interleaved)))
                    << traits.name << " interleaved " << interleaved;
}

TEST(Gemv, FormatsWithoutAKernelAreDecoded) {
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : unread_formats()) {
            EXPECT_EQ(gemv_format_of(traits.format), GemvFormat::none) << traits.name;
            const Weights weights(traits, 40, 288);
            for (const int64_t n : {1, 3, 135}) {  // of which a tile has 128
                const Activations x(arithmetic, traits.format, MOE_TYPE_BF16, n, 288, 0);
                EXPECT_LT(worst_error(project(arithmetic, weights, x, n), weights, x.x, n), 1e-5)
                    << traits.name << " rows " << n;
            }
        }
}

void check_part(Arithmetic arithmetic, const FormatTraits& traits, const Weights& weights,
                const Matrix& part) {
    const std::vector<float> values = test::decode_all(part, *part.traits);
    for (const Bound& bound : bounds())
        for (const Way way : ways) {
            const Activations x(arithmetic, traits.format, bound.type, 3, part.columns,
                                bound.outlier, way, bound.to_int8);
            const double error = bound_of_error(arithmetic, traits.format, x, bound);
            ASSERT_LT(worst_error(project(arithmetic, part, x, 3), part, values, x.x, 3), error)
                << traits.name << " rows " << part.row_begin << " + " << part.rows << " columns "
                << part.columns << " of " << weights.matrix.columns;
        }
}

// Slices of rows and columns, which may begin inside a group of scales.
TEST(Gemv, SlicesAreReadWhereTheyLie) {
    struct Range {
        int64_t row, rows, column, columns;
    };
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats()) {
            const bool is_large = traits.block_columns == 256;
            const Weights weights(traits, 96, is_large ? 1024 : 576);
            for (const Range range : {Range{8, 24, 0, 256}, Range{64, 32, 32, 352},
                                      Range{0, 96, 96, 448}, Range{40, 56, 512, 32}}) {
                const int64_t step = is_large ? 256 : traits.block_columns == 64 ? 64 : 1;
                const int64_t column = range.column / step * step;
                const int64_t columns = (range.columns + step - 1) / step * step;
                if (column + columns > weights.matrix.columns) continue;
                const Matrix part = part_of(weights.matrix, range.row, range.rows, column, columns);
                EXPECT_TRUE(is_of_arm(arithmetic) || is_read(arithmetic, part))
                    << traits.name << " column " << column;
                ASSERT_NO_FATAL_FAILURE(check_part(arithmetic, traits, weights, part));
            }
        }
}

// Parts that begin amid 32 columns of a group or amid eight rows are decoded, and right.
TEST(Gemv, SlicesAmidAStepAreDecoded) {
    for (const Arithmetic arithmetic : families())
        for (const FormatTraits& traits : known_formats()) {
            if (!traits.unsliceable_bytes || traits.format.group_columns == -1) continue;
            const Weights weights(traits, 96, 288);
            const Matrix part = part_of(weights.matrix, 4, 80, 16, 256);
            EXPECT_FALSE(is_read(arithmetic, part)) << traits.name;
            ASSERT_NO_FATAL_FAILURE(check_part(arithmetic, traits, weights, part));
        }
}

// Values whose rows lie beside each other; where rows do not touch, they are decoded.
TEST(Gemv, TransposedMatricesAreRead) {
    constexpr int64_t rows = 83, columns = 80;
    for (const Arithmetic arithmetic : families())
        for (const char* name : {"f32", "f16", "bf16"})
            for (const int64_t apart : {1, 2}) {
                const FormatTraits& traits = test::format_named(name);
                Weights weights(traits, rows, columns);
                const auto size = static_cast<size_t>(traits.block_bytes);
                GuardedBytes turned(static_cast<size_t>(rows * columns * apart) * size);
                const size_t step = static_cast<size_t>(apart) * size;
                for (size_t r = 0; r < rows; ++r)
                    for (size_t k = 0; k < columns; ++k)
                        std::memcpy(turned.data() + k * (rows * step) + r * step,
                                    weights.matrix.data + (r * columns + k) * size, size);
                weights.matrix.data = turned.data();
                weights.matrix.row_stride = static_cast<int64_t>(step);
                weights.matrix.column_stride = static_cast<int64_t>(rows * step);
                EXPECT_EQ(is_read(arithmetic, weights.matrix),
                          apart == 1 && !is_of_arm(arithmetic));
                const Activations x(arithmetic, traits.format, MOE_TYPE_F32, 7, columns, 0);
                EXPECT_LT(worst_error(project(arithmetic, weights, x, 7), weights, x.x, 7), 1e-5)
                    << name;
            }
}

// Codes of all bits, the lowest ones too: of them a signed byte has no opposite.
TEST(Gemv, TheLowestCodesAreRight) {
    constexpr int64_t rows = 5, columns = 288;
    for (const Arithmetic arithmetic : families())
        for (const char* name : {"q8_0", "int8_per_64_columns"}) {
            const FormatTraits& traits = test::format_named(name);
            test::Stored stored = Weights::make(traits, rows, columns);
            const auto step = static_cast<size_t>(traits.block_bytes);
            for (size_t at = 0; at < stored.data.size(); at += step)
                std::fill_n(stored.data.begin() + static_cast<int64_t>(at) + (step > 1 ? 2 : 0),
                            step > 1 ? 32 : 1, std::byte{0x80});
            const Weights weights(stored);
            for (const Way way : ways) {
                const Activations x(arithmetic, traits.format, MOE_TYPE_BF16, 2, columns, 100, way);
                EXPECT_LT(worst_error(project(arithmetic, weights, x, 2), weights, x.x, 2),
                          rounds_values(arithmetic, traits.format, x.rows)
                              ? bound_of_rounded_values(100)
                              : 3e-4)
                    << name;
            }
        }
}

}  // namespace
}  // namespace moe::cpu
