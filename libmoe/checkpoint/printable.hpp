// Names and values that come from a file, made fit for an error sentence: shortened, and without
// control bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace moe {

struct Printable {
    static constexpr size_t capacity = 160;
    char text[capacity + 4];
};

inline Printable printable(std::string_view raw) {
    Printable out;
    size_t n = 0;
    for (; n < raw.size() && n < Printable::capacity; ++n) {
        const auto byte = static_cast<unsigned char>(raw[n]);
        out.text[n] = byte < 0x20 || byte > 0x7e ? '?' : raw[n];
    }
    const char* tail = n < raw.size() ? "..." : "";
    while (*tail) out.text[n++] = *tail++;
    out.text[n] = '\0';
    return out;
}

}  // namespace moe
