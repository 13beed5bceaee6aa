// What the CPU needs to know of a plan.
#pragma once

#include <atomic>
#include <cstdint>

#include "libmoe/cpu/gemv/gemv.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe::cpu {

// The arithmetic of dot products: plain loops in float32 or float64, a vectorised one for dense
// weights in float32, or the gemv kernels of an instruction family (gemv/gemv.hpp).
enum class Arithmetic : uint8_t {
    ref_f32,
    ref_f64,
    avx2,
    avx512,
    gemv_avx2,
    gemv_avx512vnni,
    gemv_amx,  // that of gemv_avx512vnni, with gemm kernels of AMX
    gemv_neon,
    gemv_i8mm,
};

// From which on gemm kernels take the rows of a matrix: of those before the activation and of the
// latent, and of down; 0: never.
struct PanelRows {
    int64_t gate_up = 0;
    int64_t down = 0;

    // The smaller one of those that are not 0.
    int64_t least() const { return !gate_up || (down && down < gate_up) ? down : gate_up; }
    void begin_at_one() {
        if (gate_up) gate_up = 1;
        if (down) down = 1;
    }
};

struct Setup {
    const Layer* layer;
    const Slice* slice;
    bool down_bias_in_finish;
    bool partial;
    moe_type x_type;
    moe_type router_input_type;
    moe_type out_type;
    moe_type intermediate_type;
    Arithmetic experts;
    Arithmetic finish;
    // For rows that come in (x, a latent), and for those between the two GEMMs of an expert.
    Quantization x_quantization;
    Quantization h_quantization;
    PanelRows experts_panel_rows;
    PanelRows finish_panel_rows;
    // Do the gemm kernels of experts with as many rows take tiles of them?
    bool x_in_tiles = false;
    bool h_in_tiles = false;
    int32_t n_workers;     // threads that have scratch
    int64_t chunk_tokens;  // tokens that are worked on at a time

    bool is_f64() const { return experts == Arithmetic::ref_f64; }
};

// What a call found wrong while it ran; collected in the workspace.
struct Faults {
    std::atomic<uint32_t> bits{0};
    std::atomic<int64_t> n_skipped{0};

    void add(uint32_t bit, int64_t skipped) {
        bits.fetch_or(bit, std::memory_order_relaxed);
        n_skipped.fetch_add(skipped, std::memory_order_relaxed);
    }
};

// Bytes of scratch for calls of n_tokens tokens; monotone.
uint64_t scratch_bytes(const Setup& setup, int64_t n_tokens);

}  // namespace moe::cpu
