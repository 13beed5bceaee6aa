// q5_1 (ggml type 7): blocks of 24 bytes for 32 columns of a row: f16 d, f16 m, 32 bits qh, 16
// bytes q. Byte j of q holds the low four bits of column j in its low nibble, of column j + 16 in
// its high one; bit i of qh is the fifth bit of column i.
//   W[n, k] = d * (nibble + 16 bit) + m                      exact product, one rounding
// Encoding: m is the least value, d the distance from it to the largest over 31; each code is
// rounded to nearest against the f16 d and m.
#include "libmoe/formats/gguf_small.hpp"

namespace moe {
namespace {

struct Q5_1 {
    static constexpr int32_t id = 7;
    static constexpr int32_t columns = small_columns;
    static constexpr int32_t bytes = 24;

    static void read_codes(const std::byte* block, BlockColumns, uint8_t* codes) {
        read_nibbles(block + 8, codes);
        read_fifth_bits(block + 4, codes);
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
        encode_span(values, 31, block, codes);
        write_fifth_bits(codes, block + 4);
        write_nibbles(codes, block + 8);
    }
};

}  // namespace

constinit const FormatTraits q5_1_format = GgufFormat<Q5_1>::traits("q5_1");

}  // namespace moe
