// Up to 7 bits a step of a lane is first a "nibble word": the low four bits of every code in the
// nibble of its register and half, rows in turns or by rows. Every narrower or scattered form
// follows from it.
#include "libmoe/packed/pack_codes.hpp"

#include "libmoe/base/element.hpp"

namespace moe {
namespace {

constexpr int32_t lanes = 32;
constexpr int32_t n_steps = 4;  // of a block

// The four codes p = 0..3 of a step, as bytes, in the rows g and g + 8 of a lane.
struct StepBytes {
    uint32_t low;
    uint32_t high;
};

StepBytes step_bytes(const CodeGrid<uint8_t>& codes, int32_t lane, int32_t j) {
    const int32_t g = lane >> 2;
    const int32_t k = 16 * (lane & 3) + 4 * j;
    StepBytes step;
    std::memcpy(&step.low, &codes.at[g][k], 4);
    std::memcpy(&step.high, &codes.at[g + 8][k], 4);
    return step;
}

constexpr uint32_t swap_middle_bytes(uint32_t x) {
    return (x & 0xFF0000FFu) | (x >> 8 & 0xFF00u) | (x << 8 & 0xFF0000u);
}

// Bytes of at most 15 to the nibble word: p = 0..3 go to nibbles 0, 4, 2, 6, the upper row to the
// next ones.
struct InTurns {
    static constexpr uint32_t first_row = 0x0F0F0F0Fu;
    static constexpr uint32_t nibble_word(StepBytes step) {
        return swap_middle_bytes(step.low) | swap_middle_bytes(step.high) << 4;
    }
};

// To nibbles 0, 2, 1, 3, and the upper row four further up.
struct ByRows {
    static constexpr uint32_t first_row = 0x0000FFFFu;
    static constexpr uint32_t nibble_word(StepBytes step) {
        return nibbles(step.low) | nibbles(step.high) << 16;
    }

  private:
    static constexpr uint32_t nibbles(uint32_t bytes) { return (bytes | bytes >> 12) & 0xFFFFu; }
};

// Bits [first, first + n) of every code as the low bits of its nibble.
template <class Order>
constexpr uint32_t bits_of(StepBytes step, int32_t first, int32_t n) {
    const uint32_t mask = ((1u << n) - 1) * 0x01010101u;
    return Order::nibble_word({step.low >> first & mask, step.high >> first & mask});
}

// Bits of the E2M1 code of each register in half 0 of a word; bit 0 of the code first. Bit 19 is
// bit 3 of the other half.
constexpr int32_t e2m1_bits[4][4] = {{6, 7, 8, 15}, {0, 1, 2, 9}, {10, 11, 12, 19}, {4, 5, 14, 13}};

constexpr uint32_t scatter_e2m1(uint32_t nibbles) {
    uint32_t word = 0;
    for (int32_t i = 0; i < 32; ++i) {
        const int32_t bit = e2m1_bits[i / 4 % 4][i % 4] + i / 16 * 16;
        word |= (nibbles >> i & 1u) << bit % 32;
    }
    return word;
}

struct E2m1Scatter {
    uint32_t of[4][256];

    constexpr E2m1Scatter() : of() {
        for (uint32_t byte = 0; byte < 4; ++byte)
            for (uint32_t value = 0; value < 256; ++value)
                of[byte][value] = scatter_e2m1(value << (8 * byte));
    }
    uint32_t operator()(uint32_t word) const {
        return of[0][word & 255] | of[1][word >> 8 & 255] | of[2][word >> 16 & 255] |
               of[3][word >> 24];
    }
};
constexpr E2m1Scatter e2m1_scatter;

// Words of the rows that are stored; the bits of `kept` stay as they are in memory. Memory
// whose rows are all written is not read.
struct WordMask {
    uint32_t kept;

