// Blocks of the iq2 and iq3 formats, sixteen columns at a time: their grid entries, signs and scale
// as the file of each format defines them. Host and device.
#pragma once

#include <cstddef>

#include "libmoe/base/element.hpp"
#include "libmoe/base/iq_grids.hpp"

namespace moe {

// Columns of a block that share a scale.
constexpr int32_t iq_group = 16;

struct IqColumns {
    uint64_t indices;  // of magnitudes, the first column in the lowest bits
    uint32_t signs;    // bit i: column i is negative
    float scale;
};

namespace iq {

// The float16 d that blocks begin with.
MOE_HOST_DEVICE inline float factor(const std::byte* block) {
    return f16_to_float(load<uint16_t>(block));
}

MOE_HOST_DEVICE inline uint32_t byte_at(const std::byte* block, int32_t i) {
    return static_cast<uint32_t>(block[i]);
}

// Seven bits each of two words of eight columns, from bit `first` of a.
MOE_HOST_DEVICE constexpr uint32_t two_signs(uint32_t a, int32_t first) {
    return iq_signs(a >> first & 127u) | iq_signs(a >> (first + 7) & 127u) << 8;
}

}  // namespace iq

// What the grids have in common; columns(block, t) are columns 16 t to 16 t + 15.
struct Iq2Grid {
    static constexpr int32_t index_bits = 2;
    static MOE_HOST_DEVICE constexpr int32_t magnitude(uint32_t index) {
        return iq2_magnitude(index);
    }
};

struct Iq2XxsGrid : Iq2Grid {
    static constexpr int32_t bytes = 66;
    static MOE_HOST_DEVICE IqColumns columns(const std::byte* block, int32_t t) {
        const std::byte* g = block + 2 + t / 2 * 8;
        const uint32_t a = load<uint16_t>(g + 4) | uint32_t{load<uint16_t>(g + 6)} << 16;
        const int32_t j = t % 2 * 2;
        const uint32_t entries =
            iq2_xxs_entry(iq::byte_at(g, j)) | iq2_xxs_entry(iq::byte_at(g, j + 1)) << 16;
        const float levels = static_cast<float>(a >> 28) + 0.5f;
        return {entries, iq::two_signs(a, 7 * j), iq::factor(block) * levels * 0.25f};
    }
};

struct Iq2XsGrid : Iq2Grid {
    static constexpr int32_t bytes = 74;
    static MOE_HOST_DEVICE IqColumns columns(const std::byte* block, int32_t t) {
        const uint32_t low = load<uint16_t>(block + 2 + 4 * t);
        const uint32_t high = load<uint16_t>(block + 4 + 4 * t);
        const uint32_t entries = iq2_xs_entry(low & 511u) | iq2_xs_entry(high & 511u) << 16;
        const uint32_t signs = iq_signs(low >> 9) | iq_signs(high >> 9) << 8;
        const uint32_t s = iq::byte_at(block, 66 + t / 2) >> t % 2 * 4 & 15u;
        return {entries, signs, iq::factor(block) * (static_cast<float>(s) + 0.5f) * 0.25f};
    }
};

struct Iq3XxsGrid {
    static constexpr int32_t bytes = 98;
    static constexpr int32_t index_bits = 4;
    static MOE_HOST_DEVICE constexpr int32_t magnitude(uint32_t index) {
        return iq3_xxs_magnitude(index);
    }
    static MOE_HOST_DEVICE IqColumns columns(const std::byte* block, int32_t t) {
        uint64_t entries = 0;
        for (int32_t j = 0; j < 4; ++j)
            entries |= uint64_t{iq3_xxs_entry(iq::byte_at(block, 2 + 4 * t + j))} << 16 * j;
        const std::byte* word = block + 66 + t / 2 * 4;
        const uint32_t a = load<uint16_t>(word) | uint32_t{load<uint16_t>(word + 2)} << 16;
        const float levels = static_cast<float>(a >> 28) + 0.5f;
        return {entries, iq::two_signs(a, t % 2 * 14), iq::factor(block) * levels * 0.5f};
    }
};

struct Iq3SGrid {
    static constexpr int32_t bytes = 110;
    static constexpr int32_t index_bits = 4;
    static MOE_HOST_DEVICE constexpr int32_t magnitude(uint32_t index) {
        return iq3_s_magnitude(index);
    }
    static MOE_HOST_DEVICE IqColumns columns(const std::byte* block, int32_t t) {
        const uint32_t high = iq::byte_at(block, 66 + t / 2) >> t % 2 * 4;
        uint64_t entries = 0;
        for (int32_t j = 0; j < 4; ++j) {
            const uint32_t index = iq::byte_at(block, 2 + 4 * t + j) | (high >> j & 1u) << 8;
            entries |= uint64_t{iq3_s_entry(index)} << 16 * j;
        }
        const uint32_t signs = load<uint16_t>(block + 74 + 2 * t);
        const uint32_t s = iq::byte_at(block, 106 + t / 4) >> t / 2 % 2 * 4 & 15u;
        return {entries, signs, iq::factor(block) * static_cast<float>(2 * s + 1)};
    }
};

template <class Grid>
MOE_HOST_DEVICE inline float iq_value(const IqColumns& columns, int32_t i) {
    constexpr uint64_t mask = (uint64_t{1} << Grid::index_bits) - 1;
    const auto index = static_cast<uint32_t>(columns.indices >> Grid::index_bits * i & mask);
    const int32_t magnitude = Grid::magnitude(index);
    return columns.scale * static_cast<float>(columns.signs >> i & 1u ? -magnitude : magnitude);
}

}  // namespace moe
