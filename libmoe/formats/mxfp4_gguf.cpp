// mxfp4_gguf (ggml type 39): blocks of 17 bytes for 32 columns of a row: an E8M0 scale e, 16 bytes
// q. Byte j holds column j in its low nibble, column j + 16 in its high one.
//   W[n, k] = e2m1(code) * 2^(e - 127)                  exact; e 0 is 2^-127, 0xFF is NaN
// Encoding is that of mxfp4: the values are the same, only their layout differs.
#include "libmoe/formats/gguf_block.hpp"

namespace moe {
namespace {

struct Mxfp4Gguf {
    static constexpr int32_t id = 39;
    static constexpr int32_t columns = 32;
    static constexpr int32_t bytes = 17;

    static void decode(const std::byte* __restrict block, float* __restrict out) {
        const float scale = e8m0_to_f32(load<uint8_t>(block));
        for (int j = 0; j < columns / 2; ++j) {
            const E2m1Pair& pair = e2m1_pairs.pair[load<uint8_t>(block + 1 + j)];
            out[j] = pair.low * scale;
            out[j + columns / 2] = pair.high * scale;
        }
    }

    static void encode(const float* values, std::byte* block) {
        const uint8_t code = encode_e8m0_scale(values, columns);
        const float scale = e8m0_to_f32(code);
        store(block, code);
        for (int j = 0; j < columns / 2; ++j) {
            const int low = f32_to_e2m1(values[j] / scale);
            const int high = f32_to_e2m1(values[j + columns / 2] / scale);
            store(block + 1 + j, static_cast<uint8_t>(low | high << 4));
        }
    }
};

}  // namespace

constinit const FormatTraits mxfp4_gguf_format = GgufFormat<Mxfp4Gguf>::traits("mxfp4_gguf");

}  // namespace moe