    template <class Order>
    static WordMask of(TileRows rows) {
        return {rows == TileRows::all         ? 0
                : rows == TileRows::gate_half ? ~Order::first_row
                                              : Order::first_row};
    }
    void store_word(std::byte* to, uint32_t word) const {
        store(to, kept ? word | (load<uint32_t>(to) & kept) : word);
    }
};

// The byte o of a lane of a block, where lanes have `bytes` bytes.
constexpr int32_t byte_offset(int32_t bytes, int32_t lane, int32_t o) {
    int32_t begin = 0;
    int32_t size = 16;
    for (;; begin += size) {
        while (bytes - begin < size) size /= 2;
        if (o < begin + size) return lanes * begin + size * lane + o - begin;
    }
}

void store_e2m1(const CodeGrid<uint8_t>& codes, TileRows rows, std::byte* to) {
    const WordMask mask{e2m1_scatter(WordMask::of<InTurns>(rows).kept)};
    for (int32_t lane = 0; lane < lanes; ++lane)
        for (int32_t j = 0; j < n_steps; ++j)
            mask.store_word(to + 4 * (n_steps * lane + j),
                            e2m1_scatter(InTurns::nibble_word(step_bytes(codes, lane, j))));
}

template <class Order>
void store_3(const CodeGrid<uint8_t>& codes, TileRows rows, std::byte* to) {
    const WordMask mask = WordMask::of<Order>(rows);
    for (int32_t lane = 0; lane < lanes; ++lane) {
        const uint32_t last = Order::nibble_word(step_bytes(codes, lane, 3));
        std::byte* const words[3] = {to + 8 * lane, to + 8 * lane + 4, to + 256 + 4 * lane};
        for (int32_t i = 0; i < 3; ++i) {
            const uint32_t word = Order::nibble_word(step_bytes(codes, lane, i));
            mask.store_word(words[i], word | (last >> i & 0x11111111u) << 3);
        }
    }
}

// A lane's bytes: four bits of every code, then two, then one, as far as `bits` has them.
template <int32_t bits, class Order = InTurns>
void store_split(const CodeGrid<uint8_t>& codes, TileRows rows, std::byte* to) {
    constexpr int32_t in_4 = bits & 4, in_2 = bits & 2;
    const WordMask mask = WordMask::of<Order>(rows);
    for (int32_t lane = 0; lane < lanes; ++lane) {
        const auto at = [&](int32_t o) { return to + byte_offset(n_steps * bits, lane, o); };
        uint32_t ones = 0;
        for (int32_t j = 0; j < n_steps; ++j) {
            const StepBytes step = step_bytes(codes, lane, j);
            if constexpr (in_4 != 0) mask.store_word(at(4 * j), bits_of<Order>(step, 0, 4));
            if constexpr ((bits & 1) != 0) ones |= bits_of<Order>(step, in_4 + in_2, 1) << j;
        }
        for (int32_t j = 0; j < n_steps && in_2 != 0; j += 2) {
            const uint32_t even = bits_of<Order>(step_bytes(codes, lane, j), in_4, 2);
            const uint32_t odd = bits_of<Order>(step_bytes(codes, lane, j + 1), in_4, 2);
            mask.store_word(at(n_steps * in_4 + 2 * j), even | odd << 2);
        }
        if constexpr ((bits & 1) != 0) mask.store_word(at(4 * (bits - 1)), ones);
    }
}

// Codes of whole bytes: a step of a lane is the pairs p = 0, 1 of both rows, then p = 2, 3.
template <class Code>
void store_whole(const CodeGrid<Code>& codes, TileRows rows, std::byte* to) {
    constexpr int32_t pair = 2 * sizeof(Code);
    constexpr int32_t part = 16;
    const int32_t first = rows == TileRows::up_half;
    const int32_t apart = rows == TileRows::all ? 1 : 2;
    for (int32_t lane = 0; lane < lanes; ++lane)
        for (int32_t i = first; i < 4 * n_steps; i += apart) {  // register i % 4 of step i / 4
            const Code* from = &codes.at[(lane >> 2) + 8 * (i & 1)][16 * (lane & 3) + 2 * (i >> 1)];
            const int32_t byte = i * pair;
            std::memcpy(to + byte / part * part * lanes + part * lane + byte % part, from, pair);
        }
}

// Bytes by rows: of rows 0 to 7, then 8 to 15, of each step the rows in order, with four k of each
// t.
void store_bytes_by_rows(const CodeGrid<uint8_t>& codes, TileRows rows, std::byte* to) {
    const int32_t first = rows == TileRows::up_half ? 8 : 0;
    const int32_t end = rows == TileRows::gate_half ? 8 : 16;
    for (int32_t row = first; row < end; ++row)
        for (int32_t j = 0; j < 4; ++j)
            for (int32_t t = 0; t < 4; ++t)
                std::memcpy(to + 512 * (row / 8) + 128 * j + 16 * (row % 8) + 4 * t,
                            &codes.at[row][16 * t + 4 * j], 4);
}

}  // namespace

template <>
StoreCodes<uint8_t> store_codes_of(PackedType type) {
    if (is_e2m1(type)) return store_e2m1;
    const bool by_rows = is_row_ordered(type);
    switch (code_bits(type)) {
        case 8:
            return by_rows ? store_bytes_by_rows : store_whole<uint8_t>;
        case 7:
            return store_split<7>;
        case 6:
            return store_split<6>;
        case 5:
            return store_split<5>;
        case 4:
            return by_rows ? store_split<4, ByRows> : store_split<4>;
        case 3:
            return by_rows ? store_3<ByRows> : store_3<InTurns>;
        case 2:
            return by_rows ? store_split<2, ByRows> : store_split<2>;
        case 1:
            return store_split<1>;
        default:
            return nullptr;
    }
}

template <>
StoreCodes<uint16_t> store_codes_of(PackedType) {
    return store_whole<uint16_t>;
}

template <>
StoreCodes<uint32_t> store_codes_of(PackedType) {
    return store_whole<uint32_t>;
}

}  // namespace moe
