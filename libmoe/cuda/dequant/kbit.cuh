// kbit2 to kbit5 and kbit2_f32 to kbit5_f32: codes of 2 to 5 bits are indices of a codebook of
// their expert, [2][32] float32: rows 0 to 7, then rows 8 to 15 of a tile. A scale per row and 32 k
// lies behind the codes of a block, one E4M4 byte or a float32. Used by all kernels; gemv
// multiplies values of the codebook in float16, or in bytes where one codebook of 2 or 3 bits is
// bytes times one number.
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#if defined(__CUDACC__)
#include <type_traits>

#include "libmoe/cuda/dequant/codebook_lanes.cuh"
#include "libmoe/cuda/dequant/codebook_lookup.cuh"
#include "libmoe/cuda/dequant/codebook_values.cuh"
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/dequant/shared_codes.cuh"
#endif

namespace moe::cuda {

MOE_HOST_DEVICE constexpr bool is_kbit(PackedType type) {
    return has_codebook(type) && !is_grid(type);
}

// A scale byte: exponent 4 bits, bias 11, mantissa 4. The power of two makes subnormals right, too.
MOE_HOST_DEVICE constexpr float e4m4_scale(uint32_t byte) {
    return std::bit_cast<float>(byte << 19) * 0x1p116f;
}

template <PackedType type>
requires(is_kbit(type)) struct ValueDequant<type> {
    static constexpr int bits = code_bits(type);
    using Words = ScaledWords<bits>;

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        const int32_t number = scale_pair_of_32(lane);
        if constexpr (has_f32_scales(type)) {
            load_f32_scales(scales + 8 * number, words.scale);
        } else {
            const uint32_t pair = moe::load<uint16_t>(scales + 2 * number);
            words.scale[0] = e4m4_scale(pair & 0xFFu);
            words.scale[1] = e4m4_scale(pair >> 8);
        }
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float* codebook, int step,
                                          int reg) {
        uint32_t two;
        if constexpr (is_row_ordered(type))
            two = code_pair_of_row<bits>(words.code, step, reg);
        else
            two = code_pair<bits>(words.code, step, reg);
        const float* values = codebook + 32 * (reg & 1);
        const float scale = words.scale[reg & 1];
        return {values[two & 31u] * scale, values[two >> 16] * scale};
    }
};

#if defined(__CUDACC__)

// ---- gemv

// How codes become values; tables are made from the shared address of the codebooks of both M
// halves.
//   registers   per expert, 2 and 3 bits: pairs of neighbours in registers (codebook_values.cuh),
//               because few warps wait longer for loads
//   look_ups    per expert, 4 and 5 bits: the tables of codebook_lookup.cuh
//   lanes       one codebook of 4 or 5 bits: that of codebook_lanes.cuh
//   bytes       one codebook of 2 or 3 bits: eight bytes in registers
enum class KbitLookup { registers, look_ups, lanes, bytes };
constexpr KbitLookup kbit_lookup_of(int32_t bits, CodebookMode codebook_mode) {
    if (codebook_mode == CodebookMode::shared_lanes) return KbitLookup::lanes;
    if (codebook_mode == CodebookMode::shared_bytes) return KbitLookup::bytes;
    return bits <= 3 ? KbitLookup::registers : KbitLookup::look_ups;
}

template <int bits, KbitLookup lookup>
struct KbitTable;

template <int bits>
struct KbitTable<bits, KbitLookup::registers> {
    static constexpr int32_t entries = 1 << (bits - 1);  // of an M half
    CodebookValues<bits> of[2];

    __device__ __forceinline__ KbitTable(uint32_t address) {
        constexpr int n = CodebookValues<bits>::n_pairs;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t pairs[n];
#pragma unroll
            for (int i = 0; i < n; i += 2) {
                const uint2 two = load_shared_8(address + 4 * (n * half + i));
                pairs[i] = two.x;
                pairs[i + 1] = two.y;
            }
            of[half].set(pairs);
        }
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        look_up_step(of, words, j, a);
    }
    static __device__ __forceinline__ float2 values_of(int32_t entry, const float* values) {
        return {load_global(values + 2 * entry), load_global(values + 2 * entry + 1)};
    }
};

template <int bits>
struct KbitTable<bits, KbitLookup::look_ups> : CodebookLookup<bits> {
    using CodebookLookup<bits>::has_pairs;

