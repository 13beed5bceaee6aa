// Physical limits of the device, measured in the same run: the minimum time to read a number of
// bytes from HBM, and the rate of a dense GEMM.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::bench {

struct ReadPoint {
    double bytes;
    double us;
};

// Measures the best of several launch configurations of a kernel that only reads, with a cold L2,
// for sizes from 0.25 MB to 1 GB.
std::vector<ReadPoint> measure_reads();
// Interpolates between the points; past the last one its rate applies.
double read_floor_us(const std::vector<ReadPoint>& points, double bytes);

// TFLOP/s of cuBLASLt, bfloat16 8192^3 on random data; 0 when the library is not there.
double measure_dense_tflops();

}  // namespace moe::bench
