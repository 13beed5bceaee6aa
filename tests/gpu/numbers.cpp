// Random values, and loops over all cores.
#include "numbers.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "support/layer_weights.hpp"

namespace moe_gpu {

Floats normal(int64_t n, uint64_t seed, float spread) {
    clients::Random random(seed);
    Floats values(static_cast<size_t>(n + (n & 1)));
    for (size_t i = 0; i < values.size(); i += 2) {
        const float u = 0.5f + 0.5f * random.value(), angle = 3.14159265f * random.value();
        const float radius = spread * std::sqrt(-2.0f * std::log(std::max(1.0f - u, 1e-7f)));
        values[i] = radius * std::cos(angle);
        values[i + 1] = radius * std::sin(angle);
    }
    values.resize(static_cast<size_t>(n));
    return values;
}

void in_parallel(int64_t n, const std::function<void(int64_t)>& task) {
    const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    std::atomic<int64_t> next{0};
    const auto work = [&] {
        for (int64_t i; (i = next++) < n;) task(i);
    };
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < std::min(cores, n); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
}

}  // namespace moe_gpu
