// FNV-1a with 128 bits: keys of plans and layouts. Not for adversaries: equal keys are checked
// where it matters.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace moe {

class Hash128 {
  public:
    template <class T>
    Hash128& add(const T& value) {
        static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>,
                      "padding would make equal values differ");
        unsigned char bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof(T));
        for (unsigned char byte : bytes) add_byte(byte);
        return *this;
    }
    // The length goes in too, so that neighbouring texts cannot run together.
    Hash128& add_text(std::string_view text) {
        add(static_cast<uint64_t>(text.size()));
        for (char c : text) add_byte(static_cast<unsigned char>(c));
        return *this;
    }
    std::array<uint8_t, 16> bytes() const {
        std::array<uint8_t, 16> out;
        std::memcpy(out.data(), &state_, sizeof state_);
        return out;
    }

  private:
    using Word = unsigned __int128;
    void add_byte(unsigned char byte) {
        constexpr Word prime = (Word{1} << 88) | 0x13B;
        state_ = (state_ ^ byte) * prime;
    }
    Word state_ = (Word{0x6C62272E07BB0142u} << 64) | 0x62B821756295C58Du;
};

}  // namespace moe
