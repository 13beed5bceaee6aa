// Which launches a family makes of a projection and of an MLP.
#include "libmoe/cuda/mlp.hpp"

#include "libmoe/cuda/activation/activate.hpp"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/dispatch/gather_columns.hpp"
#include "libmoe/cuda/dispatch/tiles.hpp"
#include "libmoe/cuda/exact/exact.hpp"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"
#include "libmoe/cuda/scratch.hpp"

namespace moe::cuda {
namespace {

// float16 rows meet weights as float16, whose range is theirs: 65,504 down to 2^-24.
moe_type operand_for(const DeviceRows& in) {
    return in.type == MOE_TYPE_F16 ? MOE_TYPE_F16 : MOE_TYPE_BF16;
}

void run_gemm(const Launch& launch, Family family, const GemmArgs& gemm, const GemmNames& names,
              TileWidths tiles) {
    switch (family) {
        case Family::exact:
            return run_exact(launch.device, gemm, names.wide, launch.stream);
        case Family::grouped:
        case Family::grouped_f16:
            return run_grouped_gemm(launch.device, gemm, names, tiles, launch.stream);
        case Family::grouped_fp8:
            return run_fp8_grouped_gemm(launch.device, gemm, names, tiles, launch.stream);
        default:
            return run_sm80_grouped_gemm(launch.device, gemm, names, tiles, operand_for(gemm.in),
                                         launch.stream);
    }
}

GemmArgs make_gemm_args(const Launch& launch, const PackedMatrix& matrix, int64_t in_columns,
                        Epilogue epilogue, const Rows& rows) {
    GemmArgs gemm{};
    gemm.weights = matrix;
    gemm.in_columns = static_cast<int32_t>(in_columns);
    gemm.epilogue = epilogue;
    gemm.tiles = rows.tiles;
    gemm.n_tiles = rows.n_tiles;
    gemm.max_tiles = rows.max_tiles;
    gemm.round_to = MOE_TYPE_NONE;
    gemm.in_capacity = gemm.out_capacity = rows.capacity;
    gemm.tile_counter = rows.tile_counter;  // zero once the input has been gathered
    gemm.batch_invariant = launch.batch_invariant;
    return gemm;
}

Epilogue gate_up_epilogue(const Mlp& mlp) {
    return mlp.gate ? Epilogue::gated : Epilogue::activation;
}

const PackedMatrix& gate_up_matrix(const Mlp& mlp) {
    return mlp.gate ? *mlp.gate : *mlp.up;
}

void set_bias(GemmArgs& gemm, const Mlp& mlp) {
    gemm.bias = mlp.gate ? mlp.gate_bias : mlp.up_bias;
    gemm.up_bias = mlp.gate ? mlp.up_bias : nullptr;
    gemm.bias_stride = mlp.features;
    gemm.row_weight = mlp.row_weight;
    gemm.row_slot = mlp.rows.slot;
}

// gate_up fused with the activation; in is still to be set.
GemmArgs gate_up_args(const Launch& launch, Family family, const Mlp& mlp) {
    GemmArgs gemm =
        make_gemm_args(launch, gate_up_matrix(mlp), mlp.width, gate_up_epilogue(mlp), mlp.rows);
    gemm.activation = mlp.activation;
    set_bias(gemm, mlp);
    gemm.out = dense_rows(mlp.h, operand_type(family), mlp.features);
    gemm.round_to = mlp.intermediate_type;
    return gemm;
}

// The rows of h as the table of down's columns has them.
void permute_h(const Launch& launch, Family family, const Mlp& mlp) {
    const PackedMatrix& down = *mlp.down;
    ColumnRows h{dense_rows(mlp.h, operand_type(family), mlp.features)};
    if (is_grouped(family)) h.capacity = mlp.rows.capacity;
    const auto n_columns = static_cast<int32_t>(mlp.features);
    run_permute_columns(launch.device, {down.columns, down.table, down.k, n_columns, h, h},
                        mlp.rows, launch.stream);
}

void run_down(const Launch& launch, Family family, const Mlp& mlp) {
    if (mlp.down->columns) permute_h(launch, family, mlp);
    GemmArgs down = make_gemm_args(launch, *mlp.down, mlp.features, Epilogue::linear, mlp.rows);
    down.bias = mlp.down_bias;
    down.bias_stride = mlp.width;
    down.in = dense_rows(mlp.h, operand_type(family), mlp.features);
    down.out = mlp.y;
    down.tile_counter = mlp.rows.tile_counter + 4;
    run_gemm(launch, family, down, *mlp.down_names, launch.tiles.down);
}

void run_split(const Launch& launch, Family family, const Mlp& mlp) {
    ActivateRows rows{};
    rows.in = mlp.pre;
    rows.n_features = static_cast<int32_t>(mlp.features);
    rows.in_stride = mlp.gate ? 2 * mlp.features : mlp.features;
    run_pre_activation(launch, family, mlp, dense_rows(mlp.pre, MOE_TYPE_F32, rows.in_stride));
    rows.activation = mlp.activation;
    rows.out = dense_rows(mlp.h, operand_type(family), mlp.features);
    rows.round_to = mlp.intermediate_type;
    rows.tiles = mlp.rows.tiles;
    rows.n_tiles = mlp.rows.n_tiles;
    rows.max_tiles = mlp.rows.max_tiles;
    run_activate(launch.device, rows, launch.stream);
}

// Rows `in` as the table of a matrix has their columns, in `to`: token blocks for Hopper's grouped
// GEMM, else rows by sorted row.
DeviceRows gather_columns(const Launch& launch, Family family, const GemmArgs& gemm,
                          const DeviceRows& in, const Rows& rows, std::byte* to) {
    const moe_type type = family == Family::exact ? operand_type(family) : operand_for(in);
    const PackedMatrix& matrix = gemm.weights;
    const ColumnRows out{dense_rows(to, type, matrix.k), is_grouped(family) ? rows.capacity : 0};
    run_gather_columns(launch.device,
                       {matrix.columns, matrix.table, matrix.k, gemm.in_columns, {in}, out}, rows,
                       launch.stream);
    return out.rows;
}

// The grouped family reads token blocks: of the tokens, each once, where the rows' indices say
// whose they are; else of a copy of every row.
void set_blocks(const Launch& launch, Family family, const Mlp& mlp, GemmArgs& gate_up) {
    const GatherInput input = block_input(family, mlp.in, mlp.codes, gate_up.in_columns);
    gate_up.in = dense_rows(mlp.blocks, input.to, gate_up.weights.k);
    if (!mlp.indexes_rows)
        return run_gather(launch.device, input, mlp.rows, mlp.blocks, launch.stream);
    gate_up.in_capacity = static_cast<int32_t>(padded_rows(mlp.in_tokens.n));
    gate_up.in.index = mlp.in.index;
    gate_up.in.divisor = mlp.in.divisor;
    gate_up.tiles_are_new = mlp.is_arranged;
    if (mlp.is_arranged) return;
    run_arrange(launch.device, input, mlp.in_tokens,
                {mlp.blocks, gate_up.in_capacity, mlp.rows.tile_counter}, launch.stream);
}

void set_input(const Launch& launch, Family family, const Mlp& mlp, GemmArgs& gemm) {
    if (gemm.weights.columns)
        gemm.in = gather_columns(launch, family, gemm, mlp.in, mlp.rows, mlp.blocks);
    else if (is_grouped(family))
        set_blocks(launch, family, mlp, gemm);
    else
        gemm.in = mlp.in;
}

void run_gate_up(const Launch& launch, Family family, const Mlp& mlp) {
    GemmArgs gate_up = gate_up_args(launch, family, mlp);
    set_input(launch, family, mlp, gate_up);
    run_gemm(launch, family, gate_up, *mlp.gate_up_names, launch.tiles.gate_up);
}

// Gate and up of different types by Hopper's grouped GEMM: the gate's values go to mlp.pre, and the
// epilogue of up reads them.
void run_gate_then_up(const Launch& launch, Family family, const Mlp& mlp) {
    GemmArgs gate = make_gemm_args(launch, *mlp.gate, mlp.width, Epilogue::linear, mlp.rows);
    set_bias(gate, mlp);
    gate.out = dense_rows(mlp.pre, MOE_TYPE_F32, mlp.features);
    set_input(launch, family, mlp, gate);
    run_gemm(launch, family, gate, *mlp.gate_up_names, launch.tiles.gate_up);

    GemmArgs up = gate_up_args(launch, family, mlp);
    up.weights = *mlp.up;
    up.epilogue = Epilogue::activation;
    up.bias = mlp.up_bias;
    if (gate.weights.columns || up.weights.columns) {
        set_input(launch, family, mlp, up);
    } else {
        up.in = gate.in;
        up.in_capacity = gate.in_capacity;
    }
    up.tile_counter = mlp.rows.tile_counter + 2;
    run_grouped_gemm(launch.device, up, *mlp.gate_up_names, launch.tiles.gate_up, launch.stream,
                     {mlp.pre, mlp.features});
}

}  // namespace

GatherInput block_input(Family family, const DeviceRows& in, const Fp8Rows& codes,
                        int64_t n_columns) {
    GatherInput input{in, static_cast<int32_t>(n_columns), operand_for(in), nullptr, 0};
    if (family != Family::grouped_fp8) return input;
    input.to = MOE_TYPE_F8_E4M3;
    if (!codes.data) return input;
    input.in.data = codes.data;
    input.in.type = MOE_TYPE_F8_E4M3;
    input.in.stride = codes.stride;
    input.scales = codes.scales;
    input.scale_stride = codes.scale_stride;
    return input;
}

void run_projection(const Launch& launch, Family family, const Projection& p) {
    GemmArgs gemm = make_gemm_args(launch, p.matrix, p.in_columns, Epilogue::linear, p.rows);
    gemm.bias = p.bias;
    gemm.bias_stride = int64_t{16} * p.matrix.n_tiles;
    gemm.in = p.in;
    gemm.out = p.out;
    if (p.matrix.columns) {
        gemm.in = gather_columns(launch, family, gemm, p.in, p.rows, p.blocks);
    } else if (is_grouped(family)) {
        const GatherInput input = block_input(family, p.in, {}, gemm.in_columns);
        run_gather(launch.device, input, p.rows, p.blocks, launch.stream);
        gemm.in = dense_rows(p.blocks, input.to, p.matrix.k);
    }
    run_gemm(launch, family, gemm, *p.names, launch.tiles.down);
}

void run_mlp(const Launch& launch, Family family, const Mlp& mlp) {
    if (mlp.pre && !is_grouped(family))
        run_split(launch, family, mlp);
    else if (mlp.gate && !mlp.is_gate_up_fused)
        run_gate_then_up(launch, family, mlp);
    else
        run_gate_up(launch, family, mlp);
    run_down(launch, family, mlp);
}

void run_pre_activation(const Launch& launch, Family family, const Mlp& mlp,
                        const DeviceRows& out) {
    auto run = [&](const PackedMatrix& matrix, Epilogue epilogue, const float* bias,
                   const float* up_bias, int64_t first_column) {
        GemmArgs gemm = make_gemm_args(launch, matrix, mlp.width, epilogue, mlp.rows);
        set_bias(gemm, mlp);
        gemm.bias = bias;
        gemm.up_bias = up_bias;
        gemm.in = matrix.columns
                      ? gather_columns(launch, family, gemm, mlp.in, mlp.rows, mlp.blocks)
                      : mlp.in;
        gemm.out = out;
        gemm.out.data = gemm.out_bytes() + first_column * element_size(out.type);
        run_gemm(launch, family, gemm, *mlp.gate_up_names, launch.tiles.gate_up);
    };
    if (!mlp.gate) return run(*mlp.up, Epilogue::linear, mlp.up_bias, nullptr, 0);
    if (mlp.is_gate_up_fused)
        return run(*mlp.gate, Epilogue::gate_and_up, mlp.gate_bias, mlp.up_bias, 0);
    run(*mlp.gate, Epilogue::linear, mlp.gate_bias, nullptr, 0);
    run(*mlp.up, Epilogue::linear, mlp.up_bias, nullptr, mlp.features);
}

}  // namespace moe::cuda