    __device__ __forceinline__ KbitTable(uint32_t address) : CodebookLookup<bits>{address} {}

    static __device__ __forceinline__ float2 values_of(int32_t entry, const float* values) {
        static_assert(!has_pairs);
        return {0.0f, load_global(values + entry)};
    }
};

template <int bits>
struct KbitTable<bits, KbitLookup::lanes> : LaneTable<bits> {
    __device__ __forceinline__ KbitTable(uint32_t address) : LaneTable<bits>{address} {}
};

template <int bits>
struct KbitTable<bits, KbitLookup::bytes> : ByteValues {
    __device__ __forceinline__ KbitTable(uint32_t address) {
        const uint2 values = load_shared_8(address);
        low = values.x;
        high = values.y;
    }
};

// Codes of a codebook, whatever their scales are.
template <PackedType packed, CodebookMode mode>
struct GemvCodebookCodes : GemvDequantBase<packed> {
    using Base = GemvDequantBase<packed>;
    using Operand = std::conditional_t<mode == CodebookMode::shared_bytes, Bytes<true>, F16>;
    static constexpr CodebookMode codebook_mode = mode;
    static constexpr int32_t bits = code_bits(packed);
    static constexpr KbitLookup lookup = kbit_lookup_of(bits, codebook_mode);
    using Table = KbitTable<bits, lookup>;

    template <int n>
    struct Codes {
        uint32_t codes[n][bits];
    };
    // at: the shared address of the codes of n blocks, which are `stride` bytes apart.
    template <int n>
    static __device__ __forceinline__ void load_codes(Codes<n>& words, uint32_t at, int32_t lane,
                                                      int32_t stride = Base::min_split_bytes) {
#pragma unroll
        for (int i = 0; i < n; ++i) load_shared_codes<bits>(at + i * stride, lane, words.codes[i]);
    }
    template <int n>
    static __device__ __forceinline__ void step(const Codes<n>& words, int j, const Table& table,
                                                uint32_t (&a)[4]) {
        table.step(words.codes[j / 4], j % 4, a);
    }
    template <int n>
    static __device__ __forceinline__ void two_steps(const Codes<n>& words, int i,
                                                     const Table& table, uint32_t (&a)[4]) {
        table.two_steps(words.codes[i / 2], i % 2, a);
    }

    static __device__ __forceinline__ uint32_t table_of(uint32_t tables, int32_t lane) {
        if constexpr (lookup == KbitLookup::lanes) return Table::of_lane(tables, lane).at;
        return tables;
    }
    // The values of entry i of the tables of both M halves, from the codebook of an expert.
    static __device__ __forceinline__ float2 load_entry(int32_t i, const float* codebook) {
        constexpr int32_t entries = Table::entries;
        return Table::values_of(i % entries, codebook + i / entries * 32);
    }
    static __device__ __forceinline__ void store_entry(unsigned char* table, int32_t i,
                                                       float2 values) {
        reinterpret_cast<uint32_t*>(table)[i] = F16::pair(values.x, values.y);
    }
};

template <PackedType packed, CodebookMode mode>
requires(is_kbit(packed)) struct GemvDequant<packed, mode> : GemvCodebookCodes<packed, mode> {
    using Base = GemvCodebookCodes<packed, mode>;

    template <int n>
    struct Words : Base::template Codes<n> {
        uint2 scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * Base::min_split_bytes;
        const uint32_t scales = at + Base::scales + column_block(lane, n) * Base::min_split_bytes;
        if constexpr (has_f32_scales(packed))
            words.scales = load_shared_8(scales_of_32(scales, lane, 4));
        else
            words.scales.x = load_shared_2(scales_of_32(scales, lane, 1));
        Base::load_codes(words, at, lane);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        if constexpr (has_f32_scales(packed))
            return {__uint_as_float(words.scales.x), __uint_as_float(words.scales.y)};
        else
            return {e4m4_scale(words.scales.x & 0xFFu), e4m4_scale(words.scales.x >> 8)};
    }
};

// ---- grouped GEMM

// The codebooks of both M halves in registers.
template <int bits>
struct CodebookTable {
    float of[2][1 << bits];

    __device__ __forceinline__ explicit CodebookTable(uint32_t table) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 1 << bits; ++i)
                of[half][i] = __uint_as_float(load_shared_4(table + 128 * half + 4 * i));
        }
    }
};

