// Implements mma.sync, ldmatrix and stmatrix. The operands are fragments in the registers of a
// warp, the accumulator is float32 or int32.
#include "tests/emulator/access.hpp"
#include "tests/emulator/small_floats.hpp"

namespace emulator {
namespace {

// The registers of A and B hold halves of one type; the accumulator is float32.
template <bool is_bf16>
struct Halves {
    static constexpr int per_register = 2;
    using Number = float;
    static Number a(uint32_t bits, int part) {
        const auto half = static_cast<uint16_t>(bits >> 16 * part);
        return is_bf16 ? float_of_bf16(half) : float_of_f16(half);
    }
    static Number b(uint32_t bits, int part) { return a(bits, part); }
};

// The registers hold bytes, those of B signed; the accumulator wraps.
template <class A>
struct Bytes {
    static constexpr int per_register = 4;
    using Number = uint32_t;
    static Number a(uint32_t bits, int part) {
        return static_cast<Number>(static_cast<A>(bits >> 8 * part));
    }
    static Number b(uint32_t bits, int part) {
        return static_cast<Number>(static_cast<int8_t>(bits >> 8 * part));
    }
};

// Computes D[16][8] = A[16][k] B[k][8] + C. The list holds d (4), a, b, c (4). Lane 4 g + t has
// rows g and g + 8 of A, C and D and column g of B. Along the other dimension it has adjacent
// values: as many as a register of A or B holds, two of C and D.
template <class Elements, int k>
Step run_mma(Warp& w, const Instruction& in) {
    if (!gather_all(w)) return Step::blocked;
    if (w.mask != all_lanes) w.fault(w.first_lane(), "mma.sync of a warp that is not whole");
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    using Number = typename Elements::Number;
    constexpr int per = Elements::per_register, n_a = k / (2 * per), n_b = k / (4 * per);
    Number a[16][k], b[k][8], d[16][8];
    for (int r = 0; r < n_a; ++r) {
        const auto* from = w.lanes<uint32_t>(list[4 + r]);
        for (int lane = 0; lane < 32; ++lane)
            for (int part = 0; part < per; ++part)
                a[lane / 4 + 8 * (r & 1)][per * (lane % 4 + 4 * (r >> 1)) + part] =
                    Elements::a(from[lane], part);
    }
    for (int r = 0; r < n_b; ++r) {
        const auto* from = w.lanes<uint32_t>(list[4 + n_a + r]);
        for (int lane = 0; lane < 32; ++lane)
            for (int part = 0; part < per; ++part)
                b[per * (lane % 4 + 4 * r) + part][lane / 4] = Elements::b(from[lane], part);
    }
    for (int r = 0; r < 4; ++r) {
        const auto* from = w.lanes<Number>(list[4 + n_a + n_b + r]);
        for (int lane = 0; lane < 32; ++lane)
            d[lane / 4 + 8 * (r >> 1)][2 * (lane % 4) + (r & 1)] = from[lane];
    }
    for (int row = 0; row < 16; ++row)
        for (int i = 0; i < k; ++i)
            for (int column = 0; column < 8; ++column) d[row][column] += a[row][i] * b[i][column];
    for (int r = 0; r < 4; ++r) {
        Number out[32];
        for (int lane = 0; lane < 32; ++lane)
            out[lane] = d[lane / 4 + 8 * (r >> 1)][2 * (lane % 4) + (r & 1)];
        w.store(list[r], out);
    }
    return Step::next;
}

// The arguments d, a, b, c are lists in braces, or single registers.
void list_of_mma(Builder& b, const Statement& s, std::array<size_t, 4> sizes) {
    b.begin_list();
    for (size_t i = 0; i < 4; ++i) {
        auto parts = s.arguments[i].parts;
        if (s.arguments[i].kind == Argument::Kind::name) parts = {s.arguments[i]};
        if (parts.size() != sizes[i]) throw UnknownForm{};
        for (const Argument& part : parts) i == 0 ? b.list_write(part, 32) : b.list_read(part, 32);
    }
}

void decode_byte_mma(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync", "aligned", "m16n8k32", "row", "col");
    const bool is_signed = s.type(1) == Type::s8;
    if (s.type(0) != Type::s32 || (!is_signed && s.type(1) != Type::u8) || s.type(2) != Type::s8 ||
        s.type(3) != Type::s32 || s.arguments.size() != 4)
        throw UnknownForm{};
    b.emit(is_signed ? run_mma<Bytes<int8_t>, 32> : run_mma<Bytes<uint8_t>, 32>);
    list_of_mma(b, s, {4, 4, 2, 4});
}

void decode_mma(Builder& b, const Statement& s) {
    if (s.has("m16n8k32")) return decode_byte_mma(b, s);
    allow_modifiers(s, "sync", "aligned", "m16n8k16", "m16n8k8", "row", "col");
    const bool is_bf16 = s.type(1) == Type::bf16, is_long = s.has("m16n8k16");
    const bool is_half = s.type(1) == Type::f16;
    if (s.type(0) != Type::f32 || s.type(3) != Type::f32 || s.type(1) != s.type(2) ||
        (!is_bf16 && !is_half) || s.arguments.size() != 4)
        throw UnknownForm{};
    b.emit(is_bf16 ? (is_long ? run_mma<Halves<true>, 16> : run_mma<Halves<true>, 8>)
                   : (is_long ? run_mma<Halves<false>, 16> : run_mma<Halves<false>, 8>));
    list_of_mma(b, s, {4, is_long ? 4u : 2u, is_long ? 2u : 1u, 4});
}

// Lane 8 m + r has the address of row r of matrix m. Lane 4 g + t receives row g, columns 2 t and 2
// t + 1 of each matrix; transposed, it receives column g, rows 2 t and 2 t + 1.
struct Rows {
    std::byte* at[4][8];
};

void find_rows(Warp& w, const Instruction& in, Rows& rows) {
    const uint32_t lanes = w.mask;
    LaneAddresses addresses;
    // Only the lanes of the requested matrices have addresses.
    w.mask = in.count == 4 ? all_lanes : (1u << 8 * in.count) - 1;
    find_addresses(w, in, 16, addresses);
    w.mask = lanes;
    for (int i = 0; i < 8 * in.count; ++i) rows.at[i / 8][i % 8] = addresses.at[i];
}

std::byte* element(const Rows& rows, int matrix, int lane, int part, bool transposed) {
    const int major = lane / 4, minor = 2 * (lane % 4) + part;
    const int row = transposed ? minor : major, column = transposed ? major : minor;
    return rows.at[matrix][row] + 2 * column;
}

Step run_ldmatrix(Warp& w, const Instruction& in) {
    if (!gather_all(w)) return Step::blocked;
    if (w.mask != all_lanes) w.fault(w.first_lane(), "ldmatrix of a warp that is not whole");
    Rows rows;
    find_rows(w, in, rows);
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    uint32_t out[4][32];
    for (int m = 0; m < in.count; ++m) {
        for (int lane = 0; lane < 32; ++lane) {
            uint16_t half[2];
            for (int part = 0; part < 2; ++part)
                std::memcpy(&half[part], element(rows, m, lane, part, in.e), 2);
            out[m][lane] = static_cast<uint32_t>(half[1]) << 16 | half[0];
        }
    }
    for (int m = 0; m < in.count; ++m) w.store(list[m], out[m]);
    return Step::next;
}

Step run_stmatrix(Warp& w, const Instruction& in) {
    if (!gather_all(w)) return Step::blocked;
    if (w.mask != all_lanes) w.fault(w.first_lane(), "stmatrix of a warp that is not whole");
    Rows rows;
    find_rows(w, in, rows);
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    for (int m = 0; m < in.count; ++m) {
        const auto* from = w.lanes<uint32_t>(list[m]);
        for (int lane = 0; lane < 32; ++lane) {
            for (int part = 0; part < 2; ++part) {
                const auto half = static_cast<uint16_t>(from[lane] >> 16 * part);
                std::memcpy(element(rows, m, lane, part, in.e), &half, 2);
            }
        }
    }
    ++w.run->effects;
    return Step::next;
}

template <bool is_load>
void decode_matrices(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared",
                    "shared::cta");
    const Argument& values = s.arguments.at(is_load ? 0 : 1);
    auto parts = values.parts;
    if (values.kind == Argument::Kind::name) parts = {values};
    const size_t wanted = s.has("x4") ? 4 : s.has("x2") ? 2 : 1;
    if (s.last_type() != Type::b16 || parts.size() != wanted) throw UnknownForm{};
    Instruction& in = b.emit(is_load ? run_ldmatrix : run_stmatrix);
    in.space = Space::shared;
    in.count = static_cast<uint8_t>(wanted);
    in.e = s.has("trans");
    b.read_address(s.arguments.at(is_load ? 1 : 0));
    b.begin_list();
    for (const Argument& part : parts) is_load ? b.list_write(part, 32) : b.list_read(part, 32);
}

}  // namespace

std::vector<DecoderEntry> matrix_decoders() {
    return {{"mma", decode_mma},
            {"ldmatrix", decode_matrices<true>},
            {"stmatrix", decode_matrices<false>}};
}

}  // namespace emulator
