// raw_fragment.cuh for codebook types: values of the codebook, in float16. Shared memory has those
// of rows 0 to 7, then of rows 8 to 15 of an expert (2^bits of [2][32] float32 in device memory):
//   2 and 3 bits: pairs of neighbours, from where they come to registers (codebook_values.cuh); a
//                 look-up would wait longer, and the warps here are few
//   4 and 5 bits: the tables of codebook_lookup.cuh
#pragma once

#include "libmoe/cuda/device/codebook_lookup.cuh"
#include "libmoe/cuda/device/raw_fragment.cuh"

namespace moe::cuda {

constexpr MOE_HOST_DEVICE bool has_f32_scales(PackedType type) {
    return type >= PackedType::kbit2_f32 && type <= PackedType::kbit5_f32;
}

// What decoding takes of the codebooks of both row halves, from their shared address.
template <int bits, bool in_registers>
struct KbitTable {
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
struct KbitTable<bits, false> : CodebookLookup<bits> {
    using CodebookLookup<bits>::has_pairs;

    __device__ __forceinline__ KbitTable(uint32_t address) : CodebookLookup<bits>{address} {}

    static __device__ __forceinline__ float2 values_of(int32_t entry, const float* values) {
        static_assert(!has_pairs);
        return {0.0f, load_global(values + entry)};
    }
};

template <PackedType packed>
struct RawKbit : RawType<packed> {
    using Base = RawType<packed>;
    using Operand = F16;
    static constexpr int32_t bits = code_bits(packed);
    using Table = KbitTable<bits, bits <= 3>;
    static constexpr int32_t entries = Table::entries;

    template <int n>
    struct Words {
        uint32_t codes[n][bits];
        uint2 scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t chunk, int32_t block,
                                                int32_t lane) {
        const uint32_t at = chunk + block * Base::grain_bytes;
        const uint32_t scales = at + Base::scales + column_block(lane, n) * Base::grain_bytes;
        if constexpr (has_f32_scales(packed))
            words.scales = load_shared_8(scales_of_32(scales, lane, 4));
        else
            words.scales.x = load_shared_2(scales_of_32(scales, lane, 1));
#pragma unroll
        for (int i = 0; i < n; ++i)
            load_codes<bits>(at + i * Base::grain_bytes, lane, words.codes[i]);
    }

    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, const Table& table,
                                                uint32_t (&a)[4]) {
        table.step(words.codes[j / 4], j % 4, a);
    }

    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        if constexpr (has_f32_scales(packed))
            return {__uint_as_float(words.scales.x), __uint_as_float(words.scales.y)};
        else
            return {e4m4(words.scales.x & 0xFFu), e4m4(words.scales.x >> 8)};
    }

    // The values of entry i of the tables of both row halves, from the codebook of an expert.
    static __device__ __forceinline__ float2 load_entry(int32_t i, const float* codebook) {
        return Table::values_of(i % entries, codebook + i / entries * 32);
    }
    static __device__ __forceinline__ void store_entry(unsigned char* table, int32_t i,
                                                       float2 values) {
        reinterpret_cast<uint32_t*>(table)[i] = F16::pair(values.x, values.y);
    }

  private:
    // Exponent of four bits and bias 11: as bits of a float32, 2^-116 of its value, subnormals too.
    static __device__ __forceinline__ float e4m4(uint32_t byte) {
        return __uint_as_float(byte << 19) * 0x1p+116f;
    }
};

}  // namespace moe::cuda
