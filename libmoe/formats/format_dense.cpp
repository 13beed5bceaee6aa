// f32, f16, bf16: one little-endian element after the other, no scales. The only formats that may
// lie transposed: Matrix::column_stride bytes from column to column. Encoding rounds to nearest,
// ties to even; f16 overflows to infinity; infinities and NaN are kept.
#include "libmoe/base/element.hpp"
#include "libmoe/base/error.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

struct F32 {
    using Code = float;
    static constexpr moe_type type = MOE_TYPE_F32;
    static float decode(Code code) { return code; }
    static Code encode(float value) { return value; }
};

struct F16 {
    using Code = uint16_t;
    static constexpr moe_type type = MOE_TYPE_F16;
    static float decode(Code code) { return f16_to_float(code); }
    static Code encode(float value) { return float_to_f16(value); }
};

struct Bf16 {
    using Code = uint16_t;
    static constexpr moe_type type = MOE_TYPE_BF16;
    static float decode(Code code) { return bf16_to_float(code); }
    static Code encode(float value) { return float_to_bf16(value); }
};

// A fixed count lets the compiler vectorise at any optimisation level.
template <class Element, int count>
void decode_chunk(const std::byte* codes, float* __restrict out) {
    using Code = typename Element::Code;
    for (int i = 0; i < count; ++i) out[i] = Element::decode(load<Code>(codes + i * sizeof(Code)));
}

template <class Element>
void decode_contiguous(const std::byte* codes, int64_t count, float* out) {
    constexpr int chunk = 16;
    constexpr int64_t bytes = sizeof(typename Element::Code);
    int64_t i = 0;
    for (; i + chunk <= count; i += chunk) decode_chunk<Element, chunk>(codes + i * bytes, out + i);
    for (; i < count; ++i) decode_chunk<Element, 1>(codes + i * bytes, out + i);
}

template <class Element>
void decode_strided(const std::byte* codes, int64_t stride, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) {
        out[i] = Element::decode(load<typename Element::Code>(codes + i * stride));
    }
}

template <class Element>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const std::byte* codes = matrix.data + row * matrix.row_stride;
    if (matrix.column_stride) {
        decode_strided<Element>(codes + column * matrix.column_stride, matrix.column_stride, count,
                                out);
    } else {
        decode_contiguous<Element>(codes + column * sizeof(typename Element::Code), count, out);
    }
}

template <class Element>
void encode(const FormatTraits&, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    for (int64_t i = 0; i < rows * columns; ++i) {
        store(target.data + i * sizeof(typename Element::Code), Element::encode(source[i]));
    }
}

template <class Element>
constexpr FormatTraits dense_entry(const char* name) {
    return {.name = name,
            .format = format_of(Element::type),
            .block_rows = 1,
            .block_columns = 1,
            .block_bytes = sizeof(typename Element::Code),
            .scale_bytes = 0,
            .decode = decode<Element>,
            .encode = encode<Element>};
}

}  // namespace

constinit const std::array<FormatTraits, 3> dense_formats = {
    dense_entry<F32>("f32"), dense_entry<F16>("f16"), dense_entry<Bf16>("bf16")};

}  // namespace moe
