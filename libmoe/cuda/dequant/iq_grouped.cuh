// iq2_xxs, iq2_xs, iq3_xxs and iq3_s in Hopper's grouped GEMM: the tables of gemv (iq_gemv.cuh)
// give levels plus 128, which are codes of 8 bits. Device only.
#pragma once

#include "libmoe/cuda/dequant/accumulator_units.cuh"
#include "libmoe/cuda/dequant/code_operands.cuh"
#include "libmoe/cuda/dequant/iq.cuh"

namespace moe::cuda {

template <PackedType packed, class Grid, class Names>
struct GroupedIq : GroupedCodeBase<packed> {
    using Tables = IqTables<packed, Grid, Names, 0x80808080u, false>;
    static constexpr uint32_t row_bytes = ggml_scale_bytes(packed);
    struct Words {
        typename Names::Row row[2];
        float scale[2];  // of rows g and g + 8
    };
    struct Table : Tables {
        __device__ __forceinline__ explicit Table(uint32_t tables)
            : Tables(tables, threadIdx.x % 32) {}
    };

    static __device__ __forceinline__ void store_tables(uint32_t to, int32_t first,
                                                        int32_t stride) {
        Tables::store(to, first, stride);
    }
    // A superblock is nothing but what others have as scales: codes are in it, too.
    struct KeptScales {
        static constexpr bool holds_address = true;
        uint32_t row;     // g
        float factor[2];  // of rows g and g + 8

        __device__ __forceinline__ void load(uint32_t headers, uint32_t lane) {
            row = headers + row_bytes * (lane >> 2);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                factor[half] =
                    f16_value(load_shared_2(row + 8 * half * row_bytes)) * Names::scale_unit;
        }
        __device__ __forceinline__ float2 take_units() {
            return moe::cuda::take_units(factor);
        }
    };
    static __device__ __forceinline__ Words load(uint32_t, const KeptScales& scales, uint32_t lane,
                                                 uint32_t block) {
        const uint32_t t = 4 * block + (lane & 3);
        Words words;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t row = scales.row + 8 * half * row_bytes;
            words.row[half] = Names::names(row, t);
            const float levels = static_cast<float>(Names::scale_code(row, t)) + 0.5f;
            words.scale[half] = scales.factor[half] * levels;
        }
        return words;
    }
    template <Operand operand = Operand::bf16, bool one_scale = operand == Operand::f16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const SignedCodeOperands<operand, one_scale> operands(words.scale[row], 128);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint2 two = table.levels(words.row[row], i);
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const uint32_t bytes = j == 0 ? two.x : two.y;
                    uint32_t* step = a + 4 * (2 * i + j) + row;
                    step[0] = operands.even(bytes);
                    step[2] = operands.odd(bytes);
                }
            }
        }
    }
};

template <>
struct GroupedDequant<PackedType::iq2_xxs>
    : GroupedIq<PackedType::iq2_xxs, Iq2XxsGrid, Iq2XxsNames> {};
template <>
struct GroupedDequant<PackedType::iq2_xs> : GroupedIq<PackedType::iq2_xs, Iq2XsGrid, Iq2XsNames> {};
template <>
struct GroupedDequant<PackedType::iq3_xxs>
    : GroupedIq<PackedType::iq3_xxs, Iq3XxsGrid, Iq3XxsNames> {};
template <>
struct GroupedDequant<PackedType::iq3_s> : GroupedIq<PackedType::iq3_s, Iq3SGrid, Iq3SNames> {};

}  // namespace moe::cuda
