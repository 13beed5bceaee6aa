#include "formats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>

namespace moe_gpu {
namespace {

struct Unnamed {
    const char* name;
    moe_type type;
    int32_t bits;
    int32_t group_rows, group_columns;
    moe_type scale_type;
    moe_packing packing = MOE_PACKING_DENSE;
    moe_zero_point zero_point = MOE_ZERO_POINT_NONE;
    moe_codebook codebook = MOE_CODEBOOK_NONE;
    bool nested = false;
    bool act_order = false;
    bool pre_quant_scale = false;
};

constexpr Unnamed unnamed[] = {
    {"fp8_row", MOE_TYPE_F8_E4M3, 0, 1, -1, MOE_TYPE_F32},
    {"fp8_64x128", MOE_TYPE_F8_E4M3, 0, 64, 128, MOE_TYPE_F32},
    {"fp8_32x128", MOE_TYPE_F8_E4M3, 0, 32, 128, MOE_TYPE_F32},
    {"fp8_1x64_bf16", MOE_TYPE_F8_E4M3, 0, 1, 64, MOE_TYPE_BF16},
    {"mxfp8", MOE_TYPE_F8_E4M3, 0, 1, 32, MOE_TYPE_F8_E8M0},
    {"int8_row", MOE_TYPE_I8, 0, 1, -1, MOE_TYPE_F32},
    {"gptq2", MOE_TYPE_INT, 2, 1, 64, MOE_TYPE_F16, MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED},
    {"gptq2_128", MOE_TYPE_INT, 2, 1, 128, MOE_TYPE_F16, MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED},
    {"gptq3_row", MOE_TYPE_INT, 3, 1, -1, MOE_TYPE_F16, MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED},
    {"gptq3", MOE_TYPE_INT, 3, 1, 32, MOE_TYPE_F16, MOE_PACKING_GPTQ,
     MOE_ZERO_POINT_PACKED_MINUS_ONE},
    {"gptq4", MOE_TYPE_INT, 4, 1, 128, MOE_TYPE_F16, MOE_PACKING_GPTQ,
     MOE_ZERO_POINT_PACKED_MINUS_ONE},
    {"gptq8", MOE_TYPE_INT, 8, 1, -1, MOE_TYPE_F16, MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED},
    {"awq", MOE_TYPE_INT, 4, 1, 128, MOE_TYPE_F16, MOE_PACKING_AWQ, MOE_ZERO_POINT_PACKED},
    {"int4_32", MOE_TYPE_INT, 4, 1, 32, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE},
    {"int4_96", MOE_TYPE_INT, 4, 1, 96, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE},
    {"int4_192", MOE_TYPE_INT, 4, 1, 192, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE},
    {"int4_512", MOE_TYPE_INT, 4, 1, 512, MOE_TYPE_F16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE},
    {"int4_row", MOE_TYPE_INT, 4, 1, -1, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE},
    {"gptq4_any_order", MOE_TYPE_INT, 4, 1, 32, MOE_TYPE_F16, MOE_PACKING_GPTQ,
     MOE_ZERO_POINT_PACKED_MINUS_ONE, MOE_CODEBOOK_NONE, false, true},
    {"gptq8_any_order", MOE_TYPE_INT, 8, 1, 64, MOE_TYPE_F16, MOE_PACKING_GPTQ,
     MOE_ZERO_POINT_PACKED, MOE_CODEBOOK_NONE, false, true},
    {"int3_any_order", MOE_TYPE_INT, 3, 1, 32, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE, MOE_CODEBOOK_NONE, false, true},
    {"int1", MOE_TYPE_INT, 1, 1, 32, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_MIDDLE},
    {"int6", MOE_TYPE_INT, 6, 1, 128, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_MIDDLE},
    {"int7_zeros", MOE_TYPE_INT, 7, 1, 64, MOE_TYPE_F16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_PACKED},
    {"int7_row", MOE_TYPE_INT, 7, 1, -1, MOE_TYPE_F32, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_PACKED},
    {"int5_zeros", MOE_TYPE_INT, 5, 1, 48, MOE_TYPE_F32, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_PACKED},
    {"int4_nibbles", MOE_TYPE_INT, 4, 1, 128, MOE_TYPE_F32, MOE_PACKING_NIBBLE_LOW_FIRST},
    {"fp4_64", MOE_TYPE_E2M1, 0, 1, 64, MOE_TYPE_F8_E8M0, MOE_PACKING_NIBBLE_LOW_FIRST},
    {"fp4_128", MOE_TYPE_E2M1, 0, 1, 128, MOE_TYPE_F16, MOE_PACKING_NIBBLE_LOW_FIRST},
    {"fp4_128_f32", MOE_TYPE_E2M1, 0, 1, 128, MOE_TYPE_F32, MOE_PACKING_NIBBLE_LOW_FIRST},
    {"int8_64x64", MOE_TYPE_I8, 0, 64, 64, MOE_TYPE_F32},
    {"int8_matrix", MOE_TYPE_I8, 0, -1, -1, MOE_TYPE_F32},
    {"affine2", MOE_TYPE_INT, 2, 1, 32, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_FLOAT},
    {"affine3", MOE_TYPE_INT, 3, 1, 64, MOE_TYPE_F16, MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_FLOAT},
    {"affine4", MOE_TYPE_INT, 4, 1, 64, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_FLOAT},
    {"affine5", MOE_TYPE_INT, 5, 1, 32, MOE_TYPE_F16, MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_FLOAT},
    {"nf4", MOE_TYPE_CODEBOOK, 4, 1, 64, MOE_TYPE_F32, MOE_PACKING_NIBBLE_HIGH_FIRST,
     MOE_ZERO_POINT_NONE, MOE_CODEBOOK_BNB_NF4},
    {"fp4_nested", MOE_TYPE_CODEBOOK, 4, 1, 64, MOE_TYPE_U8, MOE_PACKING_NIBBLE_HIGH_FIRST,
     MOE_ZERO_POINT_NONE, MOE_CODEBOOK_BNB_FP4, true},
    {"nvfp4_pre_quant", MOE_TYPE_E2M1, 0, 1, 16, MOE_TYPE_F8_E4M3, MOE_PACKING_NIBBLE_LOW_FIRST,
     MOE_ZERO_POINT_NONE, MOE_CODEBOOK_NONE, false, false, true},
};

moe_format format_of(const Unnamed& given) {
    auto format = sized<moe_format>();
    format.type = given.type;
    format.bits = given.bits;
    format.group_rows = given.group_rows;
    format.group_columns = given.group_columns;
    format.scale_type = given.scale_type;
    format.packing = given.packing;
    format.zero_point = given.zero_point;
    format.codebook = given.codebook;
    format.nested_scales = given.nested;
    format.act_order = given.act_order;
    format.pre_quant_scale = given.pre_quant_scale;
    if (given.pre_quant_scale) format.global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
    return format;
}

// As the formats of these names, but for the codebook.
struct GivenCodebook {
    const char* name;
    const char* like;
};
constexpr GivenCodebook given[] = {
    {"kbit2_given", "kbit2"},         {"kbit3_given", "kbit3"},
    {"kbit4_given", "kbit4"},         {"kbit5_given", "kbit5"},
    {"kbit2_f32_given", "kbit2_f32"}, {"kbit3_f32_given", "kbit3_f32"},
    {"kbit4_f32_given", "kbit4_f32"}};

const Unnamed* find_unnamed(const char* name) {
    for (const Unnamed& one : unnamed)
        if (!std::strcmp(one.name, name)) return &one;
    return nullptr;
}

bool is_written(const moe_format& format) {
    auto info = sized<moe_format_info>();
    must(moe_format_get_info(&format, &info), "moe_format_get_info");
    return info.has_encode != 0;
}

void quantize(const moe_format& format, const Floats& source, int64_t rows, int64_t columns,
              FormatBuffers& to) {
    auto args = sized<moe_quantize_args>();
    args.format = &format;
    args.source = source.data();
    args.rows = rows;
    args.columns = columns;
    args.data = to.data.data();
    args.data_bytes = to.data.size();
    args.scales = to.scales.empty() ? nullptr : to.scales.data();
    args.scale_bytes = to.scales.size();
    args.global_scale = format.global_scale == MOE_GLOBAL_SCALE_NONE ? nullptr : &to.global_scale;
    args.codebook = to.codebook.empty() ? nullptr : to.codebook.data();
    must(moe_quantize(&args), "moe_quantize");
}

void fill(Bytes& bytes, std::mt19937_64& random) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
}

// Ascending, from about -1 to 1, at uneven steps. Those of seed 0 are no bytes times one number.
Floats make_codebook(int32_t bits, uint64_t seed) {
    std::mt19937_64 random(seed + 5);
    const int32_t n = 1 << bits;
    Floats values;
    for (int32_t i = 0; i < n; ++i) {
        const auto part = static_cast<float>(random() % 1000) / 1250.0f;  // below 0.8
        values.push_back(2.0f * (static_cast<float>(i) + part) / static_cast<float>(n) - 1.0f);
    }
    return values;
}

// One of 29 blocks of 256 columns has the factor zero, and one a negative factor or none but for
// the minima.
constexpr size_t even_columns = 256, block_cycle = 29, zero_block = 2, other_block = 4;

// Blocks of ggml: random codes, signs and scales after a float16 factor, a power of two.
void fill_blocks(FormatBuffers& matrix, size_t block_bytes, float spread) {
    const auto factor = static_cast<uint16_t>((std::ilogb(spread / 80) + 15) << 10);
    for (size_t i = 0; i < matrix.data.size() / block_bytes; ++i) {
        const size_t number = i % block_cycle;
        const unsigned own =
            number == zero_block ? 0u : factor | (number == other_block ? 0x8000u : 0u);
        const auto bits = static_cast<uint16_t>(own);
        std::memcpy(&matrix.data[i * block_bytes], &bits, sizeof bits);
    }
}

// Blocks of zeros, and of one value: then types with minima have no scale but a minimum.
void make_even_blocks(Floats& source, float value) {
    for (size_t i = 0; i < source.size() / even_columns; ++i) {
        const size_t number = i % block_cycle;
        if (number == zero_block || number == other_block)
            std::fill_n(source.begin() + static_cast<ptrdiff_t>(i * even_columns), even_columns,
                        number == zero_block ? 0.0f : value);
    }
}

// How far codes lie from zero, about.
float size_of_codes(const moe_format& format) {
    if (format.type == MOE_TYPE_CODEBOOK) return 0.5f;
    if (format.type == MOE_TYPE_E2M1) return 2.5f;
    const float half = std::ldexp(1.0f, (format.type == MOE_TYPE_I8 ? 8 : format.bits) - 1);
    return half * 0.6f;
}

// A positive value that a float16 holds, in the type.
void store_number(moe_type type, float value, std::byte* to) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto bf16 = static_cast<uint16_t>(bits >> 16);
    const auto f16 = static_cast<uint16_t>((bits >> 13) - (112 << 10));
    if (type == MOE_TYPE_F32) std::memcpy(to, &value, 4);
    if (type == MOE_TYPE_BF16) std::memcpy(to, &bf16, 2);
    if (type == MOE_TYPE_F16) std::memcpy(to, &f16, 2);
    if (type == MOE_TYPE_F8_E8M0) *to = static_cast<std::byte>(bits >> 23);
}

