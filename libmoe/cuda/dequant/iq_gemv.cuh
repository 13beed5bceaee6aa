// iq2_xxs, iq2_xs, iq3_xxs and iq3_s in gemv, and their tables: codes name entries of a fixed grid.
// Tables in shared memory turn the names and the signs of eight columns into signed bytes. Their
// entries have 32 bits, because a warp's look-ups of wider ones wait twice as long for each other's
// banks. Device only.
//
//   entries   iq2: of 8 columns, four bits each, the index of the magnitude; iq3: of 4 columns, the
//             magnitudes as bytes
//   signs     of 8 columns, four bits each: 4 where negative. xxs and xs name them by seven bits,
//             of which the eighth follows (base/iq_grids.hpp)
//
// In Hopper's gemv entries are there many times side by side (codebook_mode.hpp), so that lanes
// seldom wait for each other's banks.
//
// Columns are in the order of k that operands have: of each four 0, 2, 1, 3.
#pragma once

#include "libmoe/base/iq_columns.hpp"
#include "libmoe/cuda/dequant/gemv_blocks.cuh"

namespace moe::cuda {

// Four items of `bits` bits each, in the order of operands, `apart` bits from each other.
template <int bits, int apart>
__device__ __forceinline__ uint32_t spread_four(uint32_t items) {
    constexpr uint32_t mask = (1u << bits) - 1;
    const auto item = [&](int column) { return items >> bits * column & mask; };
    return item(0) | item(2) << apart | item(1) << 2 * apart | item(3) << 3 * apart;
}
// The same of eight, four bits from each other.
template <int bits>
__device__ __forceinline__ uint32_t spread_eight(uint32_t items) {
    return spread_four<bits, 4>(items) | spread_four<bits, 4>(items >> 4 * bits) << 16;
}

// Levels `sign` times magnitude 0 to 3 of a grid as bytes.
template <class Grid>
constexpr uint32_t level_bytes(int32_t sign) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 4; ++i)
        bytes |= static_cast<uint32_t>(sign * Grid::magnitude(i) & 255) << 8 * i;
    return bytes;
}
// Four magnitudes as bytes, in the order of operands; indices has 4 bits of each.
template <class Grid>
__device__ __forceinline__ uint32_t magnitude_bytes(uint32_t indices) {
    uint32_t bytes = 0;
    for (const int column : {0, 2, 1, 3})
        bytes = bytes >> 8 | static_cast<uint32_t>(Grid::magnitude(indices >> 4 * column & 15))
                                 << 24;
    return bytes;
}

// Names of entries and signs of 16 columns of a row.
struct IqNames {
    uint32_t entries, signs;
};

// The address of byte i of a word times `stride`, by a dot product: it takes one instruction.
template <uint32_t stride>
__device__ __forceinline__ uint32_t address_of_byte(uint32_t word, int i, uint32_t at) {
    static_assert(stride < 256, "factors are bytes");
    return __dp4a(word, stride << 8 * i, at);
}
// The same of a whole word. C++ code becomes a shift, a mask and a sum; of the grouped GEMM, whose
// entries are four bytes apart, the sum is part of the load.
template <uint32_t stride>
__device__ __forceinline__ uint32_t address_of_index(uint32_t index, uint32_t at) {
    if constexpr (stride == 4) return at + stride * index;
    uint32_t address;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(address) : "r"(index), "n"(stride), "r"(at));
    return address;
}

// Two half-words of a row, which is on a multiple of two.
__device__ __forceinline__ uint32_t load_shared_2_by_2(uint32_t from) {
    return load_shared_2(from) | load_shared_2(from + 2) << 16;
}

