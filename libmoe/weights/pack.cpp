// pack(): tile by tile and block by block, codes are read out of the source's packing into a grid,
// scales are lowered, and the grid is placed. A half of joint tiles is placed beside the matrix and
// merged by a mask, so that the other half keeps its bits.
#include "libmoe/weights/pack.hpp"

#include <cmath>

#include "libmoe/base/error.hpp"
#include "libmoe/formats/element.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/device_weights.hpp"
#include "libmoe/weights/packed_scales.hpp"
#include "libmoe/weights/source_codes.hpp"

namespace moe {
namespace {

constexpr int32_t max_block_bytes = block_code_bytes(PackedType::f32, 4);

PackedType kbit_type_of(const moe_format& format) {
    const auto first =
        format.scale_type == MOE_TYPE_F32 ? PackedType::kbit2_f32 : PackedType::kbit2;
    return static_cast<PackedType>(static_cast<int32_t>(first) + format.bits - 2);
}

PackedType gguf_type_of(int32_t block_id) {
    switch (block_id) {
        case 8:
            return PackedType::q8_0;
        case 12:
            return PackedType::q4_k;
        case 39:
            return PackedType::mxfp4;
        default:
            return PackedType::none;
    }
}

// Masked bytes of `from` over those at `to`; bytes is a multiple of 16.
void merge(const std::byte* from, const std::byte* mask, int32_t bytes, std::byte* to) {
    for (int32_t i = 0; i < bytes; i += 8) {
        const auto kept = load<uint64_t>(to + i) & ~load<uint64_t>(mask + i);
        store(to + i, kept | load<uint64_t>(from + i));
    }
}

struct Job {
    const Matrix& source;
    PackedType type;
    TileRows half;
    ScaleSource scales;

    bool is_half() const { return half != TileRows::all; }
    int32_t first_row() const { return half == TileRows::second_half ? 8 : 0; }
    int32_t n_rows() const { return is_half() ? 8 : tile_rows; }
};

template <class Code>
class Packer {
  public:
    explicit Packer(const Job& job)
        : job_(job), read_(read_codes_of<Code>(job.source.format)), grid_() {}

    void pack(std::byte* to) {
        const int64_t k = job_.source.columns;
        if (job_.is_half())
            for (const int32_t n : {4, 2, 1}) make_mask(n);
        for (int64_t row = 0; row < job_.source.rows; row += job_.n_rows()) {
            for (int64_t k0 = 0; k0 < k; k0 += 16 * steps_of_block(k0, k))
                pack_block(row, k0, steps_of_block(k0, k), to);
            to += tile_bytes(job_.type, k);
        }
    }

  private:
    void pack_block(int64_t row, int64_t k0, int32_t n, std::byte* tile) {
        const BlockPlace place = place_of_block(job_.type, k0, n);
        Code(*const codes)[block_columns] = grid_.at + job_.first_row();
        read_(job_.source, {row, job_.n_rows(), k0, 16 * n}, codes);
        if constexpr (sizeof(Code) == 1)
            for (int32_t r = 0; r < job_.n_rows(); ++r)
                lower_scales(job_.scales, row + r, k0, n, job_.first_row() + r, codes[r],
                             tile + place.scales);
        put(n, tile + place.codes);
    }

    void put(int32_t n, std::byte* to) {
        const PlaceCodes<Code> place = place_codes_of<Code>(job_.type, n);
        if (!job_.is_half()) return place(grid_, to);
        alignas(64) std::byte block[max_block_bytes];
        place(grid_, block);
        merge(block, mask_[n / 2], block_code_bytes(job_.type, n), to);
    }

    // The bits of the half's own rows: those that codes of ones set.
    void make_mask(int32_t n) {
        CodeGrid<Code> ones{};
        const uint64_t largest = (uint64_t{1} << code_bits(job_.type)) - 1;
        for (int32_t r = 0; r < 8; ++r)
            for (Code& code : ones.at[job_.first_row() + r]) code = static_cast<Code>(largest);
        const PlaceCodes<Code> place = place_codes_of<Code>(job_.type, n);
        if (place) place(ones, mask_[n / 2]);
    }

    const Job& job_;
    ReadCodes<Code> read_;
    CodeGrid<Code> grid_;
    alignas(64) std::byte mask_[3][max_block_bytes];  // by steps: 1, 2, 4
};

void check(const Matrix& source, PackedType type, TileRows rows, const char* what) {
    const PackedType own = packed_type_of(source.format);
    if (own == PackedType::none || own != type)
        fail(MOE_ERROR_UNSUPPORTED, "{}: {} does not pack to type {}", what,
             format_name(source.format).text, static_cast<int32_t>(type));
    const int32_t step = rows == TileRows::all ? 16 : 8;
    require(source.rows > 0 && source.rows % step == 0,
            "{}: rows is {}, must be a multiple of {} to be packed", what, source.rows, step);
    const int32_t block = find_format(source.format)->block_columns;
    const int32_t columns = block > 16 ? block : 16;
    require(source.columns > 0 && source.columns % columns == 0,
            "{}: columns is {}, must be a multiple of {} to be packed", what, source.columns,
            columns);
    check_scale_grid(source, type, what);
}

// What multiplies the packed matrix.
float global_of(const Matrix& source, const ScaleSource& scales) {
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

PackedType packed_type_of(const moe_format& format) {
    if (!find_format(format)) return PackedType::none;
    switch (format.type) {
        case MOE_TYPE_F32:
            return PackedType::f32;
        case MOE_TYPE_F16:
            return PackedType::f16;
        case MOE_TYPE_BF16:
            return PackedType::bf16;
        case MOE_TYPE_F8_E4M3:
            return PackedType::e4m3;
        case MOE_TYPE_E2M1:
            return format.scale_type == MOE_TYPE_F8_E8M0 ? PackedType::mxfp4 : PackedType::nvfp4;
        case MOE_TYPE_CODEBOOK:
            return kbit_type_of(format);
        case MOE_TYPE_GGUF:
            return gguf_type_of(format.block_id);
        default:
            return PackedType::none;
    }
}

float pack(const Matrix& source, PackedType type, TileRows rows, std::byte* to, const char* what) {
    check(source, type, rows, what);
    Job job{source, type, rows, {source, type, what}};
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

}  // namespace moe
