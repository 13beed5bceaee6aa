// The loops and kernels of the CPU against naive double: dot products of every arithmetic,
// dispatch, combine, the MLP.
#include <gtest/gtest.h>

#include <numeric>

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/kernels.hpp"
#include "libmoe/cpu/ref/combine.hpp"
#include "libmoe/cpu/ref/dispatch.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/cpu/simd.hpp"
#include "tests/support/matrices.hpp"

namespace moe::cpu {
namespace {

using test::gaussian;
using test::Random;
using test::TensorStack;

struct Named {
    const char* name;
    Arithmetic arithmetic;
};

std::vector<Named> arithmetics() {
    std::vector<Named> all{{"ref", Arithmetic::ref_f32}};
    if (has_avx2()) all.push_back({"avx2", Arithmetic::avx2});
    if (has_avx512()) all.push_back({"avx512", Arithmetic::avx512});
    return all;
}

template <class Real>
void reference_rows(WeightRow weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                    Real* out) {
    dot_rows_ref(reinterpret_cast<const float*>(weight.data), columns, rows, n, out);
}

// The dot product of an arithmetic. The vectorised ones read plain weights where they lie.
template <class Real>
struct Dot {
    DotRows<Real> rows;
    bool reads_dense;

    WeightRow fetch(const Matrix& matrix, int64_t row, float* scratch) const {
        if (reads_dense) return fetch_row(matrix, row, scratch);
        decode_row(matrix, row, scratch);
        return {reinterpret_cast<const std::byte*>(scratch), MOE_TYPE_F32};
    }
};

template <class Real>
Dot<Real> dot_of(Arithmetic) {
    return {reference_rows<Real>, false};
}

template <>
Dot<float> dot_of(Arithmetic arithmetic) {
#if defined(MOE_X86)
    if (arithmetic == Arithmetic::avx512) return {dot_rows_avx512, true};
    if (arithmetic == Arithmetic::avx2) return {dot_rows_avx2, true};
#endif
    (void)arithmetic;
    return {reference_rows<float>, false};
}

// One weight row at an address that nothing is aligned to, ending where its memory ends.
class UnalignedRow {
  public:
    UnalignedRow(const FormatTraits& traits, const std::vector<float>& values) {
        const auto columns = static_cast<int64_t>(values.size());
        test::Stored stored(traits, 1, columns);
        stored.encode(values.data());
        values_ = test::decode_all(stored);
        bytes_.resize(stored.data.size() + 1);
        std::copy(stored.data.begin(), stored.data.end(), bytes_.begin() + 1);
        matrix_ = stored.view();
        matrix_.traits = &traits;
        matrix_.data = bytes_.data() + 1;
    }
    const std::vector<float>& values() const { return values_; }
    const Matrix& matrix() const { return matrix_; }

  private:
    std::vector<float> values_;
    std::vector<std::byte> bytes_;
    Matrix matrix_;
};

template <class Real>
double exact_dot(const std::vector<float>& weight, const Real* x, double* magnitude) {
    double sum = 0;
    *magnitude = 0;
    for (size_t k = 0; k < weight.size(); ++k) {
        const double product = static_cast<double>(weight[k]) * static_cast<double>(x[k]);
        sum += product;
        *magnitude += std::fabs(product);
    }
    return sum;
}

template <class Real>
void check_dot(const Named& named, const char* format, int64_t columns, double tolerance) {
    const UnalignedRow row(test::format_named(format),
                           gaussian(columns, static_cast<uint64_t>(columns)));
    const Dot<Real> dot = dot_of<Real>(named.arithmetic);
    std::vector<float> scratch(static_cast<size_t>(columns));
    const WeightRow weight = dot.fetch(row.matrix(), 0, scratch.data());
    EXPECT_EQ(weight.data == row.matrix().data, dot.reads_dense);
    constexpr int64_t n_inputs = 13;
    const int64_t stride = columns + 3;
    const auto source = gaussian(n_inputs * stride, 5);
    const std::vector<Real> input(source.begin(), source.end());
    const std::vector<int32_t> index{12, 0, 3, 3, 7, 1, 11, 2, 5, 0, 9, 4, 8};
    for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 13})
        for (const bool indexed : {false, true}) {
            const InputRows<Real> rows{input.data(), stride, indexed ? index.data() : nullptr};
            std::vector<Real> out(static_cast<size_t>(n) + 1, Real{-77});
            dot.rows(weight, columns, rows, n, out.data());
            for (int64_t i = 0; i < n; ++i) {
                double magnitude;
                const double wanted = exact_dot(row.values(), rows.row(i), &magnitude);
                ASSERT_NEAR(static_cast<double>(out[static_cast<size_t>(i)]), wanted,
                            tolerance * magnitude)
                    << named.name << " " << format << " columns " << columns << " row " << i
                    << " of " << n;
            }
            ASSERT_EQ(out.back(), Real{-77}) << "wrote past the rows";
        }
}

