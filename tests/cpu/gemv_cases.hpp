// Cases of the tests of gemv and gemm kernels: weights of every format that kernels read,
// activations as the formats want them, and the bounds of their errors.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <vector>

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/round.hpp"
#include "libmoe/formats/interleaved.hpp"
#include "tests/formats/sources.hpp"
#include "tests/support/matrices.hpp"

namespace moe::cpu {

using test::gaussian;

std::vector<Arithmetic> families();

FormatTraits traits_of(const char* name, const moe_format& format);

FormatTraits traits_of(const moe_format& format);

// The named formats and those without a name.
std::vector<FormatTraits> known_formats();

// Formats that no kernel reads: act-order with codes that straddle words, or groups whose size is
// no power of two from 32 on.
std::vector<FormatTraits> unread_formats();

// Bytes that end where memory may be read no longer.
class GuardedBytes {
  public:
    explicit GuardedBytes(size_t size) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
        n_ = (size + page_ - 1) / page_ * page_ + page_;
        base_ = static_cast<std::byte*>(
            mmap(nullptr, n_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_NE(base_, MAP_FAILED);
        EXPECT_EQ(mprotect(base_ + n_ - page_, page_, PROT_NONE), 0);
        data_ = base_ + n_ - page_ - size;
    }
    ~GuardedBytes() { munmap(base_, n_); }
    GuardedBytes(const GuardedBytes&) = delete;
    GuardedBytes& operator=(const GuardedBytes&) = delete;
    std::byte* data() const { return data_; }

  private:
    size_t page_, n_;
    std::byte *base_, *data_;
};

// Codes of formats that the library does not write are random bytes under scales of usual sizes.
void fill_with_bytes(test::Stored& stored);

// A random matrix whose codes, scales and zero points end at a guard page, with what it decodes to.
class Weights {
  public:
    Weights(const FormatTraits& traits, int64_t rows, int64_t columns) {
        if (traits.unsliceable_bytes)
            take(test::random_source(traits.format, rows, columns));
        else
            take(make(traits, rows, columns));
    }
    explicit Weights(const test::Stored& stored) { take(stored); }

    // The same values in the packed layout.
    void interleave() {
        const Interleaving& how = *interleaving_of(matrix.format);
        const std::vector<std::byte> unset(interleaved_bytes(how, matrix.rows, matrix.columns),
                                           std::byte{0x5A});
        guard(unset);
        matrix = moe::interleave(matrix, guarded_.back()->data());
    }

    static test::Stored make(const FormatTraits& traits, int64_t rows, int64_t columns) {
        test::Stored stored(traits, rows, columns);
        for (int i = 0; traits.format.codebook == MOE_CODEBOOK_GIVEN && i < 1 << traits.format.bits;
             ++i)
            stored.codebook.push_back(-0.9f + 0.07f * static_cast<float>(i * i % 29));
        if (!traits.encode)
            fill_with_bytes(stored);
        else
            stored.encode(gaussian(rows * columns, 7).data());
        return stored;
    }

    Matrix matrix;
    std::vector<float> values;

  private:
    void take(const test::Stored& stored) {
        matrix = stored.view();
        codebook_ = stored.codebook;
        if (!codebook_.empty()) matrix.codebook = codebook_.data();
        finish(stored.data, stored.scales, {});
    }
    void take(test::Source source) {
        source_ = std::move(source);
        matrix.format = source_.format;
        matrix.codebook = builtin_codebook(source_.format);
        matrix.rows = source_.rows;
        matrix.columns = source_.columns;
        const MatrixBytes bytes =
            matrix_bytes(*find_format(source_.format), source_.format, matrix.rows, matrix.columns);
        matrix.row_stride = static_cast<int64_t>(bytes.row_stride);
        matrix.scale_row_stride = static_cast<int64_t>(bytes.scale_row_stride);
        if (!source_.permutation.empty()) matrix.permutation = source_.permutation.data();
        if (source_.format.nested_scales) {
            matrix.nested_scales = source_.nested_scales.data();
            matrix.nested_codebook = source_.nested_codebook.data();
            matrix.nested_offset = source_.nested_offset;
        }
        finish(source_.data, source_.scales, source_.zero_points);
    }
    void finish(const std::vector<std::byte>& data, const std::vector<std::byte>& scales,
                const std::vector<std::byte>& zero_points) {
        matrix.traits = find_format(matrix.format);
        matrix.data = guard(data);
        matrix.scales = guard(scales);
        matrix.zero_points = guard(zero_points);
        matrix.whole_rows = matrix.rows;
        matrix.whole_columns = matrix.columns;
        if (matrix.format.pre_quant_scale) {
            pre_quant_scale_ = gaussian(matrix.columns, 17);
            matrix.pre_quant_scale = pre_quant_scale_.data();
        }
        values = test::decode_all(matrix, *matrix.traits);
    }
    const std::byte* guard(const std::vector<std::byte>& bytes) {
        if (bytes.empty()) return nullptr;
        guarded_.push_back(std::make_unique<GuardedBytes>(bytes.size()));
        std::copy(bytes.begin(), bytes.end(), guarded_.back()->data());
        return guarded_.back()->data();
    }