// From one to two times `least`.
void store_scale(moe_type type, float least, uint32_t random, std::byte* to) {
    const float part = 1.0f + static_cast<float>(random % 128) / 128;
    store_number(type, std::ldexp(part, std::ilogb(least)), to);
}

// Zero points as tools write them, near the middle: streams of codes along the rows, one of each
// group of columns, in words that follow each other or, of a bit stream, lie a group apart.
Bytes random_zeros(const moe_format& format, int64_t rows, int64_t columns,
                   std::mt19937_64& random) {
    if (format.zero_point == MOE_ZERO_POINT_NONE || format.zero_point == MOE_ZERO_POINT_MIDDLE ||
        format.zero_point == MOE_ZERO_POINT_FLOAT)
        return {};
    const int64_t group = format.group_columns < 0 ? columns : format.group_columns;
    const int64_t groups = (columns + group - 1) / group, words = (rows * format.bits + 31) / 32;
    const bool apart = format.packing == MOE_PACKING_BIT_STREAM;
    const uint64_t middle = uint64_t{1} << (format.bits - 1), spread = (middle + 3) / 4;
    std::vector<uint32_t> all(static_cast<size_t>(groups * words));
    for (int64_t g = 0; g < groups; ++g)
        for (int64_t n = 0; n < rows; ++n) {
            const uint64_t zero = middle - random() % (2 * spread);
            for (int64_t b = 0; b < format.bits; ++b) {
                const int64_t bit = n * format.bits + b, word = bit / 32;
                const int64_t place = apart ? word * groups + g : g * words + word;
                all[static_cast<size_t>(place)] |= static_cast<uint32_t>(zero >> b & 1) << bit % 32;
            }
        }
    Bytes bytes(all.size() * 4);
    std::memcpy(bytes.data(), all.data(), bytes.size());
    return bytes;
}