TEST(Dot, EveryArithmeticAgreesWithDouble) {
    for (const Named& named : arithmetics())
        for (const char* format : {"f32", "f16", "bf16"})
            for (int64_t columns = 16; columns <= 4096; columns += columns < 512 ? 16 : 112)
                ASSERT_NO_FATAL_FAILURE(check_dot<float>(named, format, columns, 2e-6));
}

TEST(Dot, EveryStepOfColumns) {
    for (const Named& named : arithmetics())
        for (int64_t columns = 16; columns <= 4096; columns += 16)
            ASSERT_NO_FATAL_FAILURE(check_dot<float>(named, "bf16", columns, 2e-6));
}

TEST(Dot, Float64IsExactToItsType) {
    for (const char* format : {"f32", "f16", "bf16"})
        for (const int64_t columns : {16, 48, 2064})
            ASSERT_NO_FATAL_FAILURE(
                check_dot<double>({"f64", Arithmetic::ref_f64}, format, columns, 1e-15));
}

// Rows alone or beside others: the same bits.
TEST(Dot, ARowsResultDoesNotDependOnTheOthers) {
    constexpr int64_t columns = 208;
    const UnalignedRow row(test::format_named("bf16"), gaussian(columns, 3));
    const auto input = gaussian(9 * columns, 4);
    for (const Named& named : arithmetics()) {
        const Dot<float> dot = dot_of<float>(named.arithmetic);
        std::vector<float> scratch(columns), together(9), alone(9);
        const WeightRow weight = dot.fetch(row.matrix(), 0, scratch.data());
        const InputRows<float> rows{input.data(), columns, nullptr};
        dot.rows(weight, columns, rows, 9, together.data());
        for (int64_t i = 0; i < 9; ++i)
            dot.rows(weight, columns, rows.from(i), 1, &alone[static_cast<size_t>(i)]);
        EXPECT_EQ(together, alone) << named.name;
    }
}

TEST(Dot, TransposedAndPackedRowsAreDecoded) {
    for (const char* format : {"bf16", "nvfp4"}) {
        const TensorStack stack(test::format_named(format), 0, 8, 64,
                                {.transposed = std::string(format) == "bf16"});
        Matrix matrix;
        matrix.format = stack.format();
        matrix.traits = &test::format_named(format);
        matrix.data = static_cast<const std::byte*>(stack.tensor.data);
        matrix.scales = static_cast<const std::byte*>(stack.tensor.scales);
        matrix.rows = 8;
        matrix.columns = 64;
        const MatrixBytes bytes = matrix_bytes(*matrix.traits, 8, 64);
        const bool turned = stack.tensor.orientation == MOE_ORIENTATION_IN_OUT;
        matrix.row_stride = turned ? 2 : static_cast<int64_t>(bytes.row_stride);
        matrix.column_stride = turned ? 16 : 0;
        matrix.scale_row_stride = static_cast<int64_t>(bytes.scale_row_stride);
        if (stack.tensor.global_scale) matrix.global_scale = *stack.tensor.global_scale;
        std::vector<float> scratch(64);
        const WeightRow row = fetch_row(matrix, 5, scratch.data());
        EXPECT_EQ(row.type, MOE_TYPE_F32) << format;
        for (int64_t k = 0; k < 64; ++k)
            EXPECT_EQ(scratch[static_cast<size_t>(k)], stack.at(0, 5, k)) << format;
    }
}

struct Sorted {
    std::vector<int64_t> offsets, counts;
    std::vector<int32_t> rows;