    std::vector<std::unique_ptr<GuardedBytes>> guarded_;
    test::Source source_;
    std::vector<float> codebook_, pre_quant_scale_;
};

// Matrices of a format as they are, and with interleaved rows where it has them.
std::vector<bool> layouts_of(const FormatTraits& traits);

// Gemv kernels, or gemm kernels where the family has them for the format.
enum class Way : uint8_t { rows, panels };
constexpr Way ways[] = {Way::rows, Way::panels};

// Activation rows of a type, quantized as the format wants them.
struct Activations {
    Activations(Arithmetic arithmetic, const moe_format& format, moe_type type, int64_t n,
                int64_t columns, float outlier, Way way = Way::rows, bool to_int8 = false)
        : Activations(arithmetic, gemv_format_of(format), type, n, columns, outlier, way, to_int8) {
    }
    // Rows as the kernels of a matrix take them.
    Activations(Arithmetic arithmetic, const Matrix& matrix, moe_type type, int64_t n,
                float outlier, Way way = Way::rows, bool to_int8 = false)
        : Activations(arithmetic, gemv_format_of(matrix), type, n, matrix.columns, outlier, way,
                      to_int8) {}
    Activations(Arithmetic arithmetic, GemvFormat format, moe_type type, int64_t n, int64_t columns,
                float outlier, Way way, bool to_int8)
        : x(gaussian(n * columns, 5)) {
        for (size_t i = 0; i < x.size(); ++i) {
            if (outlier != 0 && i % 97 == 13) x[i] *= outlier;
            x[i] = round_to(x[i], type);
        }
        rows = {x.data(), columns, nullptr};
        rows.quantization = quantization_for(*gemv_family(arithmetic), format,
                                             {type, to_int8, way == Way::panels, has_avx512bf16()});
        rows.in_panels = way == Way::panels;
        quantize(arithmetic, n, columns);
    }

    // The rows in tiles, too, with more of the last one behind them.
    void lay_tiles(int64_t n, int64_t columns);

    // After x has changed, or how it is quantized.
    void quantize(Arithmetic arithmetic, int64_t n, int64_t columns) {
        rows.quantized_stride = quantized_row_bytes(columns, rows.quantization);
        bytes.resize(static_cast<size_t>(n * rows.quantized_stride));
        rows.quantized = bytes.data();
        for (int64_t i = 0; !is_empty(rows.quantization) && i < n; ++i)
            gemv_family(arithmetic)
                ->quantize(x.data() + i * columns, columns, rows.quantization,
                           bytes.data() + i * rows.quantized_stride);
    }

    std::vector<float> x;
    std::vector<std::byte> bytes, tiles;
    InputRows<float> rows;
};

// Scratch of a thread, as Scratch lays it out.
class ThreadScratch {
  public:
    explicit ThreadScratch(int64_t columns)
        : memory_(new (std::align_val_t{
              64}) float[static_cast<size_t>(gemv_scratch_floats(columns) + gemm_scratch_floats)]) {
    }
    ~ThreadScratch() { ::operator delete[](memory_, std::align_val_t{64}); }
    ThreadScratch(const ThreadScratch&) = delete;
    ThreadScratch& operator=(const ThreadScratch&) = delete;
    float* data() const { return memory_; }

  private:
    float* memory_;
};

std::vector<float> project(Arithmetic arithmetic, const Matrix& weights,
                           const Activations& activations, int64_t n);
std::vector<float> project(Arithmetic arithmetic, const Weights& weights,
                           const Activations& activations, int64_t n);

std::vector<float> exact(const Matrix& matrix, const std::vector<float>& values,
                         const std::vector<float>& x, int64_t n);

std::vector<float> exact(const Weights& weights, const std::vector<float>& x, int64_t n);

// The error of the worst of n tokens: the L2 norm of its errors over that of its exact sums or,
// where terms cancel, over |W| |x| / sqrt(columns), which is the norm of sums of independent terms.
double worst_error(const std::vector<float>& got, const Matrix& matrix,
                   const std::vector<float>& values, const std::vector<float>& x, int64_t n);
double worst_error(const std::vector<float>& got, const Weights& weights,
                   const std::vector<float>& x, int64_t n);

// Rows whose last panels are not full, where a format has some.
int64_t rows_of(const moe_format& format, int64_t usual);

// Columns of a row: whole steps of 256, and all kinds of rest that a format may leave.
std::vector<int64_t> columns_of(const FormatTraits& traits);

struct Bound {
    moe_type type;
    float outlier;
    double error;  // of a token, as worst_error has it, for formats that take quantized rows
    bool to_int8 = false;
};
constexpr Bound all_bounds[] = {{MOE_TYPE_F32, 0, 1e-5},        {MOE_TYPE_F32, 100, 1e-5},
                                {MOE_TYPE_BF16, 0, 1e-4},       {MOE_TYPE_BF16, 100, 3e-4},
                                {MOE_TYPE_F16, 0, 1e-4},        {MOE_TYPE_F16, 100, 3e-4},
                                {MOE_TYPE_BF16, 0, 3e-2, true}, {MOE_TYPE_BF16, 100, 1e-1, true},
                                {MOE_TYPE_F32, 0, 3e-2, true}};
// Sanitizers watch addresses, which outliers do not change.
inline std::vector<Bound> bounds() {
    std::vector<Bound> all(std::begin(all_bounds), std::end(all_bounds));
#if defined(__SANITIZE_ADDRESS__)
    std::erase_if(all, [](const Bound& bound) { return bound.outlier != 0; });
#endif
    return all;
}

// Panels of bfloat16 hold float16 and the values of a codebook rounded, and those of AMX all
// values.
bool rounds_values(Arithmetic arithmetic, const moe_format& format, const InputRows<float>& rows);
constexpr double bound_of_rounded_values(float outlier) {
    return outlier == 0 ? 6e-3 : 1e-2;
}
// The bound of a token depends on what the kernels do to weights and rows.
double bound_of_error(Arithmetic arithmetic, const moe_format& format, const Activations& x,
                      const Bound& bound);

// Rows of all kinds of groups; more than a tile of gemm kernels takes where that is cheap.
std::vector<int64_t> tokens_of(Way way, int64_t columns);

}  // namespace moe::cpu
