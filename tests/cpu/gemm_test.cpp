// The gemm kernels of AMX beside those of AVX-512, which make the same panels, and what is special
// of the panels of AVX2. All of them are held to their bounds in gemv_test.cpp.
#include <gtest/gtest.h>

#include <array>

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/tile_permission.hpp"
#include "tests/cpu/gemv_cases.hpp"

namespace moe::cpu {
namespace {

constexpr Arithmetic amx = Arithmetic::gemv_amx, avx512 = Arithmetic::gemv_avx512vnni;

GemmKernels kernels_of(Arithmetic arithmetic, const FormatTraits& traits, const Activations& x) {
    return gemm_kernels(*gemv_family(arithmetic), gemv_format_of(traits.format),
                        x.rows.quantization);
}

// Rows of one and several tiles, in full and in half of one; long rows take long.
std::vector<int64_t> row_counts(int64_t columns) {
    if (columns > 512) return {24};
    return {1, 9, 24, 40};
}

// The error of all sums beside weights that are rounded here. A product and an offset in one step
// round few of them the other way.
double bound_of_rounding(const moe_format& format) {
    return format.type == MOE_TYPE_BF16 ? 2e-6 : 6e-4;
}

void check_panels(const FormatTraits& traits, int64_t columns, const Bound& bound) {
    const int64_t rows = rows_of(traits.format, 37);
    const Weights weights(traits, rows, columns);
    std::vector<float> rounded = weights.values;
    for (float& value : rounded) value = round_to(value, MOE_TYPE_BF16);
    for (const int64_t n : row_counts(columns)) {
        Activations x(amx, traits.format, bound.type, n, columns, bound.outlier, Way::panels,
                      bound.to_int8);
        const auto got = project(amx, weights, x, n);
        const auto has_bits_of = [&](const std::vector<float>& other) {
            return !std::memcmp(got.data(), other.data(), got.size() * sizeof(float));
        };
        const std::string name = std::string(traits.name) + " columns " + std::to_string(columns) +
                                 " rows " + std::to_string(n) + " " + type_name(bound.type);
        if (!kernels_of(amx, traits, x).multiply_tiles) {
            ASSERT_TRUE(has_bits_of(project(avx512, weights, x, n))) << name;
            continue;
        }
        std::vector<float> rows_of_x = x.x;
        for (float& value : rows_of_x) value = round_to(value, MOE_TYPE_BF16);
        ASSERT_LT(moe_test::worst_row_error(got, exact(weights.matrix, rounded, rows_of_x, n),
                                            got.size()),
                  bound_of_rounding(traits.format))
            << name;
        x.lay_tiles(n, columns);
        ASSERT_TRUE(has_bits_of(project(amx, weights, x, n))) << name;
    }
}

TEST(GemmAmx, IntegersHaveTheBitsOfAvx512AndBfloat16IsThatOfRoundedWeights) {
    if (!has_amx() || !may_use_tiles()) GTEST_SKIP() << "no AMX";
    for (const FormatTraits& traits : known_formats()) {
        if (traits.format.pre_quant_scale || traits.format.nested_scales) continue;  // no panels
        for (const int64_t columns : columns_of(traits))
            for (const Bound& bound : bounds()) {
                const Activations x(amx, traits.format, bound.type, 1, columns, 0, Way::panels,
                                    bound.to_int8);
                if (!kernels_of(amx, traits, x).enter) continue;
                ASSERT_NO_FATAL_FAILURE(check_panels(traits, columns, bound));
            }
    }
}

#if defined(__x86_64__) && !defined(MOE_EMULATE_AMX)
// ggml gives its threads tiles once, and calls libmoe on them.
TEST(GemmAmx, TilesOfTheCallerKeepTheirShapes) {
    if (!has_amx() || !may_use_tiles()) GTEST_SKIP() << "no AMX";
    using Shapes = std::array<uint8_t, 64>;
    alignas(64) Shapes none{}, shapes{1};
    shapes[16 + 2 * 5] = 28;  // bytes of a row of tile 5, and its rows
    shapes[48 + 5] = 7;
    const FormatTraits& traits = test::format_named("q4_k");
    const Weights weights(traits, 32, 512);
    for (const moe_type type : {MOE_TYPE_BF16, MOE_TYPE_F16})
        for (const Shapes& caller : {shapes, none}) {
            const Activations x(amx, traits.format, type, 24, 512, 0, Way::panels);
            ASSERT_TRUE(kernels_of(amx, traits, x).enter);
            alignas(64) Shapes before = caller, after{1};
            asm volatile("ldtilecfg %0" : : "m"(before) : "memory");
            project(amx, weights, x, 24);
            asm volatile("sttilecfg %0\n\ttilerelease" : "=m"(after) : : "memory");
            EXPECT_EQ(after, caller) << type_name(type);
        }
}
#endif

// Float32, and codes of eight bits that may have zero points.
bool keeps_values(const moe_format& format) {
    const bool has_zero_points =
        format.type == MOE_TYPE_INT && gemv_format_of(format) != GemvFormat::int8;
    return format.type == MOE_TYPE_F32 || (has_zero_points && format.bits == 8);
}

// Otherwise AVX-512 would be compared with itself.
TEST(GemmAmx, TilesMultiplyRowsInBfloat16AndIntegersUnderScalesOf32Columns) {
    if (!has_amx() || !may_use_tiles()) GTEST_SKIP() << "no AMX";
    for (const FormatTraits& traits : known_formats())
        for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
            const Activations x(amx, traits.format, type, 1, 256, 0, Way::panels);
            const GemmKernels tiles = kernels_of(amx, traits, x);
            const GemmKernels vectors = kernels_of(avx512, traits, x);
            const bool has_bf16 = type == MOE_TYPE_BF16 && !keeps_values(traits.format);
            const bool has_tiles =
                has_bf16 || (vectors.rows == RowForm::integers && vectors.scale_columns == 32);
            EXPECT_EQ(x.rows.quantization.has_bf16, has_bf16) << traits.name;
            EXPECT_EQ(tiles.multiply != vectors.multiply, has_tiles) << traits.name;
            EXPECT_EQ(tiles.enter != nullptr, has_tiles) << traits.name;
            EXPECT_EQ(tiles.multiply_tiles != nullptr, has_bf16) << traits.name;
            EXPECT_EQ(tiles.dequantize == vectors.dequantize, vectors.rows != RowForm::bf16)
                << traits.name;
        }
}

// Codes of eight bits take integers in panels, and float32 rows in the gemv. With act-order all are
// values.
TEST(GemmAvx2, CodesAreMultipliedAsWordsAndValuesAsFloat32) {
    if (!has_avx2()) GTEST_SKIP() << "no AVX2";
    for (const FormatTraits& traits : known_formats()) {
        const moe_type type = traits.format.type;
        const bool has_codes = type == MOE_TYPE_GGUF || type == MOE_TYPE_E2M1 ||
                               (type == MOE_TYPE_INT && !traits.format.act_order) ||
                               type == MOE_TYPE_I8;
        const Activations x(Arithmetic::gemv_avx2, traits.format, MOE_TYPE_BF16, 1, 256, 0,
                            Way::panels);
        EXPECT_EQ(x.rows.quantization.has_words, has_codes) << traits.name;
        EXPECT_EQ(kernels_of(Arithmetic::gemv_avx2, traits, x).rows,
                  has_codes ? RowForm::words : RowForm::floats)
            << traits.name;
    }
}

// The gemv adds four products of codes of six bits and less in 16 bits, with both parts of an
// activation at the ends of their range.
TEST(GemmAvx2, TheLargestWordsOfTheGemvFit) {
    if (!has_avx2()) GTEST_SKIP() << "no AVX2";
    constexpr int64_t rows = 8, columns = 512;
    struct Codes {
        const char* format;
        size_t first, last;  // bytes of a block; the others are scales
    };
    for (const Codes& codes : {Codes{"q6_k", 0, 192}, Codes{"q3_k", 0, 96}, Codes{"q4_k", 16, 144},
                               Codes{"q5_1", 4, 24}, Codes{"mxfp4_gguf", 1, 17}})
        for (const std::byte code : {std::byte{0x11}, std::byte{0x77}, std::byte{0xFF}}) {
            const FormatTraits& traits = test::format_named(codes.format);
            Weights weights(traits, rows, columns);
            const MatrixBytes bytes = matrix_bytes(traits, traits.format, rows, columns);
            std::vector<std::byte> data(weights.matrix.data, weights.matrix.data + bytes.data);
            for (size_t at = 0; at < data.size(); ++at) {
                const size_t in_block = at % static_cast<size_t>(traits.block_bytes);
                if (in_block >= codes.first && in_block < codes.last) data[at] = code;
            }
            weights.matrix.data = data.data();
            weights.values = test::decode_all(weights.matrix, traits);
            Activations x(Arithmetic::gemv_avx2, traits.format, MOE_TYPE_F16, 2, columns, 0,
                          Way::rows);
            ASSERT_EQ(x.rows.quantization.parts, 2) << codes.format;
            // 32384 of 32512 has the parts 127 and -128, 32383 has 126 and 127.
            for (size_t i = 0; i < x.x.size(); ++i)
                x.x[i] = i % 32 == 0 ? 1.0f : (i / 64 % 2 ? 32384.0f : -32383.0f) / 32512.0f;
            x.quantize(Arithmetic::gemv_avx2, 2, columns);
            EXPECT_LT(moe_test::worst_row_error(project(Arithmetic::gemv_avx2, weights, x, 2),
                                                exact(weights, x.x, 2), rows),
                      1e-4)
                << codes.format << " " << static_cast<int>(code);
        }
}

// All codes at an end of their range under the largest activations: sums of 32 columns are exact.
TEST(GemmAvx2, TheLargestSumsFit) {
    if (!has_avx2()) GTEST_SKIP() << "no AVX2";
    constexpr int64_t rows = 32, columns = 512, n = 7;
    std::vector<FormatTraits> formats = {test::format_named("q8_0"), test::format_named("q5_0"),
                                         test::format_named("iq4_nl"), test::format_named("mxfp4")};
    for (const auto packing : {MOE_PACKING_BIT_STREAM, MOE_PACKING_GPTQ})
        formats.push_back(
            traits_of(test::int_format(packing, 8, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED)));
    for (const FormatTraits& traits : formats)
        for (const std::byte code : {std::byte{0x00}, std::byte{0x80}, std::byte{0xFF}})
            for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16}) {
                Weights weights(traits, rows, columns);
                const MatrixBytes bytes =
                    matrix_bytes(*weights.matrix.traits, traits.format, rows, columns);
                std::vector<std::byte> data(weights.matrix.data, weights.matrix.data + bytes.data);
                // Scales of a block stay.
                for (size_t at = 0; at < data.size(); ++at)
                    if (traits.format.type != MOE_TYPE_GGUF ||
                        at % static_cast<size_t>(traits.block_bytes) >= 2)
                        data[at] = code;
                weights.matrix.data = data.data();
                weights.values = test::decode_all(weights.matrix, *weights.matrix.traits);
                Activations x(Arithmetic::gemv_avx2, traits.format, type, n, columns, 0,
                              Way::panels);
                for (size_t i = 0; i < x.x.size(); ++i) x.x[i] = i % 64 < 32 ? 1.0f : -0.5f;
                for (int64_t i = 0; i < n; ++i)
                    gemv_family(Arithmetic::gemv_avx2)
                        ->quantize(x.x.data() + i * columns, columns, x.rows.quantization,
                                   x.bytes.data() + i * x.rows.quantized_stride);
                EXPECT_LT(moe_test::worst_row_error(project(Arithmetic::gemv_avx2, weights, x, n),
                                                    exact(weights, x.x, n), rows),
                          3e-6)
                    << traits.name << " " << static_cast<int>(code) << " " << type_name(type);
            }
}

}  // namespace
}  // namespace moe::cpu
