// Parameters of the gemv kernels (gemv_gate_up.cuh, gemv_down.cuh) and the tables of their
// instances.
#pragma once

#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/gemv/gemv.hpp"

namespace moe::cuda {

// Registers of a thread. Each quarter of an SM has 16,384: two warps of gate_up and three of down
// fit there together. The split-k kernels have an SM for themselves, with at most 16 warps.
constexpr int32_t gate_up_registers = 72;
constexpr int32_t down_registers = 120;
constexpr int32_t split_k_registers = 128;

struct GemvSlots {
    const int32_t* ids;
    const int32_t* local_of;  // null: ids are local
    const float* weights;
    int64_t ids_stride;  // from token to token
    int64_t weights_stride;
    int32_t n_slots;
    int32_t top_k;
    int32_t n_ids;
    int32_t n_ids_all;
    int32_t n_local;
    int32_t n_direct;  // ids below are local experts as they are; 0 with a map
    FaultWords* faults;
};

// Weights that are known before ids are, prefetched into the L2 while the router runs.
struct L2Prefetch {
    const std::byte* from;
    int32_t bytes_of_block;
};

// The part of gate and up that a launch computes.
enum class GateUpRole : int32_t {
    whole,          // gate and up fused, or up of a layer without a gate
    gate,           // the gate alone; stores gate_values
    up_after_gate,  // up alone; reads gate_values, activates and stores h
};

constexpr int32_t n_gemv_prefetches = 3;

struct GemvGateUpParams {
    PackedMatrix matrix;
    GemvSlots slots;
    GemvTiling tiling;
    Activation activation;
    const float* gate_bias;
    const float* up_bias;
    const void* x;
    void* h;
    moe_type h_type;     // BF16 or F16
    float* gate_values;  // [tokens][n_slots][features], between the launches of gate and up
    GateUpRole role;
    moe_type x_type;
    int64_t x_stride;
    int32_t x_columns;  // of x; those of the matrix behind them are padding
    int32_t features;   // of h
    int32_t h_columns;  // of a row of h: features, and zeros up to the k of down
    bool weight_on_input;
    bool has_row_terms;  // biases, or a weight on the input
    float h_factor;      // 2^h_exponent of down's kernels, with which bfloat16 h is stored
    L2Prefetch ahead[n_gemv_prefetches];  // of the shared expert: gate and up, down
    GridRecords records;                  // of a grid
};

struct GemvDownParams {
    PackedMatrix matrix;
    GemvSlots slots;
    GemvTiling tiling;
    const float* bias;
    const void* h;
    moe_type h_type;
    void* out;
    moe_type out_type;
    int64_t out_stride;
    const void* x;  // of the shared expert's gate
    moe_type x_type;
    int64_t x_stride;
    int32_t hidden;
    SharedSlot shared;
    float scale;
    int32_t width;
    bool weight_on_input;
    bool accumulate;
    bool keeps_absent;
    GridRecords records;  // of a grid
};

// The kernels, by packed type and codebook_mode; null where there is none.
struct GemvKernels {
    const void* gate_up = nullptr;
    const void* gate_up_split_k = nullptr;
    const void* down = nullptr;
    int32_t h_exponent = 0;  // down takes h times this power of two
};

// A slice of translation for each group of types. Those of sm_90, then those of every architecture.
GemvKernels sm90_gemv_dense(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_fp4(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_kbit(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_gguf(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_gguf_k(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_iq(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_grid(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_grid_form(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_dense(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_fp4(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_kbit(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_gguf(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_gguf_k(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_iq(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_grid(PackedType type, CodebookMode codebook_mode);

}  // namespace moe::cuda
