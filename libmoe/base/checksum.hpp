// A checksum against accidents, not against adversaries: 64 bits of four lanes that words of 8
// bytes go into by turns. Every step is a bijection of its lane, so that one changed word always
// changes the result.
//   start   lane i = i + 1
//   word w  to lane (its number mod 4): lane = rotate_left((lane ^ w) * multiplier, 29)
//   end     sum = bytes; lane by lane: sum = rotate_left((sum ^ lane) * multiplier, 29);
//           sum ^ sum >> 32
// Words are little-endian; the last one is filled up with zeros.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moe {

inline uint64_t checksum_of(const std::byte* bytes, uint64_t count) {
    constexpr uint64_t multiplier = 0x9E3779B97F4A7C15;
    const auto mix = [](uint64_t state, uint64_t word) {
        return std::rotl((state ^ word) * multiplier, 29);
    };
    uint64_t lanes[4] = {1, 2, 3, 4};
    uint64_t done = 0;
    for (; done + 32 <= count; done += 32) {
        uint64_t words[4];
        std::memcpy(words, bytes + done, 32);
        for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
    }
    if (done < count) {
        uint64_t words[4] = {};
        std::memcpy(words, bytes + done, count - done);
        for (uint64_t i = 0; i < (count - done + 7) / 8; ++i) lanes[i] = mix(lanes[i], words[i]);
    }
    uint64_t sum = count;
    for (const uint64_t lane : lanes) sum = mix(sum, lane);
    return sum ^ sum >> 32;
}

}  // namespace moe
