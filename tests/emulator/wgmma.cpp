// Implements wgmma of a warpgroup. Each warp computes its 16 rows when it issues the instruction.
#include <algorithm>

#include "tests/emulator/access.hpp"
#include "tests/emulator/small_floats.hpp"

namespace emulator {
namespace {

// The type of the operands; one wgmma takes 32 bytes of each row.
enum class Element { bf16, f16, e4m3 };

constexpr int most_k = 32;

template <Element element>
constexpr int k_of = element == Element::e4m3 ? 32 : 16;

float float_of_e4m3(uint32_t byte) {
    const auto value = static_cast<float>(decode_small(byte & 0x7F, e4m3_format));
    return byte & 0x80 ? -value : value;
}

// The values of a word, the first in its lowest bits.
template <Element element>
void unpack(uint32_t word, float* out) {
    if constexpr (element == Element::e4m3) {
        for (int i = 0; i < 4; ++i) out[i] = float_of_e4m3(word >> 8 * i & 0xFF);
    } else {
        for (int i = 0; i < 2; ++i) {
            const auto half = static_cast<uint16_t>(word >> 16 * i);
            out[i] = element == Element::bf16 ? float_of_bf16(half) : float_of_f16(half);
        }
    }
}

// A k-major matrix in shared memory: rows in groups of eight, swizzled according
// to the descriptor.
struct Descriptor {
    uint32_t start, leading, stride;
    unsigned swizzle_bits;  // 3: 128 bytes, 2: 64, 1: 32, 0: none
};

Descriptor descriptor_of(uint64_t bits) {
    Descriptor d;
    d.start = static_cast<uint32_t>(bits & 0x3FFF) << 4;
    d.leading = static_cast<uint32_t>(bits >> 16 & 0x3FFF) << 4;
    d.stride = static_cast<uint32_t>(bits >> 32 & 0x3FFF) << 4;
    const auto mode = static_cast<unsigned>(bits >> 62);
    d.swizzle_bits = mode == 0 ? 0 : 4 - mode;
    return d;
}

// Returns the 16-byte vector 0 or 1 of a row along k. The address bits above 128 choose the
// swizzle.
uint32_t chunk_address(const Descriptor& d, uint32_t row, uint32_t chunk) {
    uint32_t address = d.start + row / 8 * d.stride;
    if (d.swizzle_bits == 0) return address + row % 8 * 16 + chunk * d.leading;
    address += row % 8 * (16u << d.swizzle_bits) + chunk * 16;
    return address ^ (address >> 7 & ((1u << d.swizzle_bits) - 1)) << 4;
}

template <Element element>
void load_rows(Warp& w, const Descriptor& d, uint32_t first, uint32_t n, float (*out)[most_k]) {
    constexpr int of_word = k_of<element> / 8;
    for (uint32_t row = 0; row < n; ++row) {
        for (uint32_t chunk = 0; chunk < 2; ++chunk) {
            const std::byte* at =
                shared_at(w, w.first_lane(), chunk_address(d, first + row, chunk), 16);
            uint32_t words[4];
            std::memcpy(words, at, sizeof words);
            for (int i = 0; i < 4; ++i)
                unpack<element>(words[i], out[row] + (4 * static_cast<int>(chunk) + i) * of_word);
        }
    }
}

// A word of a lane has 2 or 4 neighbouring k; the upper registers have the upper half of k.
template <Element element>
void load_fragment(const Warp& w, const uint32_t* list, float (*a)[most_k]) {
    constexpr int of_word = k_of<element> / 8;
    for (int r = 0; r < 4; ++r) {
        const auto* from = w.lanes<uint32_t>(list[r]);
        for (int lane = 0; lane < 32; ++lane)
            unpack<element>(from[lane],
                            a[lane / 4 + 8 * (r & 1)] + (lane % 4 + 4 * (r >> 1)) * of_word);
    }
}

// Computes sum[n] += a b[n] for 16 rows, with k in order.
void multiply(const float (*a)[most_k], const float (*b)[256], float (*sums)[256], uint32_t n,
              int n_k) {
    for (int row = 0; row < 16; ++row) {
        float* sum = sums[row];
        for (int i = 0; i < n_k; ++i) {
            const float value = a[row][i];
            const float* from = b[i];
            for (uint32_t column = 0; column < n; column += 8)
                for (uint32_t j = 0; j < 8; ++j) sum[column + j] += value * from[column + j];
        }
    }
}

// immediate is n; mode is 1 if A is in registers; count has the signs, bit 0 of A, bit 1 of B. The
// list holds the accumulator (n / 2), then A (4). a is A's descriptor, b is B's, and c tells
// whether to add to the accumulator.
template <Element element>
Step run_wgmma(Warp& w, const Instruction& in) {
    if (!gather_all(w)) return Step::blocked;
    if (w.mask != all_lanes) w.fault(w.first_lane(), "wgmma of a warp that is not whole");
    const auto n = static_cast<uint32_t>(in.immediate);
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    constexpr int n_k = k_of<element>;
    float a[16][most_k], rows[256][most_k], b[most_k][256], sums[16][256];
    const Descriptor d = descriptor_of(w.lanes<uint64_t>(in.b)[0]);
    load_rows<element>(w, d, 0, n, rows);
    for (uint32_t row = 0; row < n; ++row)
        for (int i = 0; i < n_k; ++i) b[i][row] = in.count & 2 ? -rows[row][i] : rows[row][i];
    if (in.mode)
        load_fragment<element>(w, list + n / 2, a);
    else
        load_rows<element>(w, descriptor_of(w.lanes<uint64_t>(in.a)[0]), w.index % 4 * 16, 16, a);
    if (in.count & 1)
        for (auto& row : a)
            for (int i = 0; i < n_k; ++i) row[i] = -row[i];
    const bool adds = w.predicate(in.c) & 1;
    for (uint32_t i = 0; i < n / 2; ++i) {
        const auto* from = w.lanes<float>(list[i]);
        for (uint32_t lane = 0; lane < 32; ++lane)
            sums[lane / 4 + 8 * (i >> 1 & 1)][8 * (i / 4) + 2 * (lane % 4) + (i & 1)] =
                adds ? from[lane] : 0.0f;
    }
    multiply(a, b, sums, n, n_k);
    for (uint32_t i = 0; i < n / 2; ++i) {
        auto* to = w.lanes<float>(list[i]);
        for (uint32_t lane = 0; lane < 32; ++lane)
            to[lane] = sums[lane / 4 + 8 * (i >> 1 & 1)][8 * (i / 4) + 2 * (lane % 4) + (i & 1)];
    }
    return Step::next;
}

// Decodes "mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 {accumulator}, A, B, add, 1, 1, 0 (, 0);",
// and of E4M3 "m64nNk32.f32.e4m3.e4m3 {accumulator}, A, B, add, 1, 1;"
void decode_product(Builder& b, const Statement& s) {
    uint32_t n = 0;
    const bool is_e4m3 = s.type(1) == Type::e4m3;
    for (std::string_view part : s.opcode)
        if (part.starts_with("m64n") && part.ends_with(is_e4m3 ? "k32" : "k16"))
            n = static_cast<uint32_t>(std::atoi(std::string(part.substr(4)).c_str()));
    allow_modifiers(s, s.opcode[1], s.opcode[2], s.opcode[3], s.opcode[4]);
    const bool is_bf16 = s.type(1) == Type::bf16;
    const bool by_register = s.arguments.at(1).kind == Argument::Kind::vector;
    if (n == 0 || n > 256 || n % 8 || s.type(0) != Type::f32 || s.type(1) != s.type(2) ||
        (!is_bf16 && !is_e4m3 && s.type(1) != Type::f16) || s.arguments[0].parts.size() != n / 2 ||
        s.arguments.size() != (is_e4m3       ? 6
                               : by_register ? 7
                                             : 8))
        throw UnknownForm{};
    // Both matrices are k-major, and the signs are 1 or -1.
    for (size_t i = 6; i < s.arguments.size(); ++i)
        if (s.arguments[i].bits != 0) throw UnknownForm{};
    Instruction& in = b.emit(is_e4m3   ? run_wgmma<Element::e4m3>
                             : is_bf16 ? run_wgmma<Element::bf16>
                                       : run_wgmma<Element::f16>);
    in.immediate = n;
    in.mode = by_register;
    in.count = static_cast<uint8_t>((s.arguments[4].bits != 1 ? 1 : 0) |
                                    (s.arguments[5].bits != 1 ? 2 : 0));
    b.begin_list();
    for (const Argument& part : s.arguments[0].parts) b.list_update(part, 32);
    if (by_register) {
        if (s.arguments[1].parts.size() != 4) throw UnknownForm{};
        for (const Argument& part : s.arguments[1].parts) b.list_read(part, 32);
    } else {
        b.read(&Instruction::a, s.arguments[1], 64);
    }
    b.read(&Instruction::b, s.arguments[2], 64);
    b.read(&Instruction::c, s.arguments[3], 1);
}

void decode_wgmma(Builder& b, const Statement& s) {
    if (s.has("mma_async")) return decode_product(b, s);
    if (!s.has("fence") && !s.has("commit_group") && !s.has("wait_group")) throw UnknownForm{};
    b.emit([](Warp& w, const Instruction&) { return gather_all(w) ? Step::next : Step::blocked; });
}

}  // namespace

std::vector<DecoderEntry> wgmma_decoders() {
    return {{"wgmma", decode_wgmma}};
}

}  // namespace emulator