// A type reads columns 16 t to 16 t + 15 of a row: names(row, t), and has the addresses of entry i,
// of their eights (iq2) or fours (iq3), and of signs i, of their eights, in a table `at` whose
// entries are `stride` bytes apart. A scale is (scale_code + 1/2) times scale_unit and the float16
// that the row begins with.
struct Iq2XxsNames {
    static constexpr int32_t entries = 256, signs = 128;
    static constexpr float scale_unit = 0.25f;
    using Row = IqNames;
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) {
        return iq2_xxs_entry(i);
    }
    static __device__ __forceinline__ Row names(uint32_t row, uint32_t t) {
        const uint32_t group = row + 2 + t / 2 * 8, j = t % 2 * 2;
        return {load_shared_2(group + j), load_shared_2_by_2(group + 4) >> 7 * j};
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t entry_address(const Row& names, int i, uint32_t at) {
        return address_of_byte<stride>(names.entries, i, at);
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t sign_address(const Row& names, int i, uint32_t at) {
        return address_of_index<stride>(names.signs >> 7 * i & 127u, at);
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_2(row + 8 + t / 2 * 8) >> 12;
    }
};

struct Iq2XsNames {
    static constexpr int32_t entries = 512, signs = 128;
    static constexpr float scale_unit = 0.25f;
    struct Row {
        uint32_t eights[2];  // nine bits of an entry, seven of signs
    };
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) { return iq2_xs_entry(i); }
    static __device__ __forceinline__ Row names(uint32_t row, uint32_t t) {
        return {{load_shared_2(row + 2 + 4 * t), load_shared_2(row + 4 + 4 * t)}};
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t entry_address(const Row& names, int i, uint32_t at) {
        return address_of_index<stride>(names.eights[i] & 511u, at);
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t sign_address(const Row& names, int i, uint32_t at) {
        return address_of_index<stride>(names.eights[i] >> 9, at);
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_1(row + 66 + t / 2) >> t % 2 * 4 & 15u;
    }
};

struct Iq3XxsNames {
    static constexpr int32_t entries = 256, signs = 128;
    static constexpr float scale_unit = 0.5f;
    using Row = IqNames;
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) {
        return iq3_xxs_entry(i);
    }
    static __device__ __forceinline__ Row names(uint32_t row, uint32_t t) {
        return {load_shared_2_by_2(row + 2 + 4 * t),
                load_shared_2_by_2(row + 66 + t / 2 * 4) >> t % 2 * 14};
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t entry_address(const Row& names, int i, uint32_t at) {
        return address_of_byte<stride>(names.entries, i, at);
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t sign_address(const Row& names, int i, uint32_t at) {
        return address_of_index<stride>(names.signs >> 7 * i & 127u, at);
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_2(row + 68 + t / 2 * 4) >> 12;
    }
};

// Entries have nine bits. Two of them share a word: the low bytes, and each ninth bit as 128.
struct Iq3SNames {
    static constexpr int32_t entries = 512, signs = 256;
    static constexpr float scale_unit = 2.0f;
    struct Row {
        uint32_t entries[2], signs;
    };
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) { return iq3_s_entry(i); }
    static __device__ __forceinline__ Row names(uint32_t row, uint32_t t) {
        // Products bring bits 0 and 1, or 2 and 3, to 23 and 31, and no two bits to one place.
        const uint32_t ninth = load_shared_1(row + 66 + t / 2) >> t % 2 * 4 & 15u;
        const uint32_t low = ninth * (1u << 23 | 1u << 30), high = ninth * (1u << 21 | 1u << 28);
        return {{load_shared_2(row + 2 + 4 * t) | (low & 0x80800000u),
                 load_shared_2(row + 4 + 4 * t) | (high & 0x80800000u)},
                load_shared_2(row + 74 + 2 * t)};
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t entry_address(const Row& names, int i, uint32_t at) {
        static_assert(2 * stride < 256, "factors are bytes");
        constexpr uint32_t factors = stride | 2 * stride << 16;
        return __dp4a(names.entries[i / 2], factors << 8 * (i % 2), at);
    }
    template <uint32_t stride>
    static __device__ __forceinline__ uint32_t sign_address(const Row& names, int i, uint32_t at) {
        return address_of_byte<stride>(names.signs, i, at);
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_1(row + 106 + t / 4) >> t / 2 % 2 * 4 & 15u;
    }
};

// The tables of a type in shared memory, as a lane reads them. flip: what levels are combined with
// by exclusive or.
template <PackedType packed, class Grid, class Names, uint32_t flip, bool has_copies>
struct IqTables {
    static constexpr bool is_iq2 = Grid::index_bits == 2;
    static constexpr IqTableShape shape = iq_table_shape(packed, has_copies);
    static_assert(shape.entries == Names::entries && shape.signs == Names::signs);

    uint32_t entries, signs;  // shared addresses of this lane's copies

    __device__ __forceinline__ IqTables(uint32_t tables, uint32_t lane)
        : entries(tables + 4 * (lane % shape.entry_copies)),
          signs(tables + shape.signs_at() + 4 * (lane % shape.sign_copies)) {}

    // Entries `first`, `first` + stride and so on of both.
    static __device__ __forceinline__ void store(uint32_t to, int32_t first, int32_t stride) {
        for (int32_t i = first; i < Names::entries; i += stride) {
            const uint32_t entry = Names::entry_of_grid(static_cast<uint32_t>(i));
            store_copies<shape.entry_copies>(
                to, i, is_iq2 ? spread_eight<2>(entry) : magnitude_bytes<Grid>(entry) ^ flip);
        }
        for (int32_t i = first; i < Names::signs; i += stride) {
            const auto name = static_cast<uint32_t>(i);
            const uint32_t negative = Names::signs == 256 ? name : iq_signs(name);
            store_copies<shape.sign_copies>(
                to + shape.signs_at(), i,
                4 * spread_eight<1>(negative) + (is_iq2 ? 0 : 0x32103210u));
        }
    }
    // Levels of a row's steps 2 i and 2 i + 1 as signed bytes.
    __device__ __forceinline__ uint2 levels(const typename Names::Row& names, int i) const {
        if constexpr (is_iq2) {
            const uint32_t selectors = entry(names, i) | sign(names, i);
            return {levels_of_iq2(selectors), levels_of_iq2(selectors >> 16)};
        } else {
            const uint32_t selectors = sign(names, i);
            return {with_signs(entry(names, 2 * i), selectors),
                    with_signs(entry(names, 2 * i + 1), selectors >> 16)};
        }
    }

  private:
    template <int32_t copies>
    static __device__ __forceinline__ void store_copies(uint32_t to, int32_t i, uint32_t entry) {
        if constexpr (copies == 1) {
            store_shared(to + 4 * i, entry);
        } else {
            // Lanes that would store to the same banks begin with different vectors.
            constexpr int32_t vectors = copies / 4;
            const int32_t first = i * copies / 32 % vectors;
#pragma unroll
            for (int32_t j = 0; j < vectors; ++j)
                store_shared(to + 4 * copies * i + 16 * (j ^ first),
                             uint4{entry, entry, entry, entry});
        }
    }
    __device__ __forceinline__ uint32_t entry(const typename Names::Row& names, int i) const {
        return load_shared_4(
            Names::template entry_address<4 * shape.entry_copies>(names, i, entries));
    }
    __device__ __forceinline__ uint32_t sign(const typename Names::Row& names, int i) const {
        return load_shared_4(Names::template sign_address<4 * shape.sign_copies>(names, i, signs));
    }
    // Three magnitudes and their negatives fit one prmt.
    static __device__ __forceinline__ uint32_t levels_of_iq2(uint32_t selectors) {
        return permute_bytes(level_bytes<Grid>(1) ^ flip, level_bytes<Grid>(-1) ^ flip, selectors);
    }
    // No magnitude is zero, so that every byte of the difference borrows one from the next, which
    // has it: bytes are 256 less magnitudes.
    static __device__ __forceinline__ uint32_t with_signs(uint32_t magnitudes, uint32_t selectors) {
        return permute_bytes(magnitudes, 0x01010100u - magnitudes, selectors);
    }
};

template <PackedType packed, class Grid, class Names, bool has_copies>
struct GemvIq : GemvDequantBase<packed> {
    using Base = GemvDequantBase<packed>;
    using Operand = BytesOf16<true>;
    using Table = IqTables<packed, Grid, Names, 0, has_copies>;
    static constexpr int32_t span = 1;
    static constexpr float residual_scale = Names::scale_unit;
    static constexpr uint32_t row_bytes = ggml_scale_bytes(packed);

    static __device__ __forceinline__ Table table_of(uint32_t tables, int32_t lane) {
        return {tables, static_cast<uint32_t>(lane)};
    }

    static __device__ __forceinline__ void store_tables(uint32_t to, int32_t first,
                                                        int32_t stride) {
        Table::store(to, first, stride);
    }

    template <int n>
    struct Words {
        typename Names::Row row[2];
    };
    struct GroupScales {
        uint32_t row;  // row g of the split
        uint32_t t;
        float factor[2], half[2];
        __device__ __forceinline__ GroupScales(uint32_t k_block, int32_t block, int32_t lane)
            : row(row_of(k_block, block, lane)), t(lane & 3) {
            factor[0] = f16_value(load_shared_2(row));
            factor[1] = f16_value(load_shared_2(row + 8 * row_bytes));
            half[0] = 0.5f * factor[0];
            half[1] = 0.5f * factor[1];
        }
    };
    static __device__ __forceinline__ void load(Words<1>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t row = row_of(k_block, block, lane);
        const uint32_t t = 4 * (block & 3) + (lane & 3);
        words.row[0] = Names::names(row, t);
        words.row[1] = Names::names(row + 8 * row_bytes, t);
    }
    static __device__ __forceinline__ void two_steps(const Words<1>& words, int i,
                                                     const Table& table, uint32_t (&a)[4]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const uint2 levels = table.levels(words.row[row], i);
            a[row] = levels.x;
            a[row + 2] = levels.y;
        }
    }
    static __device__ __forceinline__ RowScales factors(const GroupScales& of, int32_t block) {
        const uint32_t t = 4 * (block & 3) + of.t;
        return {fmaf(of.factor[0], scale_code(of.row, t), of.half[0]),
                fmaf(of.factor[1], scale_code(of.row + 8 * row_bytes, t), of.half[1])};
    }

  private:
    static __device__ __forceinline__ uint32_t row_of(uint32_t k_block, int32_t block,
                                                      int32_t lane) {
        return k_block + (block >> 2) * Base::min_split_bytes + row_bytes * (lane >> 2);
    }
    static __device__ __forceinline__ float scale_code(uint32_t row, uint32_t t) {
        return static_cast<float>(Names::scale_code(row, t));
    }
};

}  // namespace moe::cuda
