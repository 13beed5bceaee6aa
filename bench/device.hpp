// Device memory of the benchmark, and the time of calls that are replayed as a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "moe/moe.h"

namespace moe::bench {

inline void check_cuda(cudaError_t error, const char* what) {
    if (error != cudaSuccess)
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

inline void check(moe_status status) {
    if (status != MOE_OK) throw std::runtime_error(moe_last_error());
}

class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(int64_t bytes) {
        check_cuda(cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 16))),
                   "cudaMalloc");
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        return *this;
    }
    ~DeviceBuffer() { cudaFree(data_); }

    void* data() const { return data_; }
    template <class T>
    static DeviceBuffer of(const std::vector<T>& values) {
        DeviceBuffer buffer(static_cast<int64_t>(values.size() * sizeof(T)));
        check_cuda(cudaMemcpy(buffer.data_, values.data(), values.size() * sizeof(T),
                              cudaMemcpyHostToDevice),
                   "cudaMemcpy");
        return buffer;
    }

  private:
    void* data_ = nullptr;
};

inline int multiprocessors() {
    int device = 0, count = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    return count;
}

// Fills with random bytes that depend on the seed alone.
void fill_random(void* data, int64_t bytes, uint32_t seed);

struct Timing {
    double median_us;  // of one call
    double lowest_us;
    double highest_us;
    double n_launches;  // kernels and copies of a call
};

// Warm-up time before the measured replays. An idle GPU is slower for the first milliseconds. Work
// that keeps the tensor cores busy runs at the clock that the power limit allows, and for some 200
// ms the work before decides on that clock.
constexpr double settling_us = 1e5;
constexpr double prompt_settling_us = 1e6;

struct Sampling {
    int n_replays;
    double settle_us;
};

inline Sampling sampling_for(int64_t n_tokens) {
    return n_tokens > 512 ? Sampling{7, prompt_settling_us} : Sampling{15, settling_us};
}

// Captures call(i, stream) for i in [0, n_calls) into one graph and replays it: at least twice and
// at least for settle_us, then n_replays measured times.
template <class Call>
Timing time_calls(Call call, int n_calls, int n_replays, double settle_us = 0) {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end), "cudaEventCreate");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    for (int i = 0; i < n_calls; ++i) call(i, stream);
    check_cuda(cudaStreamEndCapture(stream, &graph), "end capture");
    size_t n_nodes = 0;
    check_cuda(cudaGraphGetNodes(graph, nullptr, &n_nodes), "cudaGraphGetNodes");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    const auto replay = [&] {
        check_cuda(cudaEventRecord(begin, stream), "cudaEventRecord");
        check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        check_cuda(cudaEventRecord(end, stream), "cudaEventRecord");
        check_cuda(cudaStreamSynchronize(stream), "replay");
        float ms = 0;
        check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        return ms * 1000.0;
    };
    double settled = replay() + replay();
    while (settled < settle_us) settled += replay();
    std::vector<double> times;
    for (int i = 0; i < n_replays; ++i) times.push_back(replay() / n_calls);
    std::sort(times.begin(), times.end());
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    return {times[times.size() / 2], times.front(), times.back(),
            static_cast<double>(n_nodes) / n_calls};
}

}  // namespace moe::bench
