// Matrices of the formats that are not sliceable, random ones, with the tensor that describes them
// and their values once more: bit by bit, in double, sharing nothing with the decoders.
#pragma once

#include <string>

#include "libmoe/base/element.hpp"
#include "tests/formats/matrices.hpp"

namespace moe::test {

struct Source {
    moe_format format{};
    int64_t rows = 0;
    int64_t columns = 0;
    std::vector<std::byte> data, scales, zero_points;
    std::vector<int32_t> permutation;
    std::vector<float> nested_scales, nested_codebook;
    float nested_offset = 0;

    moe_tensor tensor() const {
        moe_tensor tensor{};
        tensor.struct_size = sizeof tensor;
        tensor.role = MOE_ROLE_DOWN;
        tensor.format = &format;
        tensor.rows = rows;
        tensor.columns = columns;
        tensor.data = data.data();
        tensor.data_bytes = data.size();
        tensor.scales = scales.data();
        tensor.scale_bytes = scales.size();
        tensor.zero_points = zero_points.data();
        tensor.zero_point_bytes = zero_points.size();
        tensor.permutation = permutation.data();
        tensor.permutation_bytes = permutation.size() * sizeof(int32_t);
        tensor.nested_scales = nested_scales.data();
        tensor.nested_scale_bytes = nested_scales.size() * sizeof(float);
        tensor.nested_codebook = nested_codebook.data();
        tensor.nested_offset = nested_offset;
        return tensor;
    }

    int64_t groups() const {
        return format.group_columns < 0
                   ? 1
                   : (columns + format.group_columns - 1) / format.group_columns;
    }
    int64_t group(int64_t k) const {
        if (format.act_order) return permutation[static_cast<size_t>(k)];
        return format.group_columns < 0 ? 0 : k / format.group_columns;
    }
    double value(int64_t n, int64_t k) const {
        if (format.type == MOE_TYPE_CODEBOOK) return bnb_value(n * columns + k);
        if (format.zero_point == MOE_ZERO_POINT_FLOAT)
            return code(n, k) * scale(n, group(k)) + number(zero_points, n * groups() + group(k));
        return (code(n, k) - zero(n, group(k))) * scale(n, group(k));
    }

