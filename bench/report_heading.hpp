// The heading of every results file: date, commit, device and the floors of the run.
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>

#include "bench/layer_run.hpp"

namespace moe::bench {

inline nlohmann::ordered_json device_json() {
    int device = 0, driver = 0, runtime = 0, clock = 0;
    cudaDeviceProp properties{};
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device);
    return {{"name", properties.name},
            {"multiprocessors", properties.multiProcessorCount},
            {"l2_bytes", properties.l2CacheSize},
            {"memory_bytes", properties.totalGlobalMem},
            {"clock_khz_max", clock},
            {"driver_cuda", driver},
            {"runtime_cuda", runtime}};
}

inline nlohmann::ordered_json heading_json(const char* schema, const std::string& commit,
                                           const Limits& limits) {
    auto reads = nlohmann::ordered_json::array();
    for (const ReadPoint& point : limits.reads)
        reads.push_back({{"bytes", point.bytes}, {"us", point.us}});
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return {{"schema", schema},
            {"commit", commit},
            {"date", date},
            {"version", moe_version_string()},
            {"device", device_json()},
            {"read_floor", reads},
            {"dense_tflops", limits.dense_tflops}};
}

}  // namespace moe::bench
