// A parser of patterns into a program of a few instructions, and a search that visits each pair of
// instruction and place once.
#include "libmoe/checkpoint/name_pattern.hpp"

#include <utility>

namespace moe {
namespace {

constexpr size_t most_instructions = 2048;
constexpr int deepest_group = 32;
constexpr uint32_t most_repeats = 1000;
constexpr uint32_t no_limit = most_repeats + 1;
constexpr size_t most_steps = size_t{1} << 20;

std::bitset<256> byte_range(int first, int last) {
    std::bitset<256> bytes;
    for (int c = first; c <= last; ++c) bytes.set(static_cast<size_t>(c));
    return bytes;
}

// \d and its like; none for other letters.
std::optional<std::bitset<256>> class_of(char letter) {
    const auto digits = byte_range('0', '9');
    const auto words = digits | byte_range('a', 'z') | byte_range('A', 'Z') | byte_range('_', '_');
    const auto spaces = byte_range('\t', '\r') | byte_range(' ', ' ');
    switch (letter) {
        case 'd':
            return digits;
        case 'D':
            return ~digits;
        case 'w':
            return words;
        case 'W':
            return ~words;
        case 's':
            return spaces;
        case 'S':
            return ~spaces;
        default:
            return std::nullopt;
    }
}

bool is_alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

// Recursive descent; ok_ is false from the first thing that is not understood.
class NamePatternParser {
  public:
    NamePatternParser(std::string_view text, NamePattern& out) : text_(text), out_(out) {}

    bool parse() {
        alternatives();
        emit(Op::Match);
        return ok_ && at_ == text_.size();
    }

  private:
    using Op = NamePattern::Op;
    using Instruction = NamePattern::Instruction;

    bool has_more() const { return ok_ && at_ < text_.size(); }
    bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
    bool take(std::string_view what) {
        if (!next_is(what)) return false;
        at_ += what.size();
        return true;
    }
    size_t here() const { return out_.program_.size(); }
    size_t emit(Op op, size_t value = 0, size_t target = 0) {
        if (here() >= most_instructions) {
            ok_ = false;
            return 0;
        }
        out_.program_.push_back({op, static_cast<uint16_t>(value), static_cast<uint32_t>(target)});
        return here() - 1;
    }
    void emit_set(const NamePattern::Bytes& bytes) {
        if (out_.sets_.size() == most_instructions) ok_ = false;
        if (!ok_) return;
        out_.sets_.push_back(bytes);
        emit(Op::Set, out_.sets_.size() - 1);
    }
    void aim(size_t instruction, size_t target) {
        if (ok_) out_.program_[instruction].target = static_cast<uint32_t>(target);
    }
    // Makes room for an instruction in front of what was emitted from `first` on.
    void insert_split(size_t first) {
        if (emit(Op::Split); !ok_) return;
        auto& program = out_.program_;
        for (size_t i = here() - 1; i > first; --i) {
            program[i] = program[i - 1];
            if (program[i].target >= first && has_target(program[i].op)) ++program[i].target;
        }
        program[first] = {Op::Split, 0, 0};
    }
    static bool has_target(Op op) {
        return op == Op::Split || op == Op::Jump || op == Op::Ahead || op == Op::NotAhead;
    }

    // a|b|c
    void alternatives() {
        if (++depth_ > deepest_group) ok_ = false;
        std::vector<size_t> jumps;
        size_t first = here();
        sequence();
        while (has_more() && take("|")) {
            insert_split(first);
            jumps.push_back(emit(Op::Jump));
            aim(first, here());
            first = here();
            sequence();
        }
        for (const size_t jump : jumps) aim(jump, here());
        --depth_;
    }

    void sequence() {
        while (has_more() && !next_is("|") && !next_is(")")) {
            const size_t first = here();
            const bool can_repeat = atom();
            repeat(first, can_repeat);
        }
    }

