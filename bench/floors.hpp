// The physical limits of the device, measured in the same run: the time in which any kernel could
// read a number of bytes, and the rate of a dense matrix product.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::bench {

struct ReadPoint {
    double bytes;
    double us;
};

// Best of several launch shapes of a kernel that only reads, cold, for sizes from 0.25 MB to 1 GB.
std::vector<ReadPoint> measure_reads(bool quick);
// Interpolated between the points; beyond the last by its rate.
double read_floor_us(const std::vector<ReadPoint>& points, double bytes);

// TFLOP/s of cuBLASLt, bfloat16 8192^3 on random data; 0 when the library is not there.
double measure_dense_tflops();

}  // namespace moe::bench
