// Which launches a family makes of a projection and of an MLP.
#include "libmoe/cuda/mlp.hpp"

#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/dispatch/tiles.hpp"
#include "libmoe/cuda/exact/exact.hpp"
#include "libmoe/cuda/generic/generic.hpp"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"
#include "libmoe/cuda/scratch.hpp"

namespace moe::cuda {
namespace {

// float16 rows meet weights as float16, whose range is theirs: 65,504 down to 2^-24.
moe_type operand_for(const GemmArgs& gemm) {
    return gemm.in.type == MOE_TYPE_F16 ? MOE_TYPE_F16 : MOE_TYPE_BF16;
}

void run_gemm(const Launch& launch, Family family, const GemmArgs& gemm, const GemmNames& names) {
    if (family == Family::exact)
        run_exact(launch.device, gemm, names.wide, launch.stream);
    else
        run_generic(launch.device, gemm, names.wide, operand_for(gemm), launch.stream);
}

GemmArgs make_gemm_args(const PackedMatrix& matrix, Epilogue epilogue, const Rows& rows) {
    GemmArgs gemm{};
    gemm.weights = matrix;
    gemm.epilogue = epilogue;
    gemm.tiles = rows.tiles;
    gemm.n_tiles = rows.n_tiles;
    gemm.max_tiles = rows.max_tiles;
    gemm.round_to = MOE_TYPE_NONE;
    return gemm;
}

GroupedGemmArgs make_grouped(const Launch& launch, const PackedMatrix& matrix, Epilogue epilogue,
                             const Rows& rows) {
    GroupedGemmArgs gemm{};
    gemm.batch_invariant = launch.batch_invariant;
    gemm.weights = matrix;
    gemm.epilogue = epilogue;
    gemm.in_capacity = rows.capacity;
    gemm.capacity = rows.capacity;
    gemm.tiles = rows.tiles;
    gemm.n_tiles = rows.n_tiles;
    gemm.max_tiles = rows.max_tiles;
    gemm.tile_counter = rows.tile_counter;  // zero once the input has been brought
    return gemm;
}

Epilogue first_epilogue(const Mlp& mlp) {
    return mlp.gate ? Epilogue::gated : Epilogue::activation;
}

const PackedMatrix& first_matrix(const Mlp& mlp) {
    return mlp.gate ? *mlp.gate : *mlp.up;
}

void gather(const Launch& launch, const DeviceRows& in, int32_t width, const Rows& rows,
            std::byte* blocks) {
    run_gather(launch.device, {in, width}, rows, blocks, launch.stream);
}

void set_bias(GemmArgs& gemm, const Mlp& mlp) {
    gemm.bias = mlp.gate ? mlp.gate_bias : mlp.up_bias;
    gemm.up_bias = mlp.gate ? mlp.up_bias : nullptr;
    gemm.bias_stride = mlp.features;
    gemm.row_weight = mlp.row_weight;
    gemm.row_slot = mlp.rows.slot;
}

void run_down(const Launch& launch, Family family, const Mlp& mlp) {
    GemmArgs down = make_gemm_args(*mlp.down, Epilogue::linear, mlp.rows);
    down.bias = mlp.down_bias;
    down.bias_stride = mlp.width;
    down.in = dense_rows(mlp.h, operand_type(family), mlp.features);
    down.out = dense_rows(mlp.y, mlp.y_type, mlp.width);
    run_gemm(launch, family, down, *mlp.down_names);
}

void run_split(const Launch& launch, Family family, const Mlp& mlp) {
    run_pre_activation(launch, family, mlp, mlp.pre);
    ActivateRows rows{};
    rows.in = mlp.pre;
    rows.n_features = static_cast<int32_t>(mlp.features);
    rows.in_stride = mlp.gate ? 2 * mlp.features : mlp.features;
    rows.activation = mlp.activation;
    rows.out = dense_rows(mlp.h, operand_type(family), mlp.features);
    rows.round_to = mlp.intermediate_type;
    rows.tiles = mlp.rows.tiles;
    rows.n_tiles = mlp.rows.n_tiles;
    rows.max_tiles = mlp.rows.max_tiles;
    run_activate(launch.device, rows, launch.stream);
}

void run_fused(const Launch& launch, Family family, const Mlp& mlp) {
    GemmArgs first = make_gemm_args(first_matrix(mlp), first_epilogue(mlp), mlp.rows);
    first.activation = mlp.activation;
    set_bias(first, mlp);
    first.in = mlp.in;
    first.out = dense_rows(mlp.h, operand_type(family), mlp.features);
    first.round_to = mlp.intermediate_type;
    run_gemm(launch, family, first, *mlp.first_names);
}

// Input of the first gemm: the tokens, each once, where the rows' indices say whose they are;
// else a copy of every row.
void bring_input(const Launch& launch, const Mlp& mlp, GroupedGemmArgs& first) {
    const int32_t width = first_matrix(mlp).k;
    first.in = mlp.blocks;
    if (!mlp.indexes_rows) return gather(launch, mlp.in, width, mlp.rows, mlp.blocks);
    first.in_capacity = static_cast<int32_t>(padded_rows(mlp.in_tokens.n));
    first.in_index = mlp.in.index;
    first.in_divisor = mlp.in.divisor;
    run_arrange(launch.device, {mlp.in, width}, mlp.in_tokens,
                {mlp.blocks, first.in_capacity, mlp.rows.tile_counter}, launch.stream);
}

void run_grouped_mlp(const Launch& launch, const Mlp& mlp) {
    GroupedGemmArgs first = make_grouped(launch, first_matrix(mlp), first_epilogue(mlp), mlp.rows);
    bring_input(launch, mlp, first);
    first.activation = mlp.activation;
    first.bias = mlp.gate ? mlp.gate_bias : mlp.up_bias;
    first.up_bias = mlp.gate ? mlp.up_bias : nullptr;
    first.bias_stride = mlp.features;
    first.row_weight = mlp.row_weight;
    first.row_slot = mlp.rows.slot;
    first.out = mlp.h;
    run_grouped_gemm(launch.device, first, *mlp.first_names, launch.has_wide_tiles, launch.stream);

    GroupedGemmArgs down = make_grouped(launch, *mlp.down, Epilogue::linear, mlp.rows);
    down.bias = mlp.down_bias;
    down.bias_stride = mlp.width;
    down.tile_counter = mlp.rows.tile_counter + 2;
    down.in = mlp.h;
    down.out = static_cast<std::byte*>(mlp.y);
    down.out_type = mlp.y_type;
    down.out_stride = mlp.width;
    run_grouped_gemm(launch.device, down, *mlp.down_names, launch.has_wide_tiles, launch.stream);
}

}  // namespace

void run_projection(const Launch& launch, Family family, const Projection& p) {
    if (family == Family::grouped) {
        gather(launch, p.in, p.matrix.k, p.rows, p.blocks);
        GroupedGemmArgs gemm = make_grouped(launch, p.matrix, Epilogue::linear, p.rows);
        gemm.bias = p.bias;
        gemm.bias_stride = int64_t{16} * p.matrix.n_tiles;
        gemm.in = p.blocks;
        gemm.out = static_cast<std::byte*>(const_cast<void*>(p.out.data));
        gemm.out_type = p.out.type;
        gemm.out_stride = p.out.stride;
        return run_grouped_gemm(launch.device, gemm, *p.names, launch.has_wide_tiles,
                                launch.stream);
    }
    GemmArgs gemm = make_gemm_args(p.matrix, Epilogue::linear, p.rows);
    gemm.bias = p.bias;
    gemm.bias_stride = int64_t{16} * p.matrix.n_tiles;
    gemm.in = p.in;
    gemm.out = p.out;
    run_gemm(launch, family, gemm, *p.names);
}

void run_mlp(const Launch& launch, Family family, const Mlp& mlp) {
    if (family == Family::grouped) return run_grouped_mlp(launch, mlp);
    if (mlp.pre)
        run_split(launch, family, mlp);
    else
        run_fused(launch, family, mlp);
    run_down(launch, family, mlp);
}

void run_pre_activation(const Launch& launch, Family family, const Mlp& mlp, float* out) {
    const int64_t stride = mlp.gate ? 2 * mlp.features : mlp.features;
    auto run = [&](const PackedMatrix& matrix, Epilogue epilogue, const float* bias,
                   const float* up_bias, float* to) {
        GemmArgs gemm = make_gemm_args(matrix, epilogue, mlp.rows);
        set_bias(gemm, mlp);
        gemm.bias = bias;
        gemm.up_bias = up_bias;
        gemm.in = mlp.in;
        gemm.out = dense_rows(to, MOE_TYPE_F32, stride);
        run_gemm(launch, family, gemm, *mlp.first_names);
    };
    if (!mlp.gate) return run(*mlp.up, Epilogue::linear, mlp.up_bias, nullptr, out);
    if (mlp.is_gate_up_fused)
        return run(*mlp.gate, Epilogue::gate_and_up, mlp.gate_bias, mlp.up_bias, out);
    run(*mlp.gate, Epilogue::linear, mlp.gate_bias, nullptr, out);
    run(*mlp.up, Epilogue::linear, mlp.up_bias, nullptr, out + mlp.features);
}

}  // namespace moe::cuda