    // Bit b of the code at `index` of a stream of words, `step` words apart.
    static int bits_at(const std::vector<std::byte>& words, int64_t first, int64_t step,
                       int64_t index, int bits) {
        int code = 0;
        for (int b = 0; b < bits; ++b) {
            const int64_t bit = index * bits + b;
            const int64_t word = first + bit / 32 * step;
            const auto byte = static_cast<int>(words[static_cast<size_t>(4 * word + bit % 32 / 8)]);
            code |= (byte >> bit % 8 & 1) << b;
        }
        return code;
    }
    // Position of a nibble of AWQ by searching its order.
    static int awq_code(const std::vector<std::byte>& words, int64_t first, int64_t n) {
        const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
        int nibble = 0;
        while (order[nibble] != n % 8) ++nibble;
        return bits_at(words, first + n / 8, 1, nibble, 4);
    }
    int code(int64_t n, int64_t k) const {
        if (format.packing == MOE_PACKING_GPTQ) return bits_at(data, n, rows, k, format.bits);
        if (format.packing == MOE_PACKING_AWQ) return awq_code(data, k * (rows / 8), n);
        const int64_t words = (columns * format.bits + 31) / 32;
        return bits_at(data, n * words, 1, k, format.bits);
    }
    int zero(int64_t n, int64_t g) const {
        const int64_t words = rows * format.bits / 32;
        if (format.zero_point == MOE_ZERO_POINT_MIDDLE) return 1 << (format.bits - 1);
        if (format.packing == MOE_PACKING_GPTQ)
            return bits_at(zero_points, g * words, 1, n, format.bits) +
                   (format.zero_point == MOE_ZERO_POINT_PACKED_MINUS_ONE);
        if (format.packing == MOE_PACKING_AWQ) return awq_code(zero_points, g * (rows / 8), n);
        return bits_at(zero_points, g, groups(), n, format.bits);
    }
    double scale(int64_t n, int64_t g) const {
        const bool by_row = format.packing == MOE_PACKING_BIT_STREAM;
        const int64_t row = format.group_rows < 0 ? 0 : n;
        return number(scales, by_row ? row * groups() + g : g * rows + n);
    }
    double number(const std::vector<std::byte>& numbers, int64_t index) const {
        const std::byte* place = numbers.data() + index * element_bytes(format.scale_type);
        if (format.scale_type == MOE_TYPE_F16) return f16_to_float(load<uint16_t>(place));
        if (format.scale_type == MOE_TYPE_BF16) return bf16_to_float(load<uint16_t>(place));
        return load<float>(place);
    }
    double bnb_value(int64_t element) const {
        const int byte = static_cast<int>(data[static_cast<size_t>(element / 2)]);
        const int code = element % 2 ? byte & 15 : byte >> 4;
        const auto block = static_cast<size_t>(element / format.group_columns);
        double absmax = 0;
        if (format.nested_scales) {
            const auto entry = nested_codebook[static_cast<size_t>(scales[block])];
            const float product = entry * nested_scales[block / 256];
            absmax = product + nested_offset;
        } else {
            absmax = load<float>(scales.data() + 4 * block);
        }
        return builtin_codebook(format)[code] * absmax;
    }
};

inline void store_scale(Source& source, std::byte* place, float value) {
    if (source.format.scale_type == MOE_TYPE_F32) store(place, value);
    if (source.format.scale_type == MOE_TYPE_F16) store(place, float_to_f16(value));
    if (source.format.scale_type == MOE_TYPE_BF16) store(place, float_to_bf16(value));
}

inline void fill_scales(Source& source) {
    const size_t size = static_cast<size_t>(element_bytes(source.format.scale_type));
    const auto values = gaussian(static_cast<int64_t>(source.scales.size() / size), 7);
    for (size_t i = 0; i < values.size(); ++i) {
        const float value = values[i] * 0.1f;
        std::byte* place = source.scales.data() + i * size;
        store_scale(source, place, value);
        if (source.format.scale_type == MOE_TYPE_U8) store(place, static_cast<uint8_t>(i * 37 + 5));
    }
}

// As tools make them, which take the least weight of a group to code 0: near the scale times half
// of the codes.
inline void fill_biases(Source& source) {
    const size_t size = static_cast<size_t>(element_bytes(source.format.scale_type));
    const auto count = static_cast<int64_t>(source.zero_points.size() / size);
    const auto off = gaussian(count, 8);
    for (int64_t i = 0; i < count; ++i) {
        const double middle = (1 << (source.format.bits - 1)) + 0.4 * off[static_cast<size_t>(i)];
        const double bias = -source.number(source.scales, i) * middle;
        store_scale(source, source.zero_points.data() + i * static_cast<int64_t>(size),
                    static_cast<float>(bias));
    }
}

// The group of each column as tools write it: whole groups in any order.
inline std::vector<int32_t> shuffled_groups(int32_t group, int64_t columns, uint64_t seed) {
    std::vector<int32_t> groups;
    for (int64_t k = 0; k < columns; ++k)
        groups.push_back(group < 0 ? 0 : static_cast<int32_t>(k / group));
    Random random(seed + 2);
    for (size_t i = groups.size() - 1; i > 0; --i)
        std::swap(groups[i], groups[random.next() % (i + 1)]);
    return groups;
}

inline Source random_source(const moe_format& format, int64_t rows, int64_t columns,
                            uint64_t seed = 11) {
    Source source;
    source.format = format;
    source.rows = rows;
    source.columns = columns;
    const MatrixBytes bytes = matrix_bytes(*find_format(format), format, rows, columns);
    source.data = random_bytes(bytes.data, seed);
    source.zero_points = random_bytes(bytes.zero_points, seed + 1);
    source.scales.resize(bytes.scales);
    fill_scales(source);
    if (format.zero_point == MOE_ZERO_POINT_FLOAT) fill_biases(source);
    if (format.act_order) source.permutation = shuffled_groups(format.group_columns, columns, seed);
    if (!format.nested_scales) return source;
    source.nested_codebook = gaussian(256, 14);
    source.nested_scales = gaussian(static_cast<int64_t>(bytes.scales + 255) / 256, 15);
    source.nested_offset = 0.375f;
    return source;
}

inline moe_format int_format(moe_packing packing, int32_t bits, int32_t group, moe_type scale_type,
                             moe_zero_point zero_point, bool act_order = false) {
    moe_format format{};
    format.struct_size = sizeof format;
    format.type = MOE_TYPE_INT;
    format.bits = bits;
    format.group_rows = 1;
    format.group_columns = group;
    format.scale_type = scale_type;
    format.zero_point = zero_point;
    format.packing = packing;
    format.act_order = act_order;
    return format;
}

inline moe_format bnb_format(moe_codebook codebook, int32_t block, bool nested) {
    moe_format format{};
    format.struct_size = sizeof format;
    format.type = MOE_TYPE_CODEBOOK;
    format.bits = 4;
    format.group_rows = 1;
    format.group_columns = block;
    format.scale_type = nested ? MOE_TYPE_U8 : MOE_TYPE_F32;
    format.packing = MOE_PACKING_NIBBLE_HIGH_FIRST;
    format.codebook = codebook;
    format.nested_scales = nested;
    return format;
}

// Two's complement (INT) or FP4 (E2M1), two codes per byte.
inline moe_format nibble_format(moe_type type, moe_type scale_type, int32_t group) {
    moe_format format{};
    format.struct_size = sizeof format;
    format.type = type;
    format.bits = type == MOE_TYPE_INT ? 4 : 0;
    format.group_rows = 1;
    format.group_columns = group;
    format.scale_type = scale_type;
    format.packing = MOE_PACKING_NIBBLE_LOW_FIRST;
    return format;
}

// Every packing, width, kind of zero point and scale type at least once.
inline std::vector<moe_format> whole_formats() {
    std::vector<moe_format> formats;
    const moe_type types[] = {MOE_TYPE_F16, MOE_TYPE_BF16, MOE_TYPE_F32};
    for (int32_t bits = 2; bits <= 8; ++bits)
        for (const auto zero : {MOE_ZERO_POINT_PACKED, MOE_ZERO_POINT_PACKED_MINUS_ONE})
            for (const bool act_order : {false, true})
                formats.push_back(int_format(MOE_PACKING_GPTQ, bits, act_order ? 32 : -1,
                                             types[bits % 3], zero, act_order));
    formats.push_back(int_format(MOE_PACKING_GPTQ, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED));
    for (const moe_type type : types)
        formats.push_back(int_format(MOE_PACKING_AWQ, 4, 32, type, MOE_ZERO_POINT_PACKED));
    formats.push_back(int_format(MOE_PACKING_AWQ, 4, -1, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED));
    for (int32_t bits = 1; bits <= 8; ++bits)
        for (const auto zero : {MOE_ZERO_POINT_MIDDLE, MOE_ZERO_POINT_PACKED})
            formats.push_back(int_format(MOE_PACKING_BIT_STREAM, bits, bits % 2 ? 32 : 48,
                                         types[bits % 3], zero, bits % 3 == 1));
    for (int32_t bits = 1; bits <= 8; ++bits)
        for (const size_t i : {0, 1})
            formats.push_back(int_format(MOE_PACKING_BIT_STREAM, bits, bits % 2 ? 32 : 64,
                                         types[(static_cast<size_t>(bits) + i) % 3],
                                         MOE_ZERO_POINT_FLOAT));
    formats.push_back(
        int_format(MOE_PACKING_BIT_STREAM, 4, -1, MOE_TYPE_BF16, MOE_ZERO_POINT_MIDDLE));
    formats.push_back(formats.back());
    formats.back().group_rows = -1;
    for (const auto codebook : {MOE_CODEBOOK_BNB_NF4, MOE_CODEBOOK_BNB_FP4})
        for (const bool nested : {false, true})
            formats.push_back(bnb_format(codebook, nested ? 64 : 128, nested));
    return formats;
}

}  // namespace moe::test
