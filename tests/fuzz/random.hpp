// The generator of the mutators: small, and the same everywhere for one seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace moe_fuzz {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

    uint64_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_;
    }
    // 0 .. n - 1; 0 for n = 0.
    size_t below(size_t n) { return n ? static_cast<size_t>((next() >> 16) % n) : 0; }
    bool one_in(size_t n) { return below(n) == 0; }
    template <class Range>
    const auto& pick(const Range& range) {
        return range[below(std::size(range))];
    }
    // A number at which readers' checks turn over.
    uint64_t interesting() {
        static constexpr uint64_t bases[] = {0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             8,
                                             16,
                                             31,
                                             32,
                                             64,
                                             100,
                                             128,
                                             255,
                                             256,
                                             4095,
                                             4096,
                                             65535,
                                             65536,
                                             uint64_t{1} << 30,
                                             uint64_t{1} << 31,
                                             uint64_t{1} << 32,
                                             uint64_t{1} << 48,
                                             uint64_t{1} << 61,
                                             uint64_t{1} << 62,
                                             uint64_t{1} << 63,
                                             100'000'000};
        return pick(bases) + below(3) - 1;
    }

  private:
    uint64_t state_;
};

}  // namespace moe_fuzz
