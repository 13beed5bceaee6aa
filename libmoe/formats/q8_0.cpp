// q8_0 (ggml type 8): blocks of 34 bytes for 32 columns of a row: f16 d, then 32 signed bytes q.
//   W[n, k] = d * q                                          exact
// Encoding: d = amax / 127, q = w * (1 / d) rounded to the nearest integer, halves away from zero,
// with d before it is rounded to f16. A d beyond f16 is taken as 65504, one that rounds to zero as
// zero.
#include "libmoe/formats/gguf_block.hpp"

namespace moe {
namespace {

constexpr int64_t block = 32;
constexpr int64_t block_bytes = 34;

void decode_block(const std::byte* __restrict bytes, float* __restrict out) {
    const float d = f16_to_float(load<uint16_t>(bytes));
    for (int i = 0; i < block; ++i) {
        out[i] = d * static_cast<float>(load<int8_t>(bytes + 2 + i));
    }
}

void encode_block(const float* values, std::byte* bytes) {
    const float d = std::min(largest_magnitude(values, block) / 127.0f, 65504.0f);
    const uint16_t code = float_to_f16(d);
    store(bytes, code);
    const float inverse = code ? 1.0f / d : 0.0f;
    for (int i = 0; i < block; ++i) {
        const float q = std::clamp(std::round(values[i] * inverse), -127.0f, 127.0f);
        store(bytes + 2 + i, static_cast<int8_t>(q));
    }
}

struct Q8_0 {
    static constexpr int32_t id = 8;
    static constexpr int32_t columns = block;
    static constexpr int32_t bytes = block_bytes;
    static constexpr auto decode = decode_block;
    static constexpr auto encode = encode_block;
};

}  // namespace

constinit const FormatTraits q8_0_format = GgufFormat<Q8_0>::traits("q8_0");

}  // namespace moe