    // An atom once; false for one that has no width.
    bool atom() {
        if (take("^")) return emit(Op::Begin), false;
        if (take("$")) return emit(Op::End), false;
        if (take("(")) return group();
        if (take("[")) return set(), true;
        if (take(".")) return emit_set(~byte_range('\n', '\n')), true;
        if (take("\\")) return escape(), true;
        const char c = text_[at_];
        if (c == '*' || c == '+' || c == '?' || c == '{' || c == '}' || c == ']') ok_ = false;
        ++at_;
        emit(Op::Byte, static_cast<unsigned char>(c));
        return true;
    }

    bool group() {
        const bool ahead = take("?="), not_ahead = !ahead && take("?!");
        if (!ahead && !not_ahead && !take("?:") && next_is("?")) ok_ = false;
        const size_t look = ahead || not_ahead ? emit(ahead ? Op::Ahead : Op::NotAhead) : 0;
        alternatives();
        if (!take(")")) ok_ = false;
        if (!ahead && !not_ahead) return true;
        emit(Op::Match);
        aim(look, here());
        return false;
    }

    void escape() {
        const char c = at_ < text_.size() ? text_[at_++] : 'x';
        if (const auto bytes = class_of(c)) return emit_set(*bytes);
        if (is_alphanumeric(c)) ok_ = false;
        emit(Op::Byte, static_cast<unsigned char>(c));
    }

    // One end of a range, or a class by its letter.
    std::optional<NamePattern::Bytes> member(int& byte) {
        byte = -1;
        char c = text_[at_++];
        if (c == '\\' && has_more()) {
            c = text_[at_++];
            if (const auto bytes = class_of(c)) return bytes;
            if (is_alphanumeric(c)) ok_ = false;
        } else if (c == '[' || c == '\\') {
            ok_ = false;  // [:alpha:] and nested sets
        }
        byte = static_cast<unsigned char>(c);
        return byte_range(byte, byte);
    }

    void set() {
        NamePattern::Bytes bytes;
        const bool is_negated = take("^");
        bool is_first = true;
        while (has_more() && (is_first || !next_is("]"))) {
            is_first = false;
            int low = -1, high = -1;
            bytes |= *member(low);
            if (!next_is("-") || next_is("-]") || at_ + 1 >= text_.size()) continue;
            ++at_;
            (void)member(high);
            if (low < 0 || high < low) ok_ = false;
            if (ok_) bytes |= byte_range(low, high);
        }
        if (!take("]")) ok_ = false;
        emit_set(is_negated ? ~bytes : bytes);
    }

    bool number(uint32_t& value) {
        const size_t first = at_;
        value = 0;
        while (has_more() && text_[at_] >= '0' && text_[at_] <= '9' && value <= most_repeats)
            value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
        return at_ > first && value <= most_repeats;
    }

    // {m} {m,} {m,n}
    void counts(uint32_t& least, uint32_t& most) {
        if (!number(least)) ok_ = false;
        most = least;
        if (take(",")) most = no_limit;
        if (most == no_limit && !next_is("}") && !number(most)) ok_ = false;
        if (!take("}") || least > most) ok_ = false;
    }

    // What may follow the atom whose instructions begin at `first`.
    void repeat(size_t first, bool can_repeat) {
        uint32_t least = 0, most = no_limit;
        if (!has_more()) return;
        if (take("+"))
            least = 1;
        else if (take("?"))
            most = 1;
        else if (take("{"))
            counts(least, most);
        else if (!take("*"))
            return;
        if (!take("?") && next_is("+")) ok_ = false;  // lazy is the same set of names
        if (!can_repeat) ok_ = false;
        if (!ok_) return;
        auto& program = out_.program_;
        const std::vector<Instruction> block(program.begin() + static_cast<ptrdiff_t>(first),
                                             program.end());
        program.resize(first);
        for (uint32_t i = 0; ok_ && i < least; ++i) emit_copy(block, first);
        if (most == no_limit) {
            const size_t split = emit(Op::Split);
            emit_copy(block, first);
            emit(Op::Jump, 0, split);
            return aim(split, here());
        }
        std::vector<size_t> splits;
        for (uint32_t i = least; ok_ && i < most; ++i) {
            splits.push_back(emit(Op::Split));
            emit_copy(block, first);
        }
        for (const size_t split : splits) aim(split, here());
    }

