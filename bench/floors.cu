// Measures streaming reads of HBM. Every thread keeps several independent 16-byte loads in flight.
// A store that never happens depends on the sum of the loaded values, so the compiler keeps the
// loads. Input: sizes in MB. Output: the best time of each size.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "bench/device.hpp"
#include "bench/floors.hpp"

namespace moe::bench {
namespace {

__device__ uint4 load_stream(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

template <int unroll>
__global__ void read_kernel(const uint4* data, int64_t n, uint32_t* out) {
    uint32_t sum = 0;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i + (unroll - 1) * stride < n; i += unroll * stride) {
        uint4 v[unroll];
#pragma unroll
        for (int u = 0; u < unroll; ++u) v[u] = load_stream(data + i + u * stride);
#pragma unroll
        for (int u = 0; u < unroll; ++u) sum += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
    for (; i < n; i += stride) {
        const uint4 v = load_stream(data + i);
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9E3779B9u) out[0] = sum;
}

struct Shape {
    int blocks_per_sm, threads;
    void (*kernel)(const uint4*, int64_t, uint32_t*);
};

// Launch configurations that fill an SM with loads in flight; any of them may be the fastest.
std::vector<Shape> all_shapes() {
    std::vector<Shape> shapes;
    for (const int threads : {128, 256, 512, 1024})
        for (const int blocks_per_sm : {1, 2, 4, 8})
            for (const auto kernel : {read_kernel<2>, read_kernel<4>, read_kernel<8>})
                if (threads * blocks_per_sm >= 512 && threads * blocks_per_sm <= 2048)
                    shapes.push_back({blocks_per_sm, threads, kernel});
    return shapes;
}

}  // namespace

std::vector<ReadPoint> measure_reads() {
    constexpr int64_t pool_bytes = int64_t{6} << 30;
    constexpr int64_t round_bytes = 256 << 20;  // several times any L2
    DeviceBuffer pool(pool_bytes), out(16);
    fill_random(pool.data(), pool_bytes, 1);
    const int n_sms = multiprocessors();
    std::vector<ReadPoint> points;
    for (const double mb :
         {0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0}) {
        const auto bytes = static_cast<int64_t>(mb * 1e6) / 4096 * 4096;
        // There are enough offsets that no call, nor the replay before, leaves its bytes in L2 for
        // another one.
        const int64_t n_offsets = std::max<int64_t>(24, round_bytes / bytes);
        const int n_calls = static_cast<int>(std::clamp<int64_t>(pool_bytes / bytes, 4, n_offsets));
        double best = 1e30;
        for (const Shape& shape : all_shapes()) {
            auto call = [&](int i, cudaStream_t stream) {
                const int64_t slots = pool_bytes / bytes;
                const auto* data =
                    static_cast<const std::byte*>(pool.data()) + (i * 7 % slots) * bytes;
                shape.kernel<<<shape.blocks_per_sm * n_sms, shape.threads, 0, stream>>>(
                    reinterpret_cast<const uint4*>(data), bytes / 16,
                    static_cast<uint32_t*>(out.data()));
            };
            best = std::min(best, time_calls(call, n_calls, 9).median_us);
        }
        points.push_back({static_cast<double>(bytes), best});
    }
    return points;
}

double read_floor_us(const std::vector<ReadPoint>& points, double bytes) {
    if (bytes <= points.front().bytes) return points.front().us;
    for (size_t i = 1; i < points.size(); ++i) {
        if (bytes > points[i].bytes) continue;
        const double part = (bytes - points[i - 1].bytes) / (points[i].bytes - points[i - 1].bytes);
        return points[i - 1].us + part * (points[i].us - points[i - 1].us);
    }
    return points.back().us * bytes / points.back().bytes;
}

}  // namespace moe::bench
