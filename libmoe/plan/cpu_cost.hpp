// How long the experts of a call are expected to take on a CPU: what it reads, dequantizes and
// multiplies, each at a measured rate. Experts are taken to be equally likely. No decision is made
// by it: which kernels take how many rows was measured by format.
//
// Each thread dequantizes and multiplies one matrix of an expert after the other, and the next
// bytes arrive meanwhile, as far as prefetching goes: reading and computing together take the
// fourth root of the sum of their fourth powers, which is the longer of two unequal ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "libmoe/cpu/features.hpp"

struct moe_plan;

namespace moe {

// A kernel by <arch>_<weight>_<activation>_<family>, of one thread while all others work.
struct CpuKernelRate {
    std::string_view kernel;
    double gb_per_s;     // of weight bytes that it dequantizes
    double gflop_per_s;  // of products of dequantized weights
};

struct CpuReadRate {
    int32_t n_threads;
    double gb_per_s;  // of memory
};

// Rates that `moe-bench-cpu --calibrate` found on one machine with the kernels of an instruction
// family.
struct CpuRates {
    std::string_view machine;
    bool cpu::InstructionSets::*instructions;  // whose rates are taken for any processor with them
    double call_us;                            // of a call, beside its rows and weights
    double row_ns;                             // of a value of a row of x or of the output
    std::span<const CpuReadRate> reads;        // by ascending threads
    std::span<const CpuKernelRate> kernels;
};

struct CpuPrediction {
    int64_t n_tokens;
    double us;
    double reading_us, dequantizing_us, multiplying_us;  // each alone

    const char* bound() const;  // what takes longest: reading, dequantizing or multiplying
};

// Those of the best instruction set that a CPU plan may use, or null.
const CpuRates* cpu_rates(const moe_plan& plan);
// For n_tokens tokens, in the plan's chunks. Nothing for a kernel that was not measured, nor for
// more threads than the machine of the rates had.
std::optional<CpuPrediction> predict(const moe_plan& plan, const CpuRates& rates, int64_t n_tokens);
// The same by the rates that the library has, and for one token and max_tokens: what explain says.
std::vector<CpuPrediction> cpu_predictions(const moe_plan& plan);

}  // namespace moe
