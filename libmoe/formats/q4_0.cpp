// q4_0 (ggml type 2): blocks of 18 bytes for 32 columns of a row: f16 d, 16 bytes q. Byte j holds
// column j in its low nibble, column j + 16 in its high one.
//   W[n, k] = d * (nibble - 8)                               exact
// Encoding: d takes the value of largest magnitude, with its sign, to nibble 0: d = -value / 8;
// each nibble is rounded to nearest against the f16 d.
#include "libmoe/formats/gguf_small.hpp"

namespace moe {
namespace {

struct Q4_0 {
    static constexpr int32_t id = 2;
    static constexpr int32_t columns = small_columns;
    static constexpr int32_t bytes = 18;

    static void read_codes(const std::byte* block, BlockColumns, uint8_t* codes) {
        read_nibbles(block + 2, codes);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block);
        SmallCodes codes;
        read_codes(block, all_small, codes);
        for (int i = 0; i < columns; ++i) out[i] = d * static_cast<float>(codes[i] - 8);
    }

    static void encode(const float* values, std::byte* block) {
        SmallCodes codes;
        encode_symmetric(values, 8, block, codes);
        write_nibbles(codes, block + 2);
    }
};

}  // namespace

constinit const FormatTraits q4_0_format = GgufFormat<Q4_0>::traits("q4_0");

}  // namespace moe
