// How long the experts of a call are expected to take on a GPU, by kernel. A sum of what the call
// reads and multiplies, each at the device's own rate and times a constant of the kernel;
// bench/fit_costs.py fits the constants to measured times. Experts are taken to be equally likely,
// and to have one codebook where their types have codebooks.
#pragma once

#include <optional>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe {

// The rates of a device: reading takes latency_us + bytes / bytes_per_us at best, large GEMMs of
// bfloat16 flops / flops_per_us.
struct DeviceRates {
    double latency_us;
    double bytes_per_us;
    double flops_per_us;

    // What an H200 reaches of what its clocks say, taken for any device.
    explicit DeviceRates(const cuda::NominalRates& nominal);
    DeviceRates(double latency, double bytes, double flops)
        : latency_us(latency), bytes_per_us(bytes), flops_per_us(flops) {}
};

// What a call asks of the experts. Shapes: an expert has matrices of `weights` values together and
// `bytes` bytes, its input and output are `width` wide.
struct ExpertWork {
    int64_t n_tokens;
    int32_t n_slots;  // experts of a token
    int32_t n_experts;
    int32_t n_local;  // of those, here
    int32_t width;
    double weights;
    double bytes;
    int32_t n_shared = 0;  // of n_slots, n_experts and n_local: those that every token takes
};

// Of a plan's routed experts, the shared one among them or not; and of the shared one alone.
// n_tokens is left at 0.
ExpertWork work_of_experts(const moe_plan& plan, const DevicePlacement& placement, bool joined);
ExpertWork work_of_shared(const moe_plan& plan, const DevicePlacement& placement);

// Microseconds: fixed, then times read, again, dequantize, multiply and rows of what ExpertTerms
// says. Of gemv, which reads an expert for every token, again counts and the three behind it do
// not.
struct CostConstants {
    double fixed, read, again, dequantize, multiply, rows;
};

// What the constants multiply.
struct ExpertTerms {
    double read_us;      // of each expert once
    double again_us;     // for the other tokens that meet in it, from the L2
    double dequantized;  // 10^6 weights, where several rows share one: full from 17 rows on
    double gemm_us;
    double row_mb;  // 10^6 bytes of rows of 16-bit values

    ExpertTerms(const ExpertWork& work, const DeviceRates& rates);
};

// Nothing for kernels that were not measured, nor for rates that are not known. type: of gate and
// up, where down has another.
std::optional<double> predicted_us(cuda::Family family, PackedType type, const ExpertWork& work,
                                   const DeviceRates& rates);

// Tokens up to which gemv, `can` at most, is to be taken instead of the grouped GEMM, which reads
// an expert once for all its tokens: by both predictions, with margins for what they do not know.
// At least 1, unless can is 0. Without a prediction: as long as tokens seldom meet in an expert, up
// to 4 where there is but one. n_tokens of the work is not used.
int32_t gemv_tokens_worth(PackedType type, ExpertWork work, const DeviceRates& rates, int32_t can);

// Of the experts of max_tokens tokens, in the plan's chunks, by the kernels that it chose; the
// shared expert with them where it joins them. A CUDA plan's.
std::optional<double> predicted_us(const moe_plan& plan, const DeviceRates& rates);

}  // namespace moe