    bool operator==(const Sorted&) const = default;
};

constexpr int32_t n_experts = 7, n_all = 9;  // 7 and 8 are identity experts

int32_t local_of(const Membership& membership, int32_t id) {
    if (id < 0 || id >= n_experts) return -1;
    return membership.local_of ? membership.local_of[id] : id;
}

Sorted naive_dispatch(const std::vector<int32_t>& ids, const Membership& membership,
                      int32_t block) {
    Sorted out;
    for (int32_t e = 0; e < membership.n_local; ++e) {
        out.offsets.push_back(static_cast<int64_t>(out.rows.size()));
        for (size_t slot = 0; slot < ids.size(); ++slot)
            if (local_of(membership, ids[slot]) == e)
                out.rows.push_back(static_cast<int32_t>(slot));
        out.counts.push_back(static_cast<int64_t>(out.rows.size()) - out.offsets.back());
        while (out.rows.size() % static_cast<size_t>(block) != 0) out.rows.push_back(-1);
    }
    out.offsets.push_back(static_cast<int64_t>(out.rows.size()));
    return out;
}

// Ids of n_tokens tokens with two numbers between the tokens that are not theirs.
void check_dispatch(const std::vector<int32_t>& ids, int32_t top_k, const Membership& membership,
                    int32_t block) {
    const auto n_tokens = static_cast<int64_t>(ids.size()) / top_k;
    std::vector<int32_t> strided;
    for (size_t slot = 0; slot < ids.size(); ++slot) {
        strided.push_back(ids[slot]);
        if ((slot + 1) % static_cast<size_t>(top_k) == 0) strided.insert(strided.end(), {0, 99});
    }
    const IdRows rows{strided.data(), MOE_TYPE_I32, top_k + 2};
    const Sorted wanted = naive_dispatch(ids, membership, block);
    Sorted got{std::vector<int64_t>(static_cast<size_t>(membership.n_local) + 1, -9),
               std::vector<int64_t>(static_cast<size_t>(membership.n_local), -9),
               std::vector<int32_t>(wanted.rows.size() + 1, -9)};
    const auto n_bad =
        std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id < -1 || id >= n_all; });
    EXPECT_EQ(dispatch(rows, n_tokens, top_k, n_all, membership, block,
                       {got.offsets.data(), got.counts.data(), got.rows.data()}),
              n_bad);
    EXPECT_EQ(got.rows.back(), -9) << "wrote past its rows";
    got.rows.pop_back();
    EXPECT_EQ(got, wanted) << ids.size() << " slots in blocks of " << block;
    std::vector<int64_t> offsets(got.offsets.size(), -9);
    dispatch(rows, n_tokens, top_k, n_all, membership, block, {offsets.data(), nullptr, nullptr});
    EXPECT_EQ(offsets, wanted.offsets) << "offsets alone";
}

TEST(Dispatch, IsTheNaiveSort) {
    Random random(17);
    const std::vector<int32_t> odd{-1, 0, -1, 1, -1, 2, -1}, turned{3, -1, 2, 0, -1, 1, -1};
    const Membership memberships[] = {
        {nullptr, n_experts, 7}, {odd.data(), n_experts, 3}, {turned.data(), n_experts, 4}};
    for (const Membership& membership : memberships)
        for (const int32_t block : {1, 2, 3, 8, 64})
            for (const int32_t top_k : {1, 5})
                for (const int64_t n_slots : {0, 5, 40, 300}) {
                    std::vector<int32_t> ids(static_cast<size_t>(n_slots));
                    // -2 and 9 are out of range, -1 skips.
                    for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % 12) - 2;
                    check_dispatch(ids, top_k, membership, block);
                }
}

