// JSON written as it is said, two spaces deeper in every object and array, one value a line. There
// is no tree: whatever request for memory fails, only a string is given back.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "libmoe/base/fmt.hpp"

namespace moe {

class JsonWriter {
  public:
    // Of an object.
    template <class T>
    void member(std::string_view name, const T& value) {
        begin_member(name);
        put(value);
    }
    template <class Inside>
    void object(std::string_view name, Inside inside) {
        begin_member(name);
        nest('{', '}', inside);
    }
    template <class Inside>
    void array(std::string_view name, Inside inside) {
        begin_member(name);
        nest('[', ']', inside);
    }
    // Of an array, or the outermost.
    template <class T>
    void value(const T& value) {
        begin_value();
        put(value);
    }
    template <class Inside>
    void object(Inside inside) {
        begin_value();
        nest('{', '}', inside);
    }

    std::string take() { return std::move(text_); }

  private:
    void new_line() {
        text_ += '\n';
        text_.append(2 * depth_, ' ');
    }
    void begin_value() {
        if (depth_ == 0) return;
        if (!is_first_) text_ += ',';
        is_first_ = false;
        new_line();
    }
    void begin_member(std::string_view name) {
        begin_value();
        put(name);
        text_ += ": ";
    }
    template <class Inside>
    void nest(char open, char close, Inside inside) {
        text_ += open;
        ++depth_;
        is_first_ = true;
        inside();
        --depth_;
        if (!is_first_) new_line();
        is_first_ = false;
        text_ += close;
    }

    void put(std::nullptr_t) { text_ += "null"; }
    // To one decimal.
    void put(double value) { fmt::format_to(std::back_inserter(text_), "{:.1f}", value); }
    // A number, or true and false. A template, so that a pointer to characters is no flag.
    template <std::integral T>
    void put(T value) {
        fmt::format_to(std::back_inserter(text_), "{}", value);
    }
    // UTF-8, which is kept as it is.
    void put(std::string_view text) {
        text_ += '"';
        for (const char c : text) put_char(c);
        text_ += '"';
    }
    void put_char(char c) {
        constexpr std::string_view escaped = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
        const size_t at = escaped.find(c);
        if (at != escaped.npos) {
            text_ += '\\';
            text_ += letters[at];
        } else if (static_cast<unsigned char>(c) < 0x20) {
            fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
            text_ += c;
        }
    }

    std::string text_;
    size_t depth_ = 0;
    bool is_first_ = true;  // the next value, of what it lies in
};

}  // namespace moe
