// gemv_dequant.cuh for codebook types: values of the codebook, in float16. Device memory has those
// of rows 0 to 7, then of rows 8 to 15 of an expert, 2^bits of [2][32] float32; shared memory by
// the codebook_mode (codebook_mode.hpp):
//   of_expert, 2 and 3 bits   pairs of neighbours, from where they come to registers
//                             (codebook_values.cuh): few warps wait longer for look-ups
//   of_expert, 4 and 5 bits   the tables of codebook_lookup.cuh
//   lanes                     that of codebook_lanes.cuh
//   bytes                     eight bytes, from where they come to registers
#pragma once

#include <type_traits>

#include "libmoe/cuda/device/codebook_lanes.cuh"
#include "libmoe/cuda/device/codebook_lookup.cuh"
#include "libmoe/cuda/device/gemv_dequant.cuh"

namespace moe::cuda {

// What decoding takes of the codebooks of both row halves, from their shared address.
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
    static constexpr int32_t entries = 1 << (bits - 1);  // of a row half
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

template <PackedType packed, CodebookMode mode_>
struct GemvKbit : GemvDequantBase<packed> {
    using Base = GemvDequantBase<packed>;
    using Operand = std::conditional_t<mode_ == CodebookMode::shared_bytes, Bytes<true>, F16>;
    static constexpr CodebookMode codebook_mode = mode_;
    static constexpr int32_t bits = code_bits(packed);
    static constexpr KbitLookup lookup = kbit_lookup_of(bits, codebook_mode);
    using Table = KbitTable<bits, lookup>;

    template <int n>
    struct Words {
        uint32_t codes[n][bits];
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
#pragma unroll
        for (int i = 0; i < n; ++i)
            load_codes<bits>(at + i * Base::min_split_bytes, lane, words.codes[i]);
    }

    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, const Table& table,
                                                uint32_t (&a)[4]) {
        table.step(words.codes[j / 4], j % 4, a);
    }
    // Steps 2 i and 2 i + 1 of 4 n, in one product.
    template <int n>
    static __device__ __forceinline__ void two_steps(const Words<n>& words, int i,
                                                     const Table& table, uint32_t (&a)[4]) {
        table.two_steps(words.codes[i / 2], i % 2, a);
    }

    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        if constexpr (has_f32_scales(packed))
            return {__uint_as_float(words.scales.x), __uint_as_float(words.scales.y)};
        else
            return {e4m4(words.scales.x & 0xFFu), e4m4(words.scales.x >> 8)};
    }

    static __device__ __forceinline__ uint32_t table_of(uint32_t tables, int32_t lane) {
        if constexpr (lookup == KbitLookup::lanes) return Table::of_lane(tables, lane).at;
        return tables;
    }
    // The values of entry i of the tables of both row halves, from the codebook of an expert.
    static __device__ __forceinline__ float2 load_entry(int32_t i, const float* codebook) {
        constexpr int32_t entries = Table::entries;
        return Table::values_of(i % entries, codebook + i / entries * 32);
    }
    static __device__ __forceinline__ void store_entry(unsigned char* table, int32_t i,
                                                       float2 values) {
        reinterpret_cast<uint32_t*>(table)[i] = F16::pair(values.x, values.y);
    }
};

}  // namespace moe::cuda