TEST(Dispatch, ReadsIdsOfBothWidthsWithStrides) {
    const std::vector<int64_t> wide{0, 4, 99, 3, -1, 99, INT64_MAX, 1, 99, -2, int64_t{1} << 32,
                                    99};
    const IdRows rows{wide.data(), MOE_TYPE_I64, 3};
    const std::vector<int32_t> wanted{0, 4, 3, -1, -1, 1, -1, -1};
    const int64_t n_bad[] = {0, 0, 1, 2};
    for (int64_t t = 0; t < 4; ++t) {
        int32_t out[2] = {-9, -9};
        EXPECT_EQ(rows.read(t, 2, 5, out), n_bad[t]);
        EXPECT_EQ(out[0], wanted[static_cast<size_t>(2 * t)]);
        EXPECT_EQ(out[1], wanted[static_cast<size_t>(2 * t + 1)]);
    }
    const std::vector<int32_t> narrow{0, 4, 99, 5, -1, 99};
    int32_t out[2] = {-9, -9};
    EXPECT_EQ((IdRows{narrow.data(), MOE_TYPE_I32, 3}.read(1, 2, 5, out)), 1);
    EXPECT_EQ(out[0], -1);
    EXPECT_EQ(out[1], -1);
}

Layer layer_for_combine(bool on_input) {
    moe_layer_desc desc = test::plain_layer(32, 16, 4, 4);
    desc.n_identity_experts = 2;
    desc.weight_on = on_input ? MOE_WEIGHT_ON_INPUT : MOE_WEIGHT_ON_OUTPUT;
    return make_layer(desc);
}

// In float32 the order of the sum shows: 1e8 + 1 - 1e8 is 0 in slot order.
TEST(Combine, AddsSlotBySlot) {
    const Layer layer = layer_for_combine(false);
    std::vector<float> rows[4];
    const float* pointers[4];
    const float values[4] = {1e8f, 1.0f, -1e8f, 0.25f};
    for (int j = 0; j < 4; ++j) {
        rows[j].assign(32, values[j]);
        pointers[j] = rows[j].data();
    }
    const float weights[4] = {1, 1, 1, 2};
    std::vector<float> out(32, -9.0f);
    combine_token(layer, pointers, weights, 32, out.data());
    EXPECT_EQ(out, std::vector<float>(32, 0.5f));
    std::swap(pointers[1], pointers[2]);
    combine_token(layer, pointers, weights, 32, out.data());
    EXPECT_EQ(out, std::vector<float>(32, 1.5f));
    pointers[3] = nullptr;
    combine_token(layer, pointers, weights, 32, out.data());
    EXPECT_EQ(out, std::vector<float>(32, 1.0f));
    std::fill(std::begin(pointers), std::end(pointers), nullptr);
    combine_token(layer, pointers, weights, 32, out.data());
    EXPECT_EQ(out, std::vector<float>(32, 0.0f)) << "no row gives zero";
}

TEST(Combine, WeightsOfTheInputAreNotAppliedAgain) {
    const Layer layer = layer_for_combine(true);
    const std::vector<double> row(32, 3.0);
    const double* pointers[4] = {row.data(), nullptr, row.data(), nullptr};
    const float weights[4] = {0.1f, 7, 0.2f, 7};
    std::vector<double> out(32);
    combine_token(layer, pointers, weights, 32, out.data());
    EXPECT_EQ(out, std::vector<double>(32, 6.0));
}

TEST(Combine, IdentityExpertsAndBiasesCountBySlot) {
    const Layer layer = layer_for_combine(false);
    const int32_t ids[4] = {5, -1, 2, 4};
    const float weights[4] = {0.5f, 8, 2, 0.25f};
    std::vector<float> x(32), bias(4 * 32), out(32, 1.0f);
    std::iota(x.begin(), x.end(), 1.0f);
    std::iota(bias.begin(), bias.end(), 0.0f);
    add_identity_experts(layer, ids, weights, x.data(), 32, out.data());
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 1.0f + 0.75f * x[i]);
    out.assign(32, 0.0f);
    add_down_bias(layer, bias.data(), ids, weights, out.data());
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 2 * bias[64 + i]);
}

TEST(Combine, NormalizesByTheRootMeanSquare) {
    const auto source = gaussian(96, 3), weight = gaussian(96, 4);
    double sum = 0;
    for (const float value : source) sum += static_cast<double>(value) * value;
    const double rms = std::sqrt(sum / 96 + 0.01);
    for (const float* scale : {static_cast<const float*>(nullptr), weight.data()}) {
        std::vector<float> v = source;
        rms_normalize(v.data(), 96, 0.01f, scale);
        for (size_t i = 0; i < 96; ++i)
            EXPECT_NEAR(v[i], source[i] / rms * (scale ? weight[i] : 1.0f), 1e-6) << i;
    }
}

