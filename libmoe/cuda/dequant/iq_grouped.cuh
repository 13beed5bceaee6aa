// iq2_xxs, iq2_xs, iq3_xxs and iq3_s in Hopper's grouped GEMM: the tables of gemv (iq_gemv.cuh)
// give levels as signed bytes, which become float32, are scaled, and are rounded to an operand
// once. Device only.
#pragma once

#include "libmoe/cuda/dequant/grouped_codes.cuh"
#include "libmoe/cuda/dequant/iq.cuh"

namespace moe::cuda {

template <PackedType packed, class Grid, class Names>
struct GroupedIq : GroupedDequantBase<packed> {
    using Tables = IqTables<packed, Grid, Names>;
    static constexpr uint32_t row_bytes = ggml_scale_bytes(packed);
    struct Words {
        IqNames row[2];
        float scale[2];  // of rows g and g + 8
    };
    struct Table {
        uint32_t at;
        __device__ __forceinline__ explicit Table(uint32_t tables) : at(tables) {}
    };

    static __device__ __forceinline__ void store_tables(uint32_t to, int32_t first,
                                                        int32_t stride) {
        Tables::store(to, first, stride);
    }
    // headers: the rows of the superblock, of which `block` is one of four.
    static __device__ __forceinline__ Words load(uint32_t, uint32_t headers, uint32_t lane,
                                                 uint32_t block) {
        const uint32_t t = 4 * block + (lane & 3);
        Words words;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t row = headers + row_bytes * ((lane >> 2) + 8 * half);
            words.row[half] = Names::names(row, t);
            const float levels = static_cast<float>(Names::scale_code(row, t)) + 0.5f;
            words.scale[half] = f16_value(load_shared_2(row)) * Names::scale_unit * levels;
        }
        return words;
    }
    // Levels are above -64, so that 64 more fit byte_over_128. 192 times a scale of 16 bits is
    // exact.
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float scale = words.scale[row], offset = -192.0f * scale;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint2 two = Tables::levels(table.at, words.row[row], i);
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const uint32_t bytes = ((j == 0 ? two.x : two.y) ^ 0x80808080u) - 0x40404040u;
                    float value[4];
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        value[e] = fmaf(byte_over_128(bytes, e), scale, offset);
                    uint32_t* step = a + 4 * (2 * i + j) + row;
                    step[0] = operand_pair<operand>({value[0], value[2]});
                    step[2] = operand_pair<operand>({value[1], value[3]});
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
