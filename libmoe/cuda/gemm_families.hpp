// The kernel families of the experts stage; which packed types grouped and one_token read says
// backend.hpp. Launches are one kernel on `stream`, of the grouped family up to two; the grid
// depends on the host's numbers alone. Nothing here allocates or synchronises.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/gemm_args.hpp"

namespace moe::cuda {

// generic.cu: any packed type but f32, any shape, any architecture, on mma.sync.m16n8k16 with
// 16-bit operands and float32 sums. Operand type: BF16, or F16 (weights and inputs must fit).
constexpr TileRule generic_tiles{64, 8, INT32_MAX};
void run_generic(const DeviceFacts& device, const GemmArgs& product, moe_type operand,
                 cudaStream_t stream);

// exact.cu: any packed type and shape in float32 on the ordinary cores: products and sums of
// float32 x and decoded weights, nothing rounded before the output. Slow.
constexpr TileRule exact_tiles{16, 1, INT32_MAX};
void run_exact(const DeviceFacts& device, const GemmArgs& product, cudaStream_t stream);

// activate.cu: out[r] = act(gate row, up row) for rows [n_rows][2 n] of float32 that an epilogue
// gate_and_up (or two linear ones) wrote; ungated: rows [n]. Rows are those of the tiles.
struct ActivateRows {
    const float* in;
    int64_t in_stride;
    int32_t n_features;
    Activation activation;
    DeviceRows out;
    moe_type round_to;
    const Tile* tiles;
    const TileCount* n_tiles;
    int32_t max_tiles;
};
void run_activate(const DeviceFacts& device, const ActivateRows& rows, cudaStream_t stream);

// grouped.cu (sm_90): gate+up or down for more than one token. A kernel for the tiles of large
// experts and, at the same time, one for the others, which alone has everything where n_tokens is
// small. Weights come from registers in packed order, tokens from shared memory. Input and, of
// gate+up, output are token blocks: block b of 64 columns is [capacity][64] 16-bit values, 128
// bytes a row; inside a row, k = 16 t + 4 j + 2 h + e lies at 16 j + 8 h + 2 t + e, and the 16-byte
// chunk c of row r is stored at chunk c ^ (r & 7).
constexpr TileRule grouped_tiles{256, 8, 48};
struct GroupedGemmArgs {
    PackedMatrix weights;
    Epilogue epilogue;  // linear, activation, gated
    Activation activation;
    const float* bias;  // as in GemmArgs
    const float* up_bias;
    int64_t bias_stride;
    const float* row_weight;
    const int32_t* row_slot;
    const std::byte* in;      // token blocks of bfloat16
    int32_t in_capacity;      // rows of them, a multiple of row_alignment
    const int32_t* in_index;  // of a product with an activation: row r is that of the input whose
    int32_t in_divisor;       // number is in_index[r] / in_divisor; null: row r itself
    std::byte* out;           // linear: rows [capacity][out_stride]; else token blocks of bfloat16
    moe_type out_type;        // linear: BF16 or F32
    int64_t out_stride;
    int32_t capacity;  // rows, a multiple of row_alignment
    const Tile* tiles;
    const TileCount* n_tiles;
    int32_t max_tiles;
    int32_t n_tokens;       // as in Rows; it only chooses kernels
    int32_t* tile_counter;  // [2], zero: pairs taken from a counter, of large tiles and of others
    bool batch_invariant;   // only kernels whose sums have the same bits
};
void run_grouped(const DeviceFacts& device, const GroupedGemmArgs& product, cudaStream_t stream);

// The shared expert as one more slot of every token: local expert n_local, whose weight is
// scale sigmoid(x . gate); gate null: scale.
struct SharedSlot {
    const float* gate;  // [hidden]
    float scale;
};

// gemv.cu: the experts of a token and their weighted sum, at the speed of memory: two
// kernels, from sm_90 on launched dependently. Each of a few tokens has multiprocessors of its own.
// Shapes: k of both matrices a multiple of 64.
struct GemvArgs {
    bool portable;         // the kernels of every architecture, not those of sm_90
    PackedMatrix gate_up;  // fused (gated) or of up alone
    PackedMatrix down;
    Activation activation;
    const float* gate_bias;  // [n_local][intermediate], null: none; of a layer without gate unused
    const float* up_bias;
    const float* down_bias;  // [n_local][width]
    bool weight_on_input;    // weights multiply the products of gate and up instead of the sum
    int32_t n_slots;         // k, and one for the shared expert
    int32_t top_k;
    SharedSlot shared;        // of the last slot, where n_slots is k + 1
    float scale;              // of the whole sum
    const int32_t* ids;       // [T][k] global ids; out of range or absent: no part
    const int32_t* local_of;  // [n_ids] local expert or -1; null: ids are local
    int32_t n_ids;
    int32_t n_ids_all;     // ids from n_ids on up to here are identity experts: no part, no fault
    int32_t n_local;       // experts that the weights hold
    FaultWords* faults;    // ids outside [-1, n_ids_all) are reported
    const float* weights;  // [T][k]
    const void* x;         // [T][k of gate_up], every row aligned to 16 bytes
    moe_type x_type;
    void* h;    // scratch, [T][n_slots][intermediate] bfloat16: times a power of two
                // (gemv_gate_up.cuh)
    void* out;  // [T][width]
    moe_type out_type;
    bool accumulate;
    int32_t n_tokens;  // T
    int64_t ids_stride;
    int64_t weights_stride;
    int64_t x_stride;
    int64_t out_stride;
};
void run_gemv(const DeviceFacts& device, const GemvArgs& call, cudaStream_t stream);

// Sets attributes of every kernel of the family and loads it, so that a first launch may be
// captured.
void prepare_generic();
void prepare_exact();
void prepare_activate();
void prepare_grouped();
void prepare_gemv(const DeviceFacts& device, bool portable);

}  // namespace moe::cuda
