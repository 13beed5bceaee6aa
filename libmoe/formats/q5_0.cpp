// q5_0 (ggml type 6): blocks of 22 bytes for 32 columns of a row: f16 d, 32 bits qh, 16 bytes q.
// Byte j of q holds the low four bits of column j in its low nibble, of column j + 16 in its high
// one; bit i of qh is the fifth bit of column i.
//   W[n, k] = d * (nibble + 16 bit - 16)                     exact
// Encoding: d takes the value of largest magnitude, with its sign, to code 0: d = -value / 16; each
// code is rounded to nearest against the f16 d.
#include "libmoe/formats/gguf_small.hpp"

namespace moe {
namespace {

struct Q5_0 {
    static constexpr int32_t id = 6;
    static constexpr int32_t columns = small_columns;
    static constexpr int32_t bytes = 22;

    static void read_codes(const std::byte* block, BlockColumns, uint8_t* codes) {
        read_nibbles(block + 6, codes);
        read_fifth_bits(block + 2, codes);
    }

    static void decode(const std::byte* block, float* __restrict out) {
        const float d = load_f16(block);
        SmallCodes codes;
        read_codes(block, all_small, codes);
        for (int i = 0; i < columns; ++i) out[i] = d * static_cast<float>(codes[i] - 16);
    }

    static void encode(const float* values, std::byte* block) {
        SmallCodes codes;
        encode_symmetric(values, 16, block, codes);
        write_fifth_bits(codes, block + 2);
        write_nibbles(codes, block + 6);
    }
};

}  // namespace

constinit const FormatTraits q5_0_format = GgufFormat<Q5_0>::traits("q5_0");

}  // namespace moe
