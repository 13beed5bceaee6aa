// raw_fragment.cuh for codebook types: values of the codebook, in float16. Shared memory has those
// of rows 0 to 7, then of rows 8 to 15 of an expert (2^bits of [2][32] float32 in device memory):
//   2 and 3 bits: pairs of neighbours, from where they come to registers (codebook_values.cuh)
//   4 and 5 bits: 32 values, looked up one by one
#pragma once

#include "libmoe/cuda/device/codebook_values.cuh"
#include "libmoe/cuda/device/raw_fragment.cuh"

namespace moe::cuda {

constexpr MOE_HOST_DEVICE bool has_f32_scales(PackedType type) {
    return type >= PackedType::kbit2_f32 && type <= PackedType::kbit5_f32;
}

// Codes of one block: a nibble for each, register a and its half e at nibble a + 4 e.
template <int bits>
struct KbitCodes;

template <>
struct KbitCodes<2> {
    uint32_t words[2];

    __device__ __forceinline__ void load(uint32_t at, int32_t lane) {
        const uint2 w = load_shared_8(at + 8 * lane);
        words[0] = w.x;
        words[1] = w.y;
    }
};

template <>
struct KbitCodes<3> {
    uint32_t words[3];

    __device__ __forceinline__ void load(uint32_t at, int32_t lane) {
        const uint2 w = load_shared_8(at + 8 * lane);
        words[0] = w.x;
        words[1] = w.y;
        words[2] = load_shared_4(at + 256 + 4 * lane);
    }
};

template <>
struct KbitCodes<4> {
    uint4 words;

    __device__ __forceinline__ void load(uint32_t at, int32_t lane) {
        words = load_shared_16(at + 16 * lane);
    }
    __device__ __forceinline__ uint32_t step(int j) const { return word_of(words, j); }
};

template <>
struct KbitCodes<5> {
    uint4 words;
    uint32_t fifth;  // bit j of a nibble: of step j

    __device__ __forceinline__ void load(uint32_t at, int32_t lane) {
        words = load_shared_16(at + 16 * lane);
        fifth = load_shared_4(at + 512 + 4 * lane);
    }
    __device__ __forceinline__ uint32_t step(int j) const { return word_of(words, j); }
};

// Where step finds the codebook, from the shared address of its values.
template <int bits, bool in_registers>
struct KbitTable {
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
};

template <int bits>
struct KbitTable<bits, false> {
    uint32_t address;

    __device__ __forceinline__ KbitTable(uint32_t shared_address) : address(shared_address) {}
};

template <PackedType packed>
struct RawKbit : RawType<packed> {
    using Base = RawType<packed>;
    using Operand = F16;
    static constexpr int32_t bits = code_bits(packed);
    static constexpr bool pairs = bits <= 3;
    static constexpr int32_t entries = pairs ? 1 << (bits - 1) : 32;  // of a row half
    static constexpr uint32_t half_bytes = entries * (pairs ? 4 : 2);
    using Table = KbitTable<bits, pairs>;

    template <int n>
    struct Words {
        KbitCodes<bits> codes[n];
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
        for (int i = 0; i < n; ++i) words.codes[i].load(at + i * Base::grain_bytes, lane);
    }

    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, const Table& table,
                                                uint32_t (&a)[4]) {
        const KbitCodes<bits>& codes = words.codes[j / 4];
        if constexpr (pairs)
            look_up_step(table.of, codes.words, j % 4, a);
        else
            look_up_single(codes.step(j % 4), fifth_bits(codes, j % 4), table.address, a);
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
        const float* values = codebook + i / entries * 32;
        const int32_t entry = i % entries;
        if constexpr (pairs)
            return {load_global(values + 2 * entry), load_global(values + 2 * entry + 1)};
        return {load_global(values + (entry & ((1 << bits) - 1))), 0.0f};
    }
    static __device__ __forceinline__ void store_entry(unsigned char* table, int32_t i,
                                                       float2 values) {
        const uint32_t pair = F16::pair(values.x, values.y);
        if constexpr (pairs)
            reinterpret_cast<uint32_t*>(table)[i] = pair;
        else
            reinterpret_cast<uint16_t*>(table)[i] = static_cast<uint16_t>(pair);
    }

  private:
    // Exponent of four bits and bias 11: as bits of a float32, 2^-116 of its value, subnormals too.
    static __device__ __forceinline__ float e4m4(uint32_t byte) {
        return __uint_as_float(byte << 19) * 0x1p+116f;
    }

    // The fifth bits of a step as bit 0 of every nibble.
    static __device__ __forceinline__ uint32_t fifth_bits(const KbitCodes<bits>& codes, int j) {
        if constexpr (bits == 5)
            return codes.fifth >> j & 0x11111111u;
        else
            return 0;
    }

    static __device__ __forceinline__ void look_up_single(uint32_t codes, uint32_t fifth,
                                                          uint32_t table, uint32_t (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int nibble = 4 * (i + 4 * e);
                uint32_t code = codes >> nibble & 15u;
                if constexpr (bits == 5) code |= (fifth >> nibble & 1u) << 4;
                value[e] = load_shared_2(table + (i & 1) * half_bytes + 2 * code);
            }
            a[i] = __byte_perm(value[0], value[1], 0x5410);
        }
    }
};

}  // namespace moe::cuda
