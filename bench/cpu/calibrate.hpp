// The rates of this machine that the plan's cost model stands on (libmoe/plan/cpu_cost.hpp): of
// memory by threads, and of the gemv and gemm kernels of each format.
//
// Kernels are measured through moe.h. Every thread has a layer of its own, of one expert that lies
// in its caches, and all of them run at once, so that the processor has the clock that it has at
// work. The difference between two sizes of the expert is free of what a call costs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moe::bench {

struct KernelRate {
    std::string kernel;  // <arch>_<weight>_<activation>_<family>
    double gb_per_s;     // of weight bytes that a thread dequantizes
    double gflop_per_s;  // of products of dequantized weights
};

struct Calibration {
    std::vector<std::pair<int32_t, double>> read_gb_per_s;  // by threads
    double call_us;  // of a call, beside its rows and weights
    double row_ns;   // of a value of a row of x or of the output
    std::vector<KernelRate> kernels;
};

// On n_threads threads; a measurement takes `seconds`. Each kernel once, with x in bfloat16, by the
// policies NONE and INT8, and of packed weights.
std::vector<KernelRate> kernel_rates(const std::vector<std::string>& formats, int32_t n_threads,
                                     double seconds);
// The same, with the rates of memory and what a call and its rows cost.
Calibration calibrate(const std::vector<std::string>& formats, int32_t n_threads, double seconds);
// Prints rows of libmoe/plan/cpu_cost_constants.hpp.
void print_calibration(const Calibration& calibration);

}  // namespace moe::bench
