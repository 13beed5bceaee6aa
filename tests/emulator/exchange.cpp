// Implements the exchanges between lanes of a warp: shfl, vote, match, redux, activemask, elect.
#include <algorithm>

#include "tests/emulator/lanes.hpp"

namespace emulator {
namespace {

enum Shuffle : uint8_t { up, down, butterfly, index };

int source_lane(Shuffle mode, int lane, uint32_t b, uint32_t c, bool* in_range) {
    const int bound = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
    const int max_lane = (lane & segment) | (bound & ~segment);
    const int min_lane = lane & segment;
    const int n = static_cast<int>(b & 31);
    int from = lane;
    switch (mode) {
        case up:
            from = lane - n;
            *in_range = from >= max_lane;
            break;
        case down:
            from = lane + n;
            *in_range = from <= max_lane;
            break;
        case butterfly:
            from = lane ^ n;
            *in_range = from <= max_lane;
            break;
        default:
            from = min_lane | (n & ~segment);
            *in_range = from <= max_lane;
    }
    return *in_range ? from : lane;
}

void shuffle(Warp& w, const Instruction& in) {
    const auto *a = w.lanes<uint32_t>(in.a), *b = w.lanes<uint32_t>(in.b);
    const auto* c = w.lanes<uint32_t>(in.c);
    uint32_t out[32], valid = 0;
    for (int i = 0; i < 32; ++i) {
        bool in_range = true;
        int from = source_lane(static_cast<Shuffle>(in.mode), i, b[i], c[i], &in_range);
        out[i] = a[from];
        valid |= static_cast<uint32_t>(in_range) << i;
        // A lane outside the mask contributes nothing.
        if ((w.mask >> i & 1) && !(w.mask >> from & 1)) out[i] = 0xDEADBEEF;
    }
    w.store(in.d, out);
    if (in.count) w.store_predicate(in.e, valid);
}

Step run_shuffle(Warp& w, const Instruction& in) {
    return synchronise(w, in, w.lanes<uint32_t>(in.f), shuffle);
}

void decode_shfl(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync", "up", "down", "bfly", "idx");
    if (!s.has("sync") || s.arguments.size() != 5) throw UnknownForm{};
    Instruction& in = b.emit(run_shuffle);
    in.mode = s.has("up") ? up : s.has("down") ? down : s.has("bfly") ? butterfly : index;
    const Argument& to = s.arguments[0];
    const bool has_predicate = to.kind == Argument::Kind::pair;
    in.count = has_predicate;
    b.write(&Instruction::d, has_predicate ? to.parts[0] : to, 32);
    if (has_predicate) b.write(&Instruction::e, to.parts[1], 1);
    b.read(&Instruction::a, s.arguments[1], 32);
    b.read(&Instruction::b, s.arguments[2], 32);
    b.read(&Instruction::c, s.arguments[3], 32);
    b.read(&Instruction::f, s.arguments[4], 32);
}

enum Vote : uint8_t { all, any, uniform, ballot };

void vote(Warp& w, const Instruction& in) {
    const uint32_t said = (w.predicate(in.a) ^ static_cast<uint32_t>(in.immediate)) & w.mask;
    if (in.mode == ballot) {
        uint32_t out[32];
        std::fill(out, out + 32, said);
        return w.store(in.d, out);
    }
    const bool holds = in.mode == all   ? said == w.mask
                       : in.mode == any ? said != 0
                                        : said == w.mask || said == 0;
    w.store_predicate(in.d, holds ? all_lanes : 0);
}

Step run_vote(Warp& w, const Instruction& in) {
    return synchronise(w, in, w.lanes<uint32_t>(in.b), vote);
}

void decode_vote(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync", "all", "any", "uni", "ballot");
    if (!s.has("sync") || s.arguments.size() != 3) throw UnknownForm{};
    Instruction& in = b.emit(run_vote);
    in.mode = s.has("all") ? all : s.has("any") ? any : s.has("uni") ? uniform : ballot;
    in.immediate = s.arguments[1].negated ? 0xFFFFFFFF : 0;
    b.write(&Instruction::d, s.arguments[0], s.has("ballot") ? 32 : 1);
    b.read(&Instruction::a, s.arguments[1], 1);
    b.read(&Instruction::b, s.arguments[2], 32);
}

template <class T>
void match(Warp& w, const Instruction& in) {
    const T* a = w.lanes<T>(in.a);
    uint32_t out[32], same = 0;
    for (int i = 0; i < 32; ++i) {
        out[i] = 0;
        for (int j = 0; j < 32; ++j)
            if ((w.mask >> j & 1) && a[i] == a[j]) out[i] |= 1u << j;
        if (out[i] == w.mask) same |= 1u << i;
        if (in.mode && out[i] != w.mask) out[i] = 0;
    }
    w.store(in.d, out);
    if (in.count) w.store_predicate(in.e, same);
}

template <class T>
Step run_match(Warp& w, const Instruction& in) {
    return synchronise(w, in, w.lanes<uint32_t>(in.b), match<T>);
}

void decode_match(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync", "any", "all");
    const unsigned bits = bits_of(s.last_type());
    Instruction& in = b.emit(bits == 64 ? run_match<uint64_t> : run_match<uint32_t>);
    in.mode = s.has("all");
    const Argument& to = s.arguments.at(0);
    in.count = to.kind == Argument::Kind::pair;
    b.write(&Instruction::d, in.count ? to.parts[0] : to, 32);
    if (to.kind == Argument::Kind::pair) b.write(&Instruction::e, to.parts[1], 1);
    b.read(&Instruction::a, s.arguments.at(1), bits);
    b.read(&Instruction::b, s.arguments.at(2), 32);
}

template <class T>
T reduced(T x, T y, uint8_t mode) {
    switch (mode) {
        case 0:
            return static_cast<T>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
        case 1:
            return std::min(x, y);
        case 2:
            return std::max(x, y);
        case 3:
            return x & y;
        case 4:
            return x | y;
        default:
            return x ^ y;
    }
}

template <class T>
void reduce(Warp& w, const Instruction& in) {
    const T* a = w.lanes<T>(in.a);
    T value = a[w.first_lane()];
    for (int i = w.first_lane() + 1; i < 32; ++i)
        if (w.mask >> i & 1) value = reduced(value, a[i], in.mode);
    T out[32];
    std::fill(out, out + 32, value);
    w.store(in.d, out);
}

template <class T>
Step run_redux(Warp& w, const Instruction& in) {
    return synchronise(w, in, w.lanes<uint32_t>(in.b), reduce<T>);
}

void decode_redux(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync", "add", "min", "max", "and", "or", "xor");
    constexpr std::string_view names[] = {"add", "min", "max", "and", "or", "xor"};
    if (bits_of(s.last_type()) != 32 || is_float(s.last_type())) throw UnknownForm{};
    decode_two(b, s, is_signed(s.last_type()) ? run_redux<int32_t> : run_redux<uint32_t>, 32, 32,
               32);
    for (uint8_t i = 0; i < 6; ++i)
        if (s.has(names[i])) b.last().mode = i;
}

Step run_activemask(Warp& w, const Instruction& in) {
    uint32_t out[32];
    std::fill(out, out + 32, w.mask);
    w.store(in.d, out);
    return Step::next;
}

void decode_activemask(Builder& b, const Statement& s) {
    b.emit(run_activemask);
    b.write(&Instruction::d, s.arguments.at(0), 32);
}

// The lowest lane of the members is elected.
void elect(Warp& w, const Instruction& in) {
    uint32_t out[32];
    std::fill(out, out + 32, static_cast<uint32_t>(w.first_lane()));
    w.store(in.d, out);
    w.store_predicate(in.e, 1u << w.first_lane());
}

Step run_elect(Warp& w, const Instruction& in) {
    return synchronise(w, in, w.lanes<uint32_t>(in.a), elect);
}

void decode_elect(Builder& b, const Statement& s) {
    allow_modifiers(s, "sync");
    if (s.arguments.at(0).kind != Argument::Kind::pair) throw UnknownForm{};
    b.emit(run_elect);
    b.write(&Instruction::d, s.arguments[0].parts[0], 32);
    b.write(&Instruction::e, s.arguments[0].parts[1], 1);
    b.read(&Instruction::a, s.arguments.at(1), 32);
}

}  // namespace

std::vector<DecoderEntry> exchange_decoders() {
    return {{"shfl", decode_shfl},   {"vote", decode_vote},   {"match", decode_match},
            {"redux", decode_redux}, {"elect", decode_elect}, {"activemask", decode_activemask}};
}

}  // namespace emulator
