// The contract of this folder. A packed type has one file, <type>.cuh, with everything that a
// kernel must know of it: loads, scales, constants, and how codes become operands. The layout
// itself is that of libmoe/packed/layout.hpp. A file specializes up to four templates:
//
//   ValueDequant<type>         values of a block for the grouped GEMM of sm_80 and the exact
//                              kernels; required. Host and device:
//                              tests/weights/dequant_test.cpp checks every type on the CPU
//   GemvDequant<type, mode>    operands of the gemv kernels, device only. The mode says where a
//                              type with a codebook finds its values (codebook_mode.hpp)
//   GroupedDequant<type>       operands of the grouped GEMM of sm_90, device only; those of ggml's
//                              types also of the portable one, so without instructions of sm_90
//   Fp8Dequant<type>           operands of the grouped GEMM of E4M3, device only
//
// A block is 16 rows and 64 k, four steps of 16 k. Lane 4 g + t owns rows g and g + 8 and columns
// 16 t to 16 t + 15 of it. Register `reg` of a step belongs to row g + 8 (reg & 1).
//
// ValueDequant (value_blocks.hpp)
//   Words                      what a lane holds of a block
//   load(type, codes, scales, lane, k0)
//                              the lane's Words of a block; `type` has the numbers of a grid, k0 is
//                              the block's first column
//   pair(words, codebook, step, reg)
//                              the two values of a register in float32. codebook: 32 values of rows
//                              0 to 7 of the tile, then 32 of rows 8 to 15
//   operands<operand>(words, step, reg)
//                              optional: the register itself, where it is exact without a detour
//   bf16_residual_scale, f16_residual_scale
//                              optional: values are divided by it before they become operands, and
//                              accumulators are multiplied by it, so that no scale byte overflows a
//                              16-bit operand or loses bits in it (values.cuh)
//
// GemvDequant (gemv_blocks.cuh). One token: the scales are applied to accumulators, once per row
// and group, because codes alone are cheap operands. B is laid out so that column n of the result
// is the partial accumulator of columns 16 (n % 4) to 16 (n % 4) + 15 of block n / 4 of two blocks.
//   type, codebook_mode        the template arguments
//   Operand                    Bf16 or F16: codes become pairs of it, and x is rounded to it;
//                              Bytes<is_signed>: codes become bytes, and x two bytes;
//                              BytesOf16<is_signed>: the same where a scale serves 16 k
//   span                       blocks of one accumulation: 2, or 1 where there are no scales or a
//                              scale serves 16 k
//   min_split, min_split_bytes blocks that must stay together, and their bytes
//   brings_records             grids: k_blocks come with records beside the codes. Not where each
//                              block begins with its own: those are part of its min_split_bytes
//   x_exponent                 x is multiplied by 2^x_exponent before it is rounded to Operand
//   residual_scale             multiplies accumulators and makes up for powers of two left out
//   ones                       for types with minima: a register of codes 1, whose accumulators are
//                              sums of x; 0: none
//   n_parts                    registers of A that are multiplied by the same B: 2 where operands
//                              are sums of two bytes (iq4_levels.cuh), else 1
//   starts_next_early          the next kernel may start at once: where that was measured faster
//   Words<n>                   what a lane holds of n <= span blocks
//   KBlock                     where the splits of a k_block are: the shared address, or where it
//                              brings records theirs, too (grid_gemv.cuh)
//   load(words, k_block, block, lane)
//                              k_block: whole splits; block: number in them
//   Table, table_of(tables, lane)
//                              what step needs of a codebook, and the address it is made from
//   store_tables(to, first, stride)
//                              types with tables of their own (codebook_mode.hpp): stores entries
//                              first, first + stride and so on of the tables of the type
//   step(words, j, table, a)   Bf16, F16: the four A registers of step j of 4 n
//   two_steps(words, i, table, a)
//                              Bytes: those of steps 2 i and 2 i + 1: a[0] and a[1] are rows g and
//                              g + 8 of the first, a[2] and a[3] of the second, k in order 0, 2, 1,
//                              3; where n_parts is 2, those of the second part follow in a register
//                              array of their own
//   GroupScales(k_block, block, lane)
//                              the scales that a min_split of several blocks shares
//   Factors                    a lane's scales of n blocks as numbers
//   factors(words), factors(group_scales, block)
//                              the first, or the second where min_split > 1
//   add(factors, c, acc), add(factors, c, x, acc)
//                              adds a lane's four partial accumulators c, scaled, to those of rows
//                              g and g + 8; the second where `ones` is set, x being the sums of x
//
// GroupedDequant (grouped_blocks.cuh). Several tokens: operands are values, bfloat16 or float16.
// Integer codes take scale and minimum as 16-bit numbers (code_operands.cuh); values of other types
// are scaled in float32 and rounded once; nvfp4 and mxfp4 are exact. InF16 makes one of float16
// operands from one whose dequantize has the operand as a template argument.
//   type, residual_scale       as above
//   f16_residual_scale         optional: the residual scale of float16 operands, where it differs
//   Words, load(codes, scales, lane)
//                              codes, scales: shared addresses of a block's
//   KeptScales                 grids and types with superblock scales: what a lane keeps of scales
//                              that serve several blocks
//     .load(headers, lane)     headers: the shared address of the scales of a superblock
//     .load(records, record, lane)
//                              instead, grids: the shared address of the record of its columns
//     ::holds_address          superblocks: they are valid as long as the pipeline stage
//   load(codes, kept, lane, block), load(codes, lane)
//                              instead: of a superblock, of which `block` is 0 to 3; of a grid
//   Table                      what dequantize needs of the codebooks of rows g and g + 8, made
//                              from the shared address of [2][32] float32
//   dequantize(words, table, a), dequantize<operand>(words, table, a)
//                              the 16 registers of four steps; of grids `kept` precedes `table`
//   table_in_memory            types with a codebook: dequantize reads the table's shared memory
//   scales_after               scales may also be applied to accumulators, which costs less for
//                              small batches. These types have the rest of the list, too
//   Values                     unscaled values of a codebook, from the table, the shared address of
//                              Values::table_bytes more of it, and the lane; NoValues without one
//   LevelScales                grids: as KeptScales, and factors()
//   spread(words, values, j, a), spread(words, values, level_scales, j, a)
//                              the four registers of step j without scales; the second of grids
//   factors(words)             RowFactors of the lane's group of 32 k, without the residual scale
//   has_offset                 RowFactors::of_tokens counts: the type has minima
//   load_codes(codes, lane)    Words without scales
//   has_superblock_scales      scales of four blocks come together: factors(kept, block)
//   groups_apart               factors_of_groups(scales, lane, of) has those of both groups of 32 k
//                              of a block (sm90_mainloop_warp.cuh)
//
// Fp8Dequant. Activations and operands are E4M3; a scale holds for 8 rows and 128 k, and multiplies
// accumulators.
//   type                       the template argument
//   operands(codes, lane, a)   codes: the shared address of a block's. The eight registers of two
//                              fragments of mma.m16n8k32, whose k are in the order of
//                              fp8_blocks.hpp
//   scales(scales)             those of rows 0 to 7 and of rows 8 to 15, from the shared address of
//                              the first block's
//   KeptScales                 grids: instead, as of GroupedDequant, with a `scale` of both
#pragma once

