// pack(): tile by tile and block by block, codes are read out of the source's packing into a grid,
// scales are lowered, and the codes of the grid are stored.
#include "libmoe/weights/lower.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "libmoe/base/element.hpp"
#include "libmoe/base/error.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/lower_scales.hpp"
#include "libmoe/weights/source_codes.hpp"

namespace moe {
namespace {

struct Job {
    const Matrix& source;
    PackedType type;
    TileRows half;
    ScaleSource scales;
    const uint32_t* order;
    const uint32_t* row_order;

    int64_t source_row(int64_t row) const { return row_order ? int64_t{row_order[row]} : row; }
    int32_t first_row() const { return half == TileRows::up_half ? 8 : 0; }
    int32_t n_rows() const { return half == TileRows::all ? tile_rows : 8; }
};

template <class Code>
class Packer {
  public:
    explicit Packer(const Job& job)
        : job_(job),
          read_(read_codes_of<Code>(job.source.format)),
          store_codes_(store_codes_of<Code>(job.type)),
          grid_() {}

    void pack(std::byte* to) {
        const int64_t k = job_.source.columns;
        for (int64_t row = 0; row < job_.source.rows; row += job_.n_rows()) {
            for (int64_t k0 = 0; k0 < k; k0 += block_columns)
                pack_block(row, k0, std::min<int64_t>(block_columns, k - k0), to);
            to += tile_bytes(job_.type, k);
        }
    }

  private:
    // The last block of a matrix may have fewer columns than 64: the rest is zeros, as the memory
    // is.
    void pack_block(int64_t row, int64_t k0, int64_t n_columns, std::byte* tile) {
        const BlockOffset offset = block_offset(job_.type, k0);
        const auto n = static_cast<int32_t>(n_columns);
        Code(*const codes)[block_columns] = grid_.at + job_.first_row();
        if (read_ && n < block_columns) grid_ = {};
        if (read_) read_rows(row, k0, n, codes);
        if (has_sign_codes(job_.type)) take_sign_codes(codes, n);
        if constexpr (sizeof(Code) == 1)
            for (int32_t r = 0; r < job_.n_rows(); ++r)
                lower_scales(job_.scales, job_.source_row(row + r), k0, n, job_.first_row() + r,
                             codes[r], tile + offset.scales);
        if (store_codes_) store_codes_(grid_, job_.half, tile + offset.codes);
    }

    void read_rows(int64_t row, int64_t k0, int32_t n, Code (*codes)[block_columns]) const {
        if (!job_.row_order)
            return read_(job_.source, {row, job_.n_rows(), k0, n, job_.order}, codes);
        for (int32_t r = 0; r < job_.n_rows(); ++r)
            read_(job_.source, {job_.source_row(row + r), 1, k0, n, job_.order}, codes + r);
    }

    void take_sign_codes(Code (*codes)[block_columns], int32_t columns) {
        for (int32_t r = 0; r < job_.n_rows(); ++r)
            for (int32_t c = 0; c < columns; ++c)
                codes[r][c] = static_cast<Code>(sign_code(codes[r][c]));
    }

    const Job& job_;
    ReadCodes<Code> read_;
    StoreCodes<Code> store_codes_;
    CodeGrid<Code> grid_;
};

void check(const Matrix& source, PackedType type, TileRows rows, const char* what) {
    const PackedType own = packed_type_of(source.format);
    if (own == PackedType::none || own != type)
        fail(MOE_ERROR_UNSUPPORTED, "{}: {} does not pack to {}", what,
             format_name(source.format).text, packed_type_name(type));
    const int32_t step = rows == TileRows::all ? 16 : 8;
    require(source.rows > 0 && source.rows % step == 0,
            "{}: rows is {}, must be a multiple of {} to be packed", what, source.rows, step);
    const int32_t columns = column_step(type);
    require(source.columns > 0 && source.columns % columns == 0,
            "{}: columns is {}, must be a multiple of {} to be packed", what, source.columns,
            columns);
    check_scale_grid(source, type, what);
}

[[noreturn]] void fail_group_size(const Matrix& source, int64_t group, const char* what) {
    const int64_t size = source.format.group_columns;
    const int64_t wanted = std::min(size, source.columns - group * size);
    const int64_t n = std::count(source.permutation, source.permutation + source.columns, group);
    fail(MOE_ERROR_UNSUPPORTED,
         "{}: permutation: group {} has {} columns, the packed layout has {} for it", what, group,
         n, wanted);
}

// The factor of the packed matrix; a grid has none.
float global_of(const Matrix& source, const ScaleSource& scales) {
    if (is_grid(scales.type)) return 1.0f;
    if (scales.type == PackedType::mxfp4)
        return e8m0_to_f32(static_cast<uint8_t>(scales.largest_exponent));
    if (source.format.global_scale == MOE_GLOBAL_SCALE_NONE) return 1.0f;
    if (source.format.global_scale == MOE_GLOBAL_SCALE_MULTIPLY) return source.global_scale;
    const float inverse = 1.0f / source.global_scale;
    if (!std::isnormal(inverse))
        fail(MOE_ERROR_UNSUPPORTED, "{}: global_scale {} divides and has no reciprocal in float32",
             scales.what, source.global_scale);
    return inverse;
}

}  // namespace

float pack(const Matrix& source, PackedType type, TileRows rows, std::byte* to, const char* what,
           const uint32_t* order, bool keeps_biases, const uint32_t* row_order) {
    check(source, type, rows, what);
    // The scales of group g are then those of the columns from g * group_columns on.
    Matrix in_order = source;
    in_order.permutation = nullptr;
    Job job{in_order, type, rows, {in_order, type, what}, order, row_order};
    job.scales.keeps_biases = keeps_biases;
    if (type == PackedType::mxfp4) job.scales.largest_exponent = largest_exponent(source, what);
    const float global = global_of(source, job.scales);
    switch (code_bits(type)) {
        case 32:
            Packer<uint32_t>(job).pack(to);
            break;
        case 16:
            Packer<uint16_t>(job).pack(to);
            break;
        default:
            Packer<uint8_t>(job).pack(to);
    }
    return global;
}

void packed_codebook(const Matrix& source, PackedType type, float* values) {
    const int64_t n = int64_t{1} << code_bits(type);
    for (uint32_t code = 0; code < n; ++code)
        values[has_sign_codes(type) ? sign_code(code) : code] = source.codebook[code];
}

void packed_columns(const Matrix& source, uint32_t* columns, const char* what) {
    if (column_table_of(source.format) == ColumnTable::factors) {
        std::memcpy(columns, source.pre_quant_scale,
                    static_cast<size_t>(source.columns) * sizeof(float));
        return;
    }
    check_scale_grid(source, packed_type_of(source.format), what);
    std::iota(columns, columns + source.columns, 0u);
    const auto group_of = [&](uint32_t k) { return source.permutation[k]; };
    // By group and column, which needs no memory as a stable sort does.
    std::sort(columns, columns + source.columns, [&](uint32_t a, uint32_t b) {
        return group_of(a) != group_of(b) ? group_of(a) < group_of(b) : a < b;
    });
    const int32_t size = source.format.group_columns;
    for (int64_t k = 0; k < source.columns; ++k)
        if (const int64_t group = group_of(columns[k]); group != k / size)
            fail_group_size(source, std::min(group, k / size), what);
}

}  // namespace moe