// Four and five bits have too many values for registers: the shared address.
struct CodebookAddress {
    uint32_t at;
    __device__ __forceinline__ explicit CodebookAddress(uint32_t table) : at(table) {}
};
template <>
struct CodebookTable<4> : CodebookAddress {
    using CodebookAddress::CodebookAddress;
};
template <>
struct CodebookTable<5> : CodebookAddress {
    using CodebookAddress::CodebookAddress;
};

// The values of a codebook times a scale, rounded to operands.
template <int bits, Operand operand = Operand::bf16>
__device__ __forceinline__ CodebookValues<bits> scaled_values(const float (&codebook)[1 << bits],
                                                              float scale) {
    uint32_t pairs[CodebookValues<bits>::n_pairs];
#pragma unroll
    for (int i = 0; i < CodebookValues<bits>::n_pairs; ++i)
        pairs[i] = operand_pair<operand>({codebook[2 * i] * scale, codebook[2 * i + 1] * scale});
    CodebookValues<bits> values;
    values.set(pairs);
    return values;
}

// Values of both M halves without scales: tables that the thread block makes.
template <int bits, Operand operand>
struct UnscaledValues {
    using Lookup = CodebookLookup<bits>;
    static constexpr uint32_t table_bytes = 2 * Lookup::bytes;
    Lookup lookup;

    __device__ __forceinline__ UnscaledValues(uint32_t, uint32_t pair_table, uint32_t)
        : lookup{pair_table} {}

    // The entries of thread `index` of 256.
    static __device__ __forceinline__ void store(uint32_t table, uint32_t pair_table,
                                                 uint32_t index) {
        if (index >= 2 * Lookup::entries) return;
        const uint32_t values = table + 128 * (index / Lookup::entries);
        const auto value = [&](int32_t code) {
            return __uint_as_float(load_shared_4(values + 4 * code));
        };
        const auto i = static_cast<int32_t>(index % Lookup::entries);
        const float low = Lookup::has_pairs ? value(Lookup::low_code(i)) : 0.0f;
        store_shared(pair_table + 4 * index,
                     operand_pair<operand>({low, value(Lookup::high_code(i))}));
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        lookup.step(words, j, a);
    }
};

// Three bits: every other step uses permutations of registers, because loads alone keep the shared
// memory busy for longer than the instructions of a block take. Two bits are slower this way.
template <int bits, Operand operand>
struct MixedValues : UnscaledValues<bits, operand> {
    CodebookValues<bits> of[2];

    __device__ __forceinline__ MixedValues(uint32_t table, uint32_t pair_table, uint32_t lane)
        : UnscaledValues<bits, operand>(table, pair_table, lane) {
        const CodebookTable<bits> values(table);
        of[0] = scaled_values<bits, operand>(values.of[0], 1.0f);
        of[1] = scaled_values<bits, operand>(values.of[1], 1.0f);
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        if (j & 1)
            look_up_step(of, words, j, a);
        else
            UnscaledValues<bits, operand>::step(words, j, a);
    }
};

// Four bits: a table for every lane.
template <Operand operand>
struct UnscaledValues<4, operand> {
    using Lanes = LaneTable<4>;
    static constexpr uint32_t table_bytes = Lanes::bytes;
    Lanes lanes;

    __device__ __forceinline__ UnscaledValues(uint32_t, uint32_t pair_table, uint32_t lane)
        : lanes(Lanes::of_lane(pair_table, lane)) {}

    // Entry `index` of every lane, by 256 threads together.
    static __device__ __forceinline__ void store(uint32_t table, uint32_t pair_table,
                                                 uint32_t index) {
        Lanes::store(pair_table, index, [&](uint32_t low, uint32_t high) {
            return operand_pair<operand>({__uint_as_float(load_shared_4(table + 4 * low)),
                                          __uint_as_float(load_shared_4(table + 128 + 4 * high))});
        });
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[4], int j, uint32_t* a) const {
        lanes.step(words, j, a);
    }
};