#include "libmoe/cuda/device/codebook_mode.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

template <PackedType type>
struct ValueDequant;

template <PackedType type, CodebookMode mode = CodebookMode::none>
struct GemvDequant;

template <PackedType type>
struct GroupedDequant;

template <PackedType type>
struct Fp8Dequant;

// Calls use.template operator()<kind>() with the packed type of a matrix; of a grid with its kind,
// without its numbers.
template <class Use>
MOE_HOST_DEVICE inline void with_packed_type(PackedType type, const Use& use) {
    switch (kind_of(type)) {
#define MOE_CASE(name)                               \
    case PackedType::name:                           \
        use.template operator()<PackedType::name>(); \
        break;
        MOE_CASE(f32)
        MOE_CASE(f16)
        MOE_CASE(bf16)
        MOE_CASE(e4m3)
        MOE_CASE(nvfp4)
        MOE_CASE(mxfp4)
        MOE_CASE(kbit2)
        MOE_CASE(kbit3)
        MOE_CASE(kbit4)
        MOE_CASE(kbit5)
        MOE_CASE(kbit2_f32)
        MOE_CASE(kbit3_f32)
        MOE_CASE(kbit4_f32)
        MOE_CASE(kbit5_f32)
        MOE_CASE(q8_0)
        MOE_CASE(q4_k)
        MOE_CASE(q5_k)
        MOE_CASE(q2_k)
        MOE_CASE(q3_k)
        MOE_CASE(q6_k)
        MOE_CASE(iq4_xs)
        MOE_CASE(iq2_xxs)
        MOE_CASE(iq2_xs)
        MOE_CASE(iq3_xxs)
        MOE_CASE(iq3_s)
        MOE_CASE(q4_0)
        MOE_CASE(iq4_nl)
        MOE_CASE(q5_0)
        MOE_CASE(q4_1)
        MOE_CASE(q5_1)
        MOE_CASE(grid_e4m3)
        MOE_CASE(grid_1)
        MOE_CASE(grid_2)
        MOE_CASE(grid_3)
        MOE_CASE(grid_4)
        MOE_CASE(grid_5)
        MOE_CASE(grid_6)
        MOE_CASE(grid_7)
        MOE_CASE(grid_8)
        MOE_CASE(grid_codebook)
#undef MOE_CASE
        case PackedType::none:
            break;
    }
}

}  // namespace moe::cuda
