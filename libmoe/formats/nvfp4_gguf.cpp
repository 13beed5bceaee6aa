// nvfp4_gguf (ggml type 40): blocks of 36 bytes for 64 columns of a row: 4 bytes of scales, 32
// bytes q; and one float32 scale of the whole matrix, which files keep in a tensor of its own.
// Sub-block b of 16 columns has scale b, an E4M3 whose sign bit does not count (0x7F is 0, 0xFF is
// 480). Byte j of its 8 bytes q holds its column j in the low nibble, j + 8 in the high one.
//   W[n, k] = (e2m1(code) * scale[k / 16]) * global      the first product is exact, one rounding
// Read only: the same without a global scale. Encoding is that of nvfp4: the values are the same,
// only their layout differs.
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

constexpr int64_t block = 64;
constexpr int64_t block_bytes = 36;
constexpr int sub_blocks = 4;
constexpr int sub_block = 16;
constexpr int half = sub_block / 2;

float scale_value(uint8_t code) {
    if (code == 0x7F) return 0.0f;
    return code == 0xFF ? 480.0f : e4m3_to_f32(code & 0x7F);
}

void decode_block(const std::byte* bytes, float global, float* __restrict out) {
    for (int b = 0; b < sub_blocks; ++b) {
        const float scale = scale_value(load<uint8_t>(bytes + b));
        for (int j = 0; j < half; ++j) {
            const uint8_t byte = load<uint8_t>(bytes + sub_blocks + half * b + j);
            const E2m1Pair& pair = e2m1_pairs.pair[byte];
            out[sub_block * b + j] = (pair.low * scale) * global;
            out[sub_block * b + j + half] = (pair.high * scale) * global;
        }
    }
}

template <moe_global_scale rule>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const std::byte* bytes = matrix.data + row * matrix.row_stride + column / block * block_bytes;
    const float global = rule == MOE_GLOBAL_SCALE_NONE ? 1.0f : matrix.global_scale;
    for (int64_t i = 0; i < count / block; ++i)
        decode_block(bytes + i * block_bytes, global, out + i * block);
}

void encode_block(const float* values, float global, std::byte* bytes) {
    for (int b = 0; b < sub_blocks; ++b) {
        const float* first = values + sub_block * b;
        const uint8_t code = encode_nvfp4_scale(first, sub_block, global);
        const float scale = e4m3_to_f32(code) * global;
        store(bytes + b, code);
        for (int j = 0; j < half; ++j) {
            const int low = f32_to_e2m1(first[j] / scale);
            const int high = f32_to_e2m1(first[j + half] / scale);
            store(bytes + sub_blocks + half * b + j, static_cast<uint8_t>(low | high << 4));
        }
    }
}

void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    require_finite(traits, source, rows, columns);
    const int64_t count = rows * columns;
    *target.global_scale = encode_nvfp4_global(source, count);
    for (int64_t i = 0; i < count / block; ++i)
        encode_block(source + i * block, *target.global_scale, target.data + i * block_bytes);
}

template <moe_global_scale rule>
constexpr FormatTraits entry(const char* name, decltype(FormatTraits::encode) encoder) {
    moe_format format = format_of(MOE_TYPE_GGUF);
    format.block_id = 40;
    format.global_scale = rule;
    return {.name = name,
            .format = format,
            .block_rows = 1,
            .block_columns = block,
            .block_bytes = block_bytes,
            .scale_bytes = 0,
            .decode = decode<rule>,
            .encode = encoder};
}

}  // namespace

constinit const FormatTraits nvfp4_gguf_format =
    entry<MOE_GLOBAL_SCALE_MULTIPLY>("nvfp4_gguf", encode);
constinit const FormatTraits nvfp4_gguf_alone_format =
    entry<MOE_GLOBAL_SCALE_NONE>("nvfp4_gguf_alone", nullptr);

}  // namespace moe