float number_of(moe_type type, const std::byte* from) {
    uint16_t half;
    std::memcpy(&half, from, 2);
    if (type == MOE_TYPE_F16)
        return std::ldexp(static_cast<float>((half & 0x3FF) | 0x400), (half >> 10) - 25);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// A bias for each scale, as tools write them: zero is within an eighth of the range of the middle.
Bytes random_biases(const moe_format& format, const Bytes& scales, std::mt19937_64& random) {
    Bytes bytes(scales.size());
    for (size_t i = 0; i < bytes.size(); i += 2) {
        const float part = 0.375f + static_cast<float>(random() % 64) / 256;
        const float range =
            number_of(format.scale_type, &scales[i]) * static_cast<float>((1 << format.bits) - 1);
        store_number(format.scale_type, part * range, &bytes[i]);
        bytes[i + 1] |= std::byte{0x80};  // negative
    }
    return bytes;
}

// The group of each column, in an order that is the same for all matrices of a stack, as the table
// of a moe_tensor is. Groups are whole, as tools write them.
std::vector<int32_t> random_groups(const moe_format& format, int64_t columns, uint64_t table) {
    std::vector<int32_t> groups;
    for (int64_t k = 0; k < columns; ++k)
        groups.push_back(static_cast<int32_t>(k / format.group_columns));
    std::mt19937_64 random(static_cast<uint64_t>(columns) + 7919 * table);
    for (size_t i = groups.size() - 1; i > 0; --i) std::swap(groups[i], groups[random() % (i + 1)]);
    return groups;
}

// Not all powers of two.
Floats random_factors(int64_t columns, uint64_t table) {
    Floats factors;
    for (int64_t k = 0; k < columns; ++k) {
        const int64_t number = k + static_cast<int64_t>(table % 97);
        factors.push_back(std::ldexp(1.0f + 0.25f * static_cast<float>(number % 3),
                                     static_cast<int>(number % 5) - 2));
    }
    return factors;
}

// One of 29 scales becomes zero, and one of 31 negative.
void make_odd_scales(Bytes& scales, size_t size) {
    for (size_t n = 0; n < scales.size() / size; ++n) {
        std::byte* scale = &scales[n * size];
        if (n % 29 == 3) std::memset(scale, 0, size);
        if (n % 31 == 5) scale[size - 1] |= std::byte{0x80};
    }
}

void fill_scaled(const moe_format& format, int64_t rows, int64_t columns, float spread,
                 uint64_t table, std::mt19937_64& random, FormatBuffers& matrix) {
    const float scale = spread / size_of_codes(format) / 1.5f;
    matrix.zero_points = random_zeros(format, rows, columns, random);
    if (format.act_order) matrix.permutation = random_groups(format, columns, table);
    if (format.pre_quant_scale) {
        matrix.pre_quant_scale = random_factors(columns, table);
        for (auto& byte : matrix.scales) byte = static_cast<std::byte>(0x30 + random() % 16);
        matrix.global_scale = spread / 4;
        return;
    }
    if (format.nested_scales) {
        fill(matrix.scales, random);
        matrix.nested_scales.assign((matrix.scales.size() + 255) / 256, scale);
        return;
    }
    const size_t size = format.scale_type == MOE_TYPE_F32       ? 4
                        : format.scale_type == MOE_TYPE_F8_E8M0 ? 1
                                                                : 2;
    for (size_t i = 0; i < matrix.scales.size(); i += size)
        store_scale(format.scale_type, scale, static_cast<uint32_t>(random()), &matrix.scales[i]);
    // Biases are made for positive scales.
    if (format.zero_point == MOE_ZERO_POINT_FLOAT)
        matrix.zero_points = random_biases(format, matrix.scales, random);
    else if (size > 1)
        make_odd_scales(matrix.scales, size);
}

// What nested scales index.
const std::array<float, 256>& nested_codebook() {
    static const auto values = [] {
        std::array<float, 256> all{};
        for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i) / 256 - 0.25f;
        return all;
    }();
    return values;
}

}  // namespace

