// q4_1 (ggml type 3): blocks of 20 bytes for 32 columns of a row: f16 d, f16 m, 16 bytes q. Byte j
// holds column j in its low nibble, column j + 16 in its high one.
//   W[n, k] = d * nibble + m                                 exact product, one rounding
// Encoding: m is the least value, d the distance from it to the largest over 15; each nibble is
// rounded to nearest against the f16 d and m.
#include "libmoe/formats/gguf_small.hpp"

namespace moe {
namespace {

struct Q4_1 {
    static constexpr int32_t id = 3;
    static constexpr int32_t columns = small_columns;
    static constexpr int32_t bytes = 20;

    static void read_codes(const std::byte* block, BlockColumns, uint8_t* codes) {
        read_nibbles(block + 4, codes);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block);
        const float m = load_f16(block + 2);
        SmallCodes codes;
        read_codes(block, all_small, codes);
        for (int i = 0; i < columns; ++i) out[i] = d * static_cast<float>(codes[i]) + m;
    }

    static void encode(const float* values, std::byte* block) {
        SmallCodes codes;
        encode_span(values, 15, block, codes);
        write_nibbles(codes, block + 4);
    }
};

}  // namespace

constinit const FormatTraits q4_1_format = GgufFormat<Q4_1>::traits("q4_1");

}  // namespace moe