TEST(Combine, NormalizesZerosAndTheSmallestWithoutEps) {
    const auto normalized = [](std::vector<float> v) {
        rms_normalize(v.data(), static_cast<int64_t>(v.size()), 0.0f, nullptr);
        return v;
    };
    EXPECT_EQ(normalized(std::vector<float>(32)), std::vector<float>(32));
    std::vector<double> zeros(32);
    rms_normalize(zeros.data(), 32, 0.0f, nullptr);
    EXPECT_EQ(zeros, std::vector<double>(32));
    for (const float tiny : {1e-39f, 1e-45f, 1e-20f})
        for (const float value : normalized(std::vector<float>(32, -tiny)))
            EXPECT_NEAR(value, -1.0f, 1e-6) << tiny;
    std::vector<float> with_nan(32, 1.0f);
    with_nan[3] = NAN;
    for (const float value : normalized(with_nan)) EXPECT_TRUE(std::isnan(value));
}

// One expert with everything, for 70 rows: more than one tile.
class MlpCase : public testing::Test {
  protected:
    static constexpr int64_t width = 48, columns = 64, n = 70;

    MlpCase()
        : gate(test::format_named("f32"), 0, width, columns, {}, 1, 0.125f),
          up(test::format_named("f32"), 0, width, columns, {}, 2, 0.125f),
          gate_bias(gaussian(width, 3)),
          up_bias(gaussian(width, 4)),
          input(gaussian(n * columns, 5)),
          row_weight(gaussian(n, 6)),
          index(n) {
        for (int64_t i = 0; i < n; ++i)
            index[static_cast<size_t>(i)] = static_cast<int32_t>(i * 37 % n);
        activation.kind = MOE_ACTIVATION_SILU;
        gate_matrix = matrix(gate);
        up_matrix = matrix(up);
        mlp = {&gate_matrix,   &up_matrix, nullptr,    gate_bias.data(),
               up_bias.data(), nullptr,    &activation};
    }
    static Matrix matrix(const TensorStack& stack) {
        Matrix out;
        out.format = stack.format();
        out.traits = &test::format_named("f32");
        out.data = static_cast<const std::byte*>(stack.tensor.data);
        out.rows = stack.tensor.rows;
        out.columns = stack.tensor.columns;
        out.row_stride = out.columns * 4;
        return out;
    }
    double pre(const TensorStack& weights, const std::vector<float>& bias, int64_t row,
               int64_t i) const {
        double sum = 0;
        for (int64_t k = 0; k < columns; ++k)
            sum += static_cast<double>(weights.at(0, i, k)) *
                   input[static_cast<size_t>(index[static_cast<size_t>(row)] * columns + k)];
        return sum * row_weight[static_cast<size_t>(row)] + bias[static_cast<size_t>(i)];
    }
    template <class Real>
    MlpInput<Real> rows_of(const std::vector<Real>& values) const {
        return {{values.data(), columns, index.data()}, row_weight.data(), n};
    }

    TensorStack gate, up;
    std::vector<float> gate_bias, up_bias, input, row_weight;
    std::vector<int32_t> index;
    Activation activation;
    Matrix gate_matrix, up_matrix;
    Mlp mlp;
};

TEST_F(MlpCase, ActivationMatchesNaiveDouble) {
    for (const bool gated : {true, false}) {
        activation.gated = gated;
        mlp.gate = gated ? &gate_matrix : nullptr;
        std::vector<float> wanted;
        for (int64_t r = 0; r < n; ++r)
            for (int64_t i = 0; i < width; ++i) {
                const double u = pre(up, up_bias, r, i), g = gated ? pre(gate, gate_bias, r, i) : u;
                wanted.push_back(static_cast<float>(g / (1 + std::exp(-g)) * (gated ? u : 1.0)));
            }
        for (const Named& named : arithmetics()) {
            std::vector<float> h(n * width, -9.0f), scratch(2 * columns);
            const auto kernels = mlp_kernels<float>(named.arithmetic);
            // In two pieces, as two threads would.
            for (const int64_t first : {0, 32})
                kernels.activate(mlp, rows_of(input), first, first ? width : 32, MOE_TYPE_F32,
                                 scratch.data(), h.data(), width);
            EXPECT_LT(moe_test::worst_row_error(h, wanted, width), 1e-6) << named.name;
        }
    }
}