    // Instructions that began at `first`, at the end.
    void emit_copy(const std::vector<Instruction>& block, size_t first) {
        const size_t begin = here();
        for (const Instruction& one : block)
            emit(one.op, one.value, has_target(one.op) ? one.target - first + begin : 0);
    }

    std::string_view text_;
    NamePattern& out_;
    size_t at_ = 0;
    int depth_ = 0;
    bool ok_ = true;
};

std::optional<NamePattern> NamePattern::parse(std::pmr::memory_resource& memory,
                                              std::string_view text) {
    NamePattern pattern(memory);
    if (!NamePatternParser(text, pattern).parse()) return std::nullopt;
    return pattern;
}

// The search over one name.
struct NamePattern::Search {
    const NamePattern& pattern;
    std::string_view name;
    size_t& steps;

    bool is_over() const { return steps > most_steps; }

    // Is there a way from an instruction, at a place of the name, to a Match?
    bool from(size_t first, size_t begin) {
        const auto& program = pattern.program_;
        const size_t places = name.size() + 1;
        steps += program.size() * places / 64;
        if (is_over()) return false;
        std::vector<bool> seen(program.size() * places);
        std::vector<std::pair<size_t, size_t>> open = {{first, begin}};
        while (!open.empty() && !is_over()) {
            const auto [at, place] = open.back();
            open.pop_back();
            if (seen[at * places + place]) continue;
            seen[at * places + place] = true;
            ++steps;
            const Instruction& one = program[at];
            const bool has_byte = place < name.size();
            const auto byte = has_byte ? static_cast<unsigned char>(name[place]) : 0u;
            switch (one.op) {
                case Op::Match:
                    return true;
                case Op::Byte:
                    if (has_byte && byte == one.value) open.emplace_back(at + 1, place + 1);
                    break;
                case Op::Set:
                    if (has_byte && pattern.sets_[one.value][byte])
                        open.emplace_back(at + 1, place + 1);
                    break;
                case Op::Split:
                    open.emplace_back(one.target, place);
                    open.emplace_back(at + 1, place);
                    break;
                case Op::Jump:
                    open.emplace_back(one.target, place);
                    break;
                case Op::Begin:
                    if (place == 0) open.emplace_back(at + 1, place);
                    break;
                case Op::End:
                    if (!has_byte) open.emplace_back(at + 1, place);
                    break;
                case Op::Ahead:
                case Op::NotAhead:
                    if (from(at + 1, place) == (one.op == Op::Ahead))
                        open.emplace_back(one.target, place);
                    break;
            }
        }
        return false;
    }

    // Most patterns of a long list differ from the name in their first letters.
    bool may_start(size_t place) const {
        for (size_t i = 0; pattern.program_[i].op == Op::Byte; ++i) {
            if (place + i >= name.size()) return false;
            if (static_cast<unsigned char>(name[place + i]) != pattern.program_[i].value)
                return false;
        }
        return true;
    }
};

std::optional<bool> NamePattern::matches(std::string_view name, Where where, size_t& steps) const {
    Search search{*this, name, steps};
    const size_t last = where == Where::Anywhere ? name.size() : 0;
    for (size_t place = 0; place <= last; ++place) {
        if (!search.may_start(place)) continue;
        if (search.from(0, place)) return search.is_over() ? std::nullopt : std::optional(true);
        if (search.is_over()) return std::nullopt;
    }
    return false;
}

}  // namespace moe