// The code of step j whose nibble begins at bit `at`, times 4.
template <int bits>
__device__ __forceinline__ uint32_t code_times_4(const uint32_t (&w)[bits], int j, int at) {
    const auto field = [](uint32_t word, int from, int to, uint32_t mask) {
        return (from >= to ? word >> (from - to) : word << (to - from)) & mask << to;
    };
    if constexpr (bits == 5) return field(w[j], at, 2, 15) | field(w[4], at + j, 6, 1);
    return field(w[j], at, 2, 15);
}

// Codes of four and five bits to scaled values; table: the shared address of [2][32] float32.
template <int bits, Operand operand = Operand::bf16>
__device__ __forceinline__ void dequantize_by_loads(const uint32_t (&codes)[bits],
                                                    const float (&scale)[2], uint32_t table,
                                                    uint32_t (&a)[16]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const int nibble = 4 * (i % 4), m_half = i & 1;
        float value[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const uint32_t index = code_times_4<bits>(codes, i / 4, nibble + 16 * e);
            value[e] = __uint_as_float(load_shared_4(table + 128 * m_half + index));
        }
        a[i] = operand_pair<operand>({value[0] * scale[m_half], value[1] * scale[m_half]});
    }
}

template <PackedType packed, Operand operand_>
struct GroupedKbit {
    static constexpr PackedType type = packed;
    static constexpr Operand operand = operand_;
    static constexpr int bits = code_bits(packed);
    static constexpr float residual_scale = 1.0f;
    static constexpr bool table_in_memory = bits >= 4;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = false;
    static constexpr bool has_superblock_scales = false;
    // Fewer instructions than dequantize; of other bits more.
    static constexpr bool groups_apart = bits == 4;
    using Table = CodebookTable<bits>;
    using Values =
        std::conditional_t<bits == 3, MixedValues<bits, operand>, UnscaledValues<bits, operand>>;
    struct Words {
        uint32_t codes[bits];
        float scale[2];
    };

    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words = load_codes(codes, lane);
        if constexpr (!has_f32_scales(packed)) {
            const uint32_t bytes = load_shared_2(scales + (lane & ~1u));
            words.scale[0] = e4m4_scale(bytes & 0xFFu);
            words.scale[1] = e4m4_scale(bytes >> 8);
        } else {
            const uint2 pair = load_shared_8(scales + (lane >> 1) * 8);
            words.scale[0] = __uint_as_float(pair.x);
            words.scale[1] = __uint_as_float(pair.y);
        }
        return words;
    }
    static __device__ __forceinline__ Words load_codes(uint32_t codes, uint32_t lane) {
        Words words;
        load_shared_codes<bits>(codes, lane, words.codes);
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
        if constexpr (bits <= 3) {
            const CodebookValues<bits> values[2] = {
                scaled_values<bits, operand>(table.of[0], words.scale[0]),
                scaled_values<bits, operand>(table.of[1], words.scale[1])};
#pragma unroll
            for (int j = 0; j < 4; ++j) look_up_step(values, words.codes, j, a + 4 * j);
        } else {
            dequantize_by_loads<bits, operand>(words.codes, words.scale, table.at, a);
        }
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values& values, int j,
                                                  uint32_t* a) {
        values.step(words.codes, j, a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return {{words.scale[0], words.scale[1]}, {}};
    }
    static __device__ __forceinline__ void factors_of_groups(uint32_t scales, uint32_t lane,
                                                             RowFactors (&of)[2]) {
        if constexpr (!has_f32_scales(packed)) {
            const uint32_t bytes = load_shared_4(scales + (lane & ~3u));
            of[0] = {{e4m4_scale(bytes & 0xFFu), e4m4_scale(bytes >> 8 & 0xFFu)}, {}};
            of[1] = {{e4m4_scale(bytes >> 16 & 0xFFu), e4m4_scale(bytes >> 24)}, {}};
        } else {
            const uint4 scale = load_shared_16(scales + (lane >> 2) * 16);
            of[0] = {{__uint_as_float(scale.x), __uint_as_float(scale.y)}, {}};
            of[1] = {{__uint_as_float(scale.z), __uint_as_float(scale.w)}, {}};
        }
    }
};

template <PackedType packed>
requires(is_kbit(packed)) struct GroupedDequant<packed> : GroupedKbit<packed, Operand::bf16> {
};
template <PackedType packed>
requires(is_kbit(packed)) struct InF16<GroupedDequant<packed>> : GroupedKbit<packed, Operand::f16> {
};

#endif

}  // namespace moe::cuda