TEST_F(MlpCase, ActivationsAreRoundedToTheIntermediateType) {
    std::vector<float> exact(n * width), rounded(n * width), scratch(2 * columns);
    const auto kernels = mlp_kernels<float>(Arithmetic::ref_f32);
    kernels.activate(mlp, rows_of(input), 0, width, MOE_TYPE_F32, scratch.data(), exact.data(),
                     width);
    for (const moe_type type : {MOE_TYPE_BF16, MOE_TYPE_F16}) {
        kernels.activate(mlp, rows_of(input), 0, width, type, scratch.data(), rounded.data(),
                         width);
        const float steps = type == MOE_TYPE_BF16 ? 0x1p-8f : 0x1p-11f;
        int n_changed = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
            ASSERT_NEAR(rounded[i], exact[i], std::fabs(exact[i]) * steps + 1e-7f);
            uint32_t bits;
            std::memcpy(&bits, &rounded[i], 4);
            ASSERT_TRUE(type != MOE_TYPE_BF16 || (bits & 0xFFFFu) == 0);
            n_changed += rounded[i] != exact[i];
        }
        EXPECT_GT(n_changed, n * width / 2);
    }
}

TEST_F(MlpCase, PreActivationsAreGateThenUp) {
    for (const bool gated : {true, false}) {
        mlp.gate = gated ? &gate_matrix : nullptr;
        const int64_t row_width = gated ? 2 * width : width, stride = row_width + 5;
        std::vector<double> out(static_cast<size_t>(n * stride), -9.0);
        const std::vector<double> doubles(input.begin(), input.end());
        std::vector<float> scratch(2 * columns);
        mlp_kernels<double>(Arithmetic::ref_f64)
            .pre_activation(mlp, rows_of(doubles), 0, width, scratch.data(), out.data(), stride);
        for (int64_t r = 0; r < n; ++r) {
            const double* row = out.data() + r * stride;
            for (int64_t i = 0; i < width; ++i) {
                ASSERT_NEAR(row[row_width - width + i], pre(up, up_bias, r, i), 1e-12);
                if (!gated) continue;
                ASSERT_NEAR(row[i], pre(gate, gate_bias, r, i), 1e-12);
            }
            for (int64_t i = row_width; i < stride; ++i)
                ASSERT_EQ(row[i], -9.0) << "wrote past the row";
        }
    }
}

TEST_F(MlpCase, ProjectionsGoWhereTheIndexSays) {
    std::vector<int32_t> places(n);
    for (int64_t i = 0; i < n; ++i)
        places[static_cast<size_t>(i)] = static_cast<int32_t>((n - 1 - i) * 2);
    for (const Named& named : arithmetics())
        for (const bool scattered : {false, true})
            for (const float* bias :
                 {static_cast<const float*>(nullptr), static_cast<const float*>(up_bias.data())}) {
                std::vector<float> out(static_cast<size_t>(2 * n * width), -9.0f), wanted(out),
                    scratch(columns);
                const InputRows<float> rows{input.data(), columns, nullptr};
                mlp_kernels<float>(named.arithmetic)
                    .project(up_matrix, rows, n, 0, width, scratch.data(), out.data(), width,
                             scattered ? places.data() : nullptr, bias);
                for (int64_t r = 0; r < n; ++r)
                    for (int64_t i = 0; i < width; ++i) {
                        double sum = bias ? bias[i] : 0.0f;
                        for (int64_t k = 0; k < columns; ++k)
                            sum += static_cast<double>(up.at(0, i, k)) *
                                   input[static_cast<size_t>(r * columns + k)];
                        wanted[static_cast<size_t>(
                            (scattered ? places[static_cast<size_t>(r)] : r) * width + i)] =
                            static_cast<float>(sum);
                    }
                EXPECT_LT(moe_test::worst_row_error(out, wanted, width), 1e-6) << named.name;
            }
}

}  // namespace
}  // namespace moe::cpu
