// Finds the spans of values and members by brackets and quotes alone, so that broken JSON can be
// changed, too.
#include "tests/fuzz/json_mutator.hpp"

#include <algorithm>
#include <vector>

#include "tests/fuzz/target.hpp"

namespace moe_fuzz {
namespace {

struct Span {
    size_t begin, end;
    size_t size() const { return end - begin; }
};

struct Value {
    Span whole;
    Span key;  // empty: an element of an array, or the document
    Span member() const { return {key.size() ? key.begin : whole.begin, whole.end}; }
};

class Scanner {
  public:
    explicit Scanner(std::string_view text) : text_(text) {}

    std::vector<Value> values() {
        value({0, 0}, 0);
        return std::move(found_);
    }

  private:
    static constexpr int deepest = 64;

    bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
    void skip_space() {
        while (at_ < text_.size() && std::string_view(" \n\t\r").find(text_[at_]) != text_.npos)
            ++at_;
    }
    Span string() {
        const size_t begin = at_++;
        while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
        at_ = std::min(at_ + 1, text_.size());
        return {begin, at_};
    }
    void value(Span key, int depth) {
        skip_space();
        const size_t begin = at_;
        if (at_ >= text_.size() || depth > deepest) return;
        const size_t place = found_.size();
        found_.push_back({{begin, begin}, key});
        if (at('{') || at('[')) {
            container(depth);
        } else if (at('"')) {
            string();
        } else {
            at_ = std::min(text_.find_first_of(",]}:", at_ + 1), text_.size());
        }
        found_[place].whole.end = at_;
    }
    void container(int depth) {
        const bool is_object = at('{');
        ++at_;
        for (;;) {
            skip_space();
            if (at_ >= text_.size()) return;
            if (at('}') || at(']')) {
                ++at_;
                return;
            }
            if (at(',') || at(':')) {
                ++at_;
                continue;
            }
            Span key{0, 0};
            if (is_object && at('"')) {
                key = string();
                skip_space();
                if (!at(':')) continue;
                ++at_;
            }
            const size_t before = at_;
            value(key, depth + 1);
            if (at_ == before) return;
        }
    }

    std::string_view text_;
    size_t at_ = 0;
    std::vector<Value> found_;
};

std::string cut(std::string_view text, Span span) {
    return std::string(text.substr(span.begin, span.size()));
}

void replace(std::string& text, Span span, std::string_view by) {
    text.replace(span.begin, span.size(), by);
}

std::string quoted(std::string_view word) {
    return "\"" + std::string(word) + "\"";
}

constexpr std::string_view literals[] = {"null",
                                         "true",
                                         "false",
                                         "\"\"",
                                         "[]",
                                         "{}",
                                         "0",
                                         "-0",
                                         "-1",
                                         "1.5",
                                         "1e0",
                                         "1e400",
                                         "-1e400",
                                         "1e-400",
                                         "4.9e-324",
                                         "NaN",
                                         "[[[[]]]]",
                                         "{\"a\":{}}",
                                         "281474976710656",
                                         "281474976710657",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "-9223372036854775808",
                                         "-9223372036854775809"};
constexpr std::string_view odd_text[] = {
    "\\u0000", "\\ud800", "\\udc00",  "\\ud83d\\ude00", "\\u",
    "\\x",     "\xff",    "\xc0\xaf", "\xed\xa0\x80",   "\xf4\x90\x80\x80",
    "\x01",    "\\\"",    "/",        "\\\\",           "..",
    ".",       "\\n"};

std::string number(Random& random) {
    return (random.one_in(8) ? "-" : "") + std::to_string(random.interesting());
}

std::string tweaked(const std::string& digits, Random& random) {
    const uint64_t old = std::strtoull(digits.c_str(), nullptr, 10);
    switch (random.below(5)) {
        case 0:
            return std::to_string(old + 1);
        case 1:
            return std::to_string(old - 1);
        case 2:
            return std::to_string(old * 2);
        case 3:
            return std::to_string(old / 2);
        default:
            return number(random);
    }
}

void change_string(std::string& text, Span span, std::span<const std::string_view> words,
                   Random& random) {
    if (random.one_in(2)) return replace(text, span, quoted(random.pick(words)));
    const size_t inside = span.begin + 1 + random.below(span.size() > 1 ? span.size() - 1 : 1);
    text.insert(std::min(inside, text.size()), random.pick(odd_text));
}

void change_value(std::string& text, const Value& value, std::span<const std::string_view> words,
                  Random& random) {
    const char first = text[value.whole.begin];
    if (first == '"' && !random.one_in(4)) return change_string(text, value.whole, words, random);
    if (first >= '0' && first <= '9' && !random.one_in(4))
        return replace(text, value.whole, tweaked(cut(text, value.whole), random));
    switch (random.below(3)) {
        case 0:
            return replace(text, value.whole, random.pick(literals));
        case 1:
            return replace(text, value.whole, quoted(random.pick(words)));
        default:
            return replace(text, value.whole, number(random));
    }
}

void remove_member(std::string& text, const Value& value) {
    Span span = value.member();
    if (span.end < text.size() && text[span.end] == ',') {
        ++span.end;
    } else if (span.begin > 0 && text[span.begin - 1] == ',') {
        --span.begin;
    }
    replace(text, span, "");
}

void change_once(std::string& text, std::span<const std::string_view> words, Random& random) {
    const std::vector<Value> values = Scanner(text).values();
    if (values.empty()) return mutate_bytes(text, random);
    const Value& value = random.pick(values);
    const Value& other = random.pick(values);
    switch (random.below(12)) {
        case 0:
            return remove_member(text, value);
        case 1:
            if (other.whole.size() > 2000) return;
            return replace(text, value.whole, cut(text, other.whole));
        case 2:
            if (value.member().size() > 2000) return;
            text.insert(value.whole.end, "," + cut(text, value.member()));
            return;
        case 3:
            text.insert(value.whole.end,
                        "," + (value.key.size() ? quoted(random.pick(words)) + ":" + number(random)
                                                : number(random)));
            return;
        case 4: {
            const bool as_array = random.one_in(2);
            text.insert(value.whole.end, as_array ? "]" : "}");
            text.insert(value.whole.begin, as_array ? "[" : "{\"k\":");
            return;
        }
        case 5:
            if (value.key.size()) return change_string(text, value.key, words, random);
            return change_value(text, value, words, random);
        case 6:
            return mutate_bytes(text, random);
        case 7:
            if (random.one_in(8)) return text.resize(random.below(text.size()));
            return change_value(text, value, words, random);
        default:
            return change_value(text, value, words, random);
    }
}

}  // namespace

std::string mutate_json(std::string_view text, std::span<const std::string_view> words,
                        Random& random) {
    std::string out(text);
    for (size_t n = 1 + random.below(3); n > 0; --n) change_once(out, words, random);
    return out;
}

}  // namespace moe_fuzz