moe_format format_named(const char* name) {
    if (const Unnamed* found = find_unnamed(name)) return format_of(*found);
    auto format = sized<moe_format>();
    for (const GivenCodebook& one : given) {
        if (std::strcmp(one.name, name) != 0) continue;
        must(moe_format_by_name(one.like, &format), one.like);
        format.codebook = MOE_CODEBOOK_GIVEN;
        return format;
    }
    must(moe_format_by_name(name, &format), name);
    return format;
}

std::vector<const char*> packed_formats() {
    std::vector<const char*> names;
    for (uint32_t i = 0; const char* name = moe_format_name_at(i); ++i) names.push_back(name);
    return names;
}

std::vector<const char*> unnamed_formats() {
    std::vector<const char*> names;
    for (const Unnamed& one : unnamed) names.push_back(one.name);
    return names;
}

std::vector<const char*> given_codebooks() {
    std::vector<const char*> names;
    for (const GivenCodebook& one : given) names.push_back(one.name);
    return names;
}

bool has_rounded_weights(const char* name) {
    const moe_format format = format_named(name);
    const int32_t id = format.block_id;
    const bool is_within = id == 8 || id == 12 || id == 39 || id == 40;
    return find_unnamed(name) || (format.type == MOE_TYPE_GGUF && !is_within);
}

