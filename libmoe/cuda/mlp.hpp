// A matrix, or gate, up and down, applied to rows by one kernel family: the launches of the experts
// stage, of the shared expert and of the latent projections.
#pragma once

#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/gemm_args.hpp"
#include "libmoe/cuda/router/router.hpp"
#include "libmoe/cuda/setup.hpp"

namespace moe::cuda {

// Where the launches go.
struct Launch {
    const DeviceFacts& device;
    cudaStream_t stream;
    bool batch_invariant;  // a row's bits do not depend on how many rows there are
    MlpTiles tiles;        // of the grouped families; of a single matrix those of down
};

// Rows as a grouped family of Hopper reads them, in token blocks of the type of its operands.
// codes: the same rows as E4M3, which are taken as they are where operands are E4M3.
GatherInput block_input(Family family, const DeviceRows& in, const Fp8Rows& codes,
                        int64_t n_columns);

// W v for all rows, plus bias.
struct Projection {
    PackedMatrix matrix;
    const GemmNames* names;
    const float* bias;  // [experts][rows of the matrix] or null
    DeviceRows in;
    int64_t in_columns;
    DeviceRows out;     // by sorted row
    std::byte* blocks;  // the input as token blocks (grouped), or as a table of columns has it
    Rows rows;
};
void run_projection(const Launch& launch, Family family, const Projection& projection);

// down(act(gate v, up v)).
struct Mlp {
    const PackedMatrix* gate;  // fused with up when is_gate_up_fused; null: no gate
    const PackedMatrix* up;    // not fused
    const PackedMatrix* down;
    bool is_gate_up_fused;
    Activation activation;
    const float* gate_bias;
    const float* up_bias;
    const float* down_bias;
    int64_t features;            // of the slice
    int64_t width;               // columns of the input and rows of down
    moe_type intermediate_type;  // act(gate, up) is rounded to it
    const GemmNames* gate_up_names;
    const GemmNames* down_names;
    bool indexes_rows;  // grouped: gate_up reads x by row index, rows are not gathered
    bool is_arranged;   // the sort has made the token blocks of x

    DeviceRows in;
    Fp8Rows codes;            // of in, if its data are not null
    TokenCount in_tokens;     // n > 0: in has a row for each token, and every index is one of them
    const float* row_weight;  // weights on the input: by slot; null: none
    Rows rows;
    std::byte* blocks;  // the same of the input of gate and up; may share memory with y
    std::byte* h;
    float* pre;    // [rows][2 features]; null: gate, up and activation are one kernel. Of
                   // Hopper's grouped GEMM [rows][features], the gate's values
    DeviceRows y;  // [..][width], by sorted row or by an index of it; rows that Hopper's grouped
                   // GEMM stores begin on multiples of 16 bytes
};
void run_mlp(const Launch& launch, Family family, const Mlp& mlp);

// Gate and up with their biases, before the activation: out [rows][2 features], gate first
// ([rows][features] without a gate), by sorted row or by an index of it.
void run_pre_activation(const Launch& launch, Family family, const Mlp& mlp, const DeviceRows& out);

}  // namespace moe::cuda
