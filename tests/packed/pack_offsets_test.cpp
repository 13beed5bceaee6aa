// Single codes and scales lie at the very bits the layout prescribes, worked out by hand here, so
// that pack and unpack cannot be wrong together; scales of every value keep it.
#include <gtest/gtest.h>

#include "libmoe/base/element.hpp"
#include "libmoe/weights/view.hpp"
#include "tests/packed/packing.hpp"

namespace moe {
namespace {

using namespace test;

// One bit by hand: byte of the block's codes and bit in it.
struct Bit {
    int64_t byte;
    int bit;
};

// One code of ones in zeros: the set bits of the block, and where they must be.
struct CodeCase {
    const char* format;
    int64_t columns;
    int64_t row, column;
    uint32_t code;
    std::vector<Bit> bits;  // of the code's bits, lowest first, in the whole tile
};

// Column i of a block of q2_k, q3_k, q5_k or q6_k, whose bits are zeros; false for other formats.
bool set_k_code(std::byte* block, int32_t block_id, int i, uint32_t code) {
    const auto put = [&](int byte, int bit, uint32_t bits) {
        block[byte] |= static_cast<std::byte>(bits << bit);
    };
    const int quarter = i / 128 * 32 + i % 32;
    switch (block_id) {
        case 10:
            put(16 + quarter, i % 128 / 32 * 2, code);
            return true;
        case 11:
            put(32 + quarter, i % 128 / 32 * 2, code & 3);
            put(i % 32, i / 32, code >> 2);
            return true;
        case 13:
            put(48 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, code & 15);
            put(16 + i % 32, i / 32, code >> 4);
            return true;
        case 14:
            put(i / 128 * 64 + i % 64, i % 128 / 64 * 4, code & 15);
            put(128 + quarter, i % 128 / 32 * 2, code >> 4);
            return true;
        default:
            return false;
    }
}

void set_code(Stored& stored, int64_t row, int64_t column, uint32_t code) {
    std::byte* at = stored.data.data() + row * static_cast<int64_t>(stored.bytes.row_stride);
    const moe_format& format = stored.traits->format;
    const auto put_nibble = [&](int64_t byte, bool high) {
        at[byte] |= static_cast<std::byte>(code << (high ? 4 : 0));
    };
    if (format.type == MOE_TYPE_E2M1) return put_nibble(column / 2, column % 2);
    if (format.type == MOE_TYPE_CODEBOOK) {
        for (int b = 0; b < format.bits; ++b)
            at[column / 32 * 4 * format.bits + 4 * b + column % 32 / 8] |=
                static_cast<std::byte>((code >> b & 1) << column % 8);
        return;
    }
    if (format.block_id == 39) return put_nibble(column / 32 * 17 + 1 + column % 16, column & 16);
    if (format.block_id == 12)
        return put_nibble(column / 256 * 144 + 16 + column % 256 / 64 * 32 + column % 32,
                          column & 32);
    if (format.block_id == 2 || format.block_id == 20)
        return put_nibble(column / 32 * 18 + 2 + column % 16, column & 16);
    if (format.block_id == 23)
        return put_nibble(column / 256 * 136 + 8 + column % 256 / 32 * 16 + column % 16,
                          column & 16);
    if (set_k_code(at + column / 256 * stored.traits->block_bytes, format.block_id,
                   static_cast<int>(column % 256), code))
        return;
    const int64_t bytes = format.block_id == 8 ? 1 : stored.traits->block_bytes;
    const int64_t place =
        format.block_id == 8 ? column / 32 * 34 + 2 + column % 32 : column * bytes;
    std::memcpy(at + place, &code, static_cast<size_t>(bytes));
}

// Lane 4 g + t, step j, register a, half e of the comments: worked out on paper from
// packed/layout.hpp.
const CodeCase code_cases[] = {
    // bf16, 16 bytes per lane and step. Row 0, k 0: lane 0, step 0, register 0, half 0.
    {"bf16", 64, 0, 0, 0x8001, {{0, 0}, {1, 7}}},
    // Row 9, k 23: g 1, t 1 (lane 5), step 1, p 3: a 3, e 1: 512 + 80 + 14.
    {"bf16", 64, 9, 23, 0x8001, {{606, 0}, {607, 7}}},
    // The same of the second block, half of which is padding.
    {"f16", 96, 9, 64 + 23, 0x8001, {{2048 + 606, 0}, {2048 + 607, 7}}},
    // k 64 + 38: t 2, j 1, p 2; row 8: a 3, e 0: 512 + 32 + 12.
    {"bf16", 112, 8, 102, 0x8001, {{2048 + 556, 0}, {2048 + 557, 7}}},
    // f32, 32 bytes per lane and step in two parts of 16. Row 15, k 63: lane 31, j 3, a 3, e 1.
    {"f32", 64, 15, 63, 0x80000001, {{7 * 512 + 31 * 16 + 12, 0}, {7 * 512 + 31 * 16 + 15, 7}}},
    // Row 2, k 2: lane 8, j 0, p 2: register 2, element 4 of the step.
    {"f32", 64, 2, 2, 0x80000001, {{512 + 128, 0}, {512 + 131, 7}}},
    // e4m3, by rows. Row 8, k 13: t 0, j 3, p 1.
    {"fp8_128x128", 64, 8, 13, 0x41, {{512 + 384 + 1, 0}, {512 + 384 + 1, 6}}},
    {"fp8_128x128", 16, 1, 15, 0x41, {{384 + 16 + 3, 0}, {384 + 16 + 3, 6}}},
    {"fp8_128x128", 32, 8, 12, 0x41, {{512 + 384, 0}, {512 + 384, 6}}},
    // Row 10, k 37: t 2, j 1, p 1.
    {"fp8_128x128", 64, 10, 37, 0x41, {{512 + 128 + 32 + 8 + 1, 0}, {512 + 128 + 32 + 8 + 1, 6}}},
    // q8_0: 8 bytes per lane and step, two steps per part. Row 8, k 13: t 0, j 3, p 1: a 1, e 1.
    {"q8_0", 64, 8, 13, 0x81, {{512 + 8 + 3, 0}, {512 + 8 + 3, 7}}},
    // e2m1, register 0: low bits 6, 7, 8 and sign 15 of the low half. Row 0, k 0.
    {"nvfp4", 64, 0, 0, 15, {{0, 6}, {0, 7}, {1, 0}, {1, 7}}},
    // Row 0, k 1: the high half.
    {"nvfp4", 64, 0, 1, 15, {{2, 6}, {2, 7}, {3, 0}, {3, 7}}},
    // Row 8, k 20: lane 1, step 1 (bytes 20..23), register 1: bits 0, 1, 2 and 9.
    {"nvfp4", 64, 8, 20, 15, {{20, 0}, {20, 1}, {20, 2}, {21, 1}}},
    // Row 3, k 50: lane 15, step 0, p 2: register 2: bits 10, 11, 12 and 3 of the other half.
    {"nvfp4", 64, 3, 50, 15, {{241, 2}, {241, 3}, {241, 4}, {242, 3}}},
    // p 3: high half, its sign in the low one.
    {"nvfp4", 64, 3, 51, 15, {{243, 2}, {243, 3}, {243, 4}, {240, 3}}},
    // Row 11, p 2 and p 3: register 3: bits 4, 5, 14 and sign 13.
    {"nvfp4", 64, 11, 50, 15, {{240, 4}, {240, 5}, {241, 6}, {241, 5}}},
    {"mxfp4", 64, 11, 51, 15, {{242, 4}, {242, 5}, {243, 6}, {243, 5}}},
    {"mxfp4_gguf", 64, 8, 20, 15, {{20, 0}, {20, 1}, {20, 2}, {21, 1}}},
    // Blocks that are not full; the second one of k 80 at 576.
    {"mxfp4", 32, 8, 12, 15, {{12, 0}, {12, 1}, {12, 2}, {13, 1}}},
    {"nvfp4", 80, 0, 64 + 5, 15, {{576 + 6, 6}, {576 + 6, 7}, {576 + 7, 0}, {576 + 7, 7}}},
    // kbit4: nibble a + 4 e. Row 11, k 51: lane 15, step 0, a 3, e 1: nibble 7.
    {"kbit4", 64, 11, 51, 15, {{243, 4}, {243, 5}, {243, 6}, {243, 7}}},
    {"kbit4_f32", 32, 8, 12, 15, {{12, 4}, {12, 5}, {12, 6}, {12, 7}}},
    // q4_k: the fourth block of the second 256 begins at 2304 + 1536.
    {"q4_k", 512, 3, 500, 15, {{4084, 0}, {4084, 1}, {4084, 2}, {4084, 3}}},
    // kbit2: 8 bytes a lane; step 3 in bits 2, 3 of the nibbles of word 1, those of row 8 from
    // nibble 4 on. Row 8, k 12 + 3: a 3, e 1; k 12 and 12 + 2: nibbles 4 and 5.
    {"kbit2", 64, 8, 15, 3, {{7, 6}, {7, 7}}},
    {"kbit2", 64, 8, 12, 3, {{6, 2}, {6, 3}}},
    {"kbit2", 64, 8, 14, 3, {{6, 6}, {6, 7}}},
    // Row 0, k 12 + 1 and 12 + 3: nibbles 2 and 3.
    {"kbit2", 64, 0, 13, 3, {{5, 2}, {5, 3}}},
    {"kbit2", 64, 0, 15, 3, {{5, 6}, {5, 7}}},
    {"kbit2_f32", 64, 1, 4, 3, {{32, 2}, {32, 3}}},
    {"kbit2", 32, 1, 8, 3, {{36, 0}, {36, 1}}},
    // kbit3: words 0, 1 at 8 l, word 2 at 256 + 4 l. Row 1, k 16 + 4: lane 5, step 1.
    {"kbit3", 64, 1, 20, 7, {{44, 0}, {44, 1}, {44, 2}}},
    // a 2, e 1: nibble 3.
    {"kbit3", 64, 1, 24 + 3, 7, {{256 + 20 + 1, 4}, {256 + 20 + 1, 5}, {256 + 20 + 1, 6}}},
    // Step 3: one bit in each word, bit 3 of nibble 1, which a 2, e 0 has.
    {"kbit3_f32", 64, 1, 28 + 2, 7, {{40, 7}, {44, 7}, {256 + 20, 7}}},
    // Row 9, k 8 + 1 and 12 + 1: lane 4, steps 2 and 3, a 1, e 1: nibble 6.
    {"kbit3", 32, 9, 9, 7, {{272 + 3, 0}, {272 + 3, 1}, {272 + 3, 2}}},
    {"kbit3", 32, 9, 13, 7, {{32 + 3, 3}, {36 + 3, 3}, {272 + 3, 3}}},
    // Row 1, k 12 + 3: nibble 3.
    {"kbit3", 32, 1, 15, 7, {{32 + 1, 7}, {36 + 1, 7}, {272 + 1, 7}}},
    // kbit5: nibbles as kbit4, fifth bits at 512 + 4 l. Row 9, k 29: lane 5, step 3, a 1, e 1. Sign
    // and magnitude of code 0 are 31, of 16 they are 0, of 31 they are 15.
    {"kbit5", 64, 9, 29, 16, {{94, 4}, {94, 5}, {94, 6}, {94, 7}, {512 + 22, 7}}},
    {"kbit5", 64, 9, 29, 31, {{512 + 22, 7}}},
    {"kbit5", 64, 9, 29, 1, {{94, 4}}},
    {"kbit5_f32", 64, 0, 0, 16, {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {512, 0}}},
    // iq4_nl, iq4_xs: by rows. Row 8, k 12 + 3: step 3, a 3, e 1: nibble 7; k 12 + 2 and 12 + 1:
    // nibbles 5 and 6. Row 0, k 12 + 3: nibble 3. Row 8, k 12 of 32: step 3, nibble 4.
    {"iq4_nl", 64, 8, 15, 15, {{15, 4}, {15, 5}, {15, 6}, {15, 7}}},
    {"iq4_nl", 64, 8, 14, 15, {{14, 4}, {14, 5}, {14, 6}, {14, 7}}},
    {"iq4_nl", 64, 8, 13, 15, {{15, 0}, {15, 1}, {15, 2}, {15, 3}}},
    {"iq4_nl", 64, 0, 15, 15, {{13, 4}, {13, 5}, {13, 6}, {13, 7}}},
    {"iq4_nl", 32, 8, 12, 15, {{14, 0}, {14, 1}, {14, 2}, {14, 3}}},
    {"iq4_xs", 256, 8, 13, 15, {{15, 0}, {15, 1}, {15, 2}, {15, 3}}},
    // ggml's others: in turns, nibble a + 4 e; q6_k: nibbles, then bits 4 and 5 as two
    // bits. Row 9, k 29: lane 5, step 3, a 1, e 1: word 1 of 8 bytes a lane at 512, its bits
    // 22, 23.
    {"q4_0", 64, 8, 20, 15, {{20, 4}, {20, 5}, {20, 6}, {20, 7}}},
    {"q2_k", 256, 8, 15, 3, {{7, 6}, {7, 7}}},
    {"q2_k", 256, 8, 14, 3, {{5, 6}, {5, 7}}},
    {"q3_k", 256, 1, 20, 7, {{44, 0}, {44, 1}, {44, 2}}},
    {"q3_k", 256, 1, 27, 7, {{256 + 23, 0}, {256 + 23, 1}, {256 + 23, 2}}},
    {"q5_k", 256, 9, 29, 31, {{94, 4}, {94, 5}, {94, 6}, {94, 7}, {512 + 22, 7}}},
    // The second 256 begin after four blocks of 768 and 16 heads of 18.
    {"q6_k",
     512,
     9,
     256 + 29,
     63,
     {{3454, 4}, {3454, 5}, {3454, 6}, {3454, 7}, {3360 + 558, 6}, {3360 + 558, 7}}},
    // Row 9, k 13 of 32: lane 4, step 3, a 1, e 1.
    {"kbit5", 32, 9, 13, 16, {{78, 4}, {78, 5}, {78, 6}, {78, 7}, {512 + 18, 7}}},
};

// Codes of zeros with scales that are not zero.
Stored zero_codes(const FormatTraits& traits, int64_t columns) {
    Stored stored(traits, 16, columns);
    if (traits.format.scale_type == MOE_TYPE_F32)
        for (size_t i = 0; i < stored.scales.size(); i += 4) stored.scales[i + 3] = std::byte{0x3F};
    else
        std::fill(stored.scales.begin(), stored.scales.end(), std::byte{0x38});
    return stored;
}

TEST(PackCodes, LieAtTheBitsTheLayoutSays) {
    for (const CodeCase& one : code_cases) {
        auto stored = zero_codes(*find_format(one.format), one.columns);
        const Packed empty = packed(view(stored));
        set_code(stored, one.row, one.column, one.code);
        Packed got = packed(view(stored));
        Packed wanted = empty;
        for (const Bit& bit : one.bits)
            wanted.bytes[static_cast<size_t>(bit.byte)] ^= static_cast<std::byte>(1 << bit.bit);
        for (size_t i = 0; i < got.bytes.size(); ++i)
            EXPECT_EQ(static_cast<int>(got.bytes[i]), static_cast<int>(wanted.bytes[i]))
                << one.format << " of k " << one.columns << ": row " << one.row << ", column "
                << one.column << ": byte " << i;
    }
}

// Every bit of the codes is one code's: distinct codes at all places leave none unset or shared.
TEST(PackCodes, EveryBitHasOneOwner) {
    for (const char* name : {"bf16", "fp8_128x128", "nvfp4", "kbit2", "kbit3", "kbit4", "kbit5"}) {
        const FormatTraits& traits = *find_format(name);
        constexpr int64_t k = 64;
        const Packed empty = packed(view(zero_codes(traits, k)));
        std::vector<std::byte> seen(empty.bytes.size());
        const uint32_t ones = (1u << code_bits(empty.type)) - 1;
        // What differs from code 0 in all bits but one of NaN.
        const uint32_t bits_set = empty.type == PackedType::e4m3 ? 0xFE : ones;
        const uint32_t code = has_sign_codes(empty.type) ? 16 : bits_set;
        for (int64_t i = 0; i < 16 * k; ++i) {
            auto stored = zero_codes(traits, k);
            set_code(stored, i / k, i % k, code);
            const Packed one = packed(view(stored));
            int count = 0;
            for (size_t b = 0; b < seen.size(); ++b) {
                const std::byte bits = one.bytes[b] ^ empty.bytes[b];
                ASSERT_EQ(static_cast<int>(seen[b] & bits), 0) << name << " shares byte " << b;
                seen[b] |= bits;
                count += std::popcount(static_cast<uint8_t>(bits));
            }
            ASSERT_EQ(count, std::popcount(bits_set)) << name;
        }
    }
}

struct ScaleCase {
    const char* format;
    int64_t columns;
    int64_t row, column;
    size_t byte;  // in the tile
};

TEST(PackScales, LieAtTheBytesTheLayoutSays) {
    const ScaleCase cases[] = {
        {"nvfp4", 64, 0, 0, 512},
        {"nvfp4", 64, 8, 0, 513},
        {"nvfp4", 64, 9, 48, 512 + 15},
        {"nvfp4", 32, 9, 16, 512 + 11},
        {"nvfp4", 80, 3, 64, 576 + 512 + 24},
        {"mxfp4", 64, 9, 32, 512 + 7},
        {"mxfp4", 32, 9, 0, 512 + 5},
        {"kbit3", 64, 9, 32, 384 + 7},
        {"kbit3", 32, 9, 0, 384 + 5},
        {"kbit5", 96, 9, 64, 672 + 640 + 5},
    };
    for (const ScaleCase& one : cases) {
        const FormatTraits& traits = *find_format(one.format);
        auto stored = zero_codes(traits, one.columns);
        const Packed before = packed(view(stored));
        const auto group = static_cast<size_t>(one.column / traits.format.group_columns);
        auto& scale =
            stored.scales[static_cast<size_t>(one.row) * stored.bytes.scale_row_stride + group];
        scale = std::byte{0x30};
        const Packed after = packed(view(stored));
        for (size_t i = 0; i < after.bytes.size(); ++i)
            EXPECT_EQ(before.bytes[i] != after.bytes[i], i == one.byte)
                << one.format << " of k " << one.columns << ", byte " << i;
    }
}

TEST(PackScales, WideOnesLieWhereTheLayoutSays) {
    const float mark = 1.5f;
    // kbit4_f32: row 9, group 1 of 2: element (1 * 2 + 1) * 2 + 1.
    auto kbit = zero_codes(*find_format("kbit4_f32"), 64);
    std::memcpy(&kbit.scales[(9 * 2 + 1) * 4], &mark, 4);
    EXPECT_EQ(std::memcmp(packed(view(kbit)).bytes.data() + 512 + 28, &mark, 4), 0);
    // q8_0: row 9, group 1: two bytes at 1024 + 14.
    auto q8 = zero_codes(*find_format("q8_0"), 64);
    q8.data[9 * 68 + 34] = std::byte{0x12};
    q8.data[9 * 68 + 35] = std::byte{0x34};
    EXPECT_EQ(packed(view(q8)).bytes[1024 + 14], std::byte{0x12});
    EXPECT_EQ(packed(view(q8)).bytes[1024 + 15], std::byte{0x34});
    // q4_k: head of row 9 of the second 256, 16 bytes as they are.
    auto q4 = zero_codes(*find_format("q4_k"), 512);
    for (size_t i = 0; i < 16; ++i) q4.data[9 * 288 + 144 + i] = static_cast<std::byte>(i + 1);
    const Packed heads = packed(view(q4));
    for (size_t i = 0; i < 16; ++i)
        EXPECT_EQ(heads.bytes[2304 + 2048 + 144 + i], static_cast<std::byte>(i + 1));
    // q4_1: row 9, group 1 of 2, d and m: the seventh four bytes.
    auto q4_1 = zero_codes(*find_format("q4_1"), 64);
    for (size_t i = 0; i < 4; ++i) q4_1.data[9 * 40 + 20 + i] = static_cast<std::byte>(i + 1);
    const Packed pairs = packed(view(q4_1));
    for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(pairs.bytes[512 + 28 + i], static_cast<std::byte>(i + 1));
    // q2_k: 16 bytes of row 9 from the front of its block, four from the end.
    auto q2 = zero_codes(*find_format("q2_k"), 256);
    for (size_t i = 0; i < 20; ++i)
        q2.data[9 * 84 + i + (i < 16 ? 0 : 64)] = static_cast<std::byte>(i + 1);
    const Packed parts = packed(view(q2));
    for (size_t i = 0; i < 20; ++i)
        EXPECT_EQ(parts.bytes[1024 + 180 + i], static_cast<std::byte>(i + 1));
    // iq2_xs: the block of row 9.
    auto grid = zero_codes(*find_format("iq2_xs"), 256);
    for (size_t i = 0; i < 74; ++i) grid.data[9 * 74 + i] = static_cast<std::byte>(i + 1);
    const Packed blocks = packed(view(grid));
    for (size_t i = 0; i < 74; ++i)
        EXPECT_EQ(blocks.bytes[9 * 74 + i], static_cast<std::byte>(i + 1));
}

TEST(PackScales, Fp8GroupsRepeatPerEightRowsAnd32Columns) {
    const FormatTraits& traits = *find_format("fp8_128x128");
    Stored stored(traits, 256, 256);
    const float scales[4] = {1, 2, 3, 4};
    std::memcpy(stored.scales.data(), scales, sizeof scales);
    const auto quad = [&](const Matrix& matrix, int64_t tile, int64_t k0) {
        const Packed got = packed(matrix);
        std::array<float, 4> four{};
        const auto at =
            tile * tile_bytes(got.type, matrix.columns) + block_offset(got.type, k0).scales;
        std::memcpy(four.data(), got.bytes.data() + at, 16);
        return four;
    };
    using Four = std::array<float, 4>;
    EXPECT_EQ(quad(view(stored), 0, 64), (Four{1, 1, 1, 1}));
    EXPECT_EQ(quad(view(stored), 8, 128), (Four{4, 4, 4, 4}));
    // From row 120 and column 96 the group changes inside the tile and the block: rows, then
    // columns.
    const Matrix slice = part_of(view(stored), 120, 16, 96, 96);
    EXPECT_EQ(quad(slice, 0, 0), (Four{1, 3, 2, 4}));
    EXPECT_EQ(quad(slice, 0, 64), (Four{2, 4, 0, 0}));
}

TEST(PackScales, EveryE4m3ByteIsHeldExactly) {
    const FormatTraits& traits = *find_format("nvfp4");
    auto stored = make(traits, 16, 256, 3);  // 256 groups of 16 with random codes
    for (size_t i = 0; i < 256; ++i)
        stored.scales[i] = static_cast<std::byte>((i & 0x7F) == 0x7F ? 0 : i);
    const Packed got = packed(view(stored));
    ASSERT_NO_FATAL_FAILURE(expect_values(unpacked(got, view(stored)), view(stored), "nvfp4"));
    for (size_t group = 0; group < 256; ++group) {
        const size_t row = group / 16, block = group % 16 / 4, t = group % 4;
        const auto byte =
            static_cast<uint8_t>(got.bytes[block * 576 + 512 + 2 * (4 * (row % 8) + t) + row / 8]);
        const float scale = e4m3_to_f32(static_cast<uint8_t>(stored.scales[group]) & 0x7F);
        const float decoded =
            std::ldexp(1.0f + static_cast<float>(byte & 7) / 8.0f, (byte >> 3) - 10);
        if (scale > 0)
            EXPECT_EQ(decoded, scale) << "of E4M3 code " << group;
        else
            EXPECT_EQ(byte, 0) << "of E4M3 code " << group;
    }
}

TEST(PackScales, EveryE4m4ByteIsHeldAsItIs) {
    auto stored = make(*find_format("kbit4"), 16, 512, 3);
    for (size_t i = 0; i < 256; ++i) stored.scales[i] = static_cast<std::byte>(i);
    expect_values(unpacked(packed(view(stored)), view(stored)), view(stored), "kbit4");
}

TEST(PackScales, E8m0ExponentsAreRelativeToTheLargest) {
    for (const char* name : {"mxfp4", "mxfp4_gguf"})
        for (const int largest : {0, 5, 126, 127, 200, 254}) {
            auto stored = make(*find_format(name), 16, 512, 3);
            const auto scale_at = [&](size_t i) -> std::byte& {
                return stored.scales.empty() ? stored.data[i * 17] : stored.scales[i];
            };
            const int least = std::max(largest - 126, 0);
            for (size_t i = 0; i < 256; ++i)
                scale_at(i) =
                    static_cast<std::byte>(std::max(largest - static_cast<int>(i % 127), least));
            const Packed got = packed(view(stored));
            EXPECT_EQ(got.global, std::ldexp(1.0f, largest - 127));
            EXPECT_EQ(static_cast<int>(got.bytes[512]), 127);
            ASSERT_NO_FATAL_FAILURE(expect_values(unpacked(got, view(stored)), view(stored), name));
        }
}

TEST(PackScales, E8m0ScalesTooFarBelowTheLargestAreZero) {
    auto stored = make(*find_format("mxfp4"), 16, 64, 3);
    std::fill(stored.scales.begin(), stored.scales.end(), std::byte{250});
    stored.scales[5] = std::byte{123};  // row 2, second group: 250 - 127
    const Packed got = packed(view(stored));
    const auto values = unpacked(got, view(stored));
    for (size_t k = 32; k < 64; ++k) EXPECT_EQ(values[2 * 64 + k], 0.0f);
    EXPECT_EQ(got.bytes[512 + (2 * 2 + 1) * 2], std::byte{0});
}

TEST(PackScales, HalvesHaveGlobalScalesOfTheirOwn) {
    auto gate = make(*find_format("mxfp4"), 8, 64, 3), up = make(*find_format("mxfp4"), 8, 64, 4);
    std::fill(gate.scales.begin(), gate.scales.end(), std::byte{100});
    std::fill(up.scales.begin(), up.scales.end(), std::byte{130});
    Packed both = packed(view(gate), TileRows::gate_half);
    EXPECT_EQ(both.global, 0x1p-27f);
    EXPECT_EQ(pack(view(up), both.type, TileRows::up_half, both.bytes.data(), "up"), 0x1p3f);
    EXPECT_EQ(both.bytes[512], std::byte{127});
    EXPECT_EQ(both.bytes[513], std::byte{127});
}

TEST(PackScales, GlobalScalesAreReturnedAsMultipliers) {
    EXPECT_EQ(packed(view(make(*find_format("nvfp4"), 16, 64))).global, 0.0371f);
    EXPECT_EQ(packed(view(make(nvfp4_divide_format, 16, 64))).global, 1.0f / 0.0371f);
    EXPECT_EQ(packed(view(make(*find_format("bf16"), 16, 64))).global, 1.0f);
}

}  // namespace
}  // namespace moe