void FormatBuffers::describe(moe_tensor& tensor) const {
    tensor.data = data.data();
    tensor.data_bytes = data.size();
    tensor.scales = scales.empty() ? nullptr : scales.data();
    tensor.scale_bytes = scales.size();
    tensor.zero_points = zero_points.empty() ? nullptr : zero_points.data();
    tensor.zero_point_bytes = zero_points.size();
    tensor.permutation = permutation.empty() ? nullptr : permutation.data();
    tensor.permutation_bytes = permutation.size() * sizeof(int32_t);
    tensor.pre_quant_scale = pre_quant_scale.empty() ? nullptr : pre_quant_scale.data();
    tensor.pre_quant_scale_bytes = pre_quant_scale.size() * sizeof(float);
    tensor.codebook = codebook.empty() ? nullptr : codebook.data();
    tensor.codebook_bytes = codebook.size() * sizeof(float);
    if (nested_scales.empty()) return;
    tensor.nested_scales = nested_scales.data();
    tensor.nested_scale_bytes = nested_scales.size() * sizeof(float);
    tensor.nested_codebook = nested_codebook().data();
    tensor.nested_offset = nested_scales[0] / 2;
}

void FormatBuffers::append(const FormatBuffers& next) {
    const auto add = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
    };
    add(data, next.data);
    add(scales, next.scales);
    add(zero_points, next.zero_points);
    add(nested_scales, next.nested_scales);
    permutation = next.permutation;
    pre_quant_scale = next.pre_quant_scale;
    codebook = next.codebook;
}

FormatBuffers random_matrix(const moe_format& format, int64_t rows, int64_t columns, uint64_t seed,
                            float spread, float middle, uint64_t codebook, uint64_t table) {
    FormatBuffers matrix;
    if (format.codebook == MOE_CODEBOOK_GIVEN)
        matrix.codebook = make_codebook(format.bits, codebook);
    uint64_t data = 0, scales = 0;
    must(moe_format_size(&format, rows, columns, &data, &scales), "moe_format_size");
    matrix.data.resize(data);
    matrix.scales.resize(scales);
    if (is_written(format)) {
        Floats source = normal(rows * columns, seed, spread);
        for (float& value : source) value += middle;
        if (format.type == MOE_TYPE_GGUF && columns % even_columns == 0)
            make_even_blocks(source, middle - spread / 2);
        quantize(format, source, rows, columns, matrix);
        return matrix;
    }
    std::mt19937_64 random(seed);
    fill(matrix.data, random);
    if (format.type == MOE_TYPE_GGUF)
        fill_blocks(matrix, data / static_cast<uint64_t>(rows * columns / 256), spread);
    else
        fill_scaled(format, rows, columns, spread, table, random, matrix);
    return matrix;
}

}  // namespace moe_gpu
