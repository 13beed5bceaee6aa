// Random values, and loops over all cores.
#include "numbers.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
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

Floats hard_logits(int64_t n_tokens, int64_t n_experts) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float inf = std::numeric_limits<float>::infinity();
    const float special[] = {nan, inf, -inf, 0.0f, -0.0f, 1.0f, 1e30f, -1e30f, 1e-40f, 88.0f};
    Floats logits = normal(n_tokens * n_experts, 21, 2);
    clients::Random random(8);
    for (int64_t t = 0; t < n_tokens; ++t)
        for (int64_t e = 0; e < n_experts; ++e) {
            float& z = logits[static_cast<size_t>(t * n_experts + e)];
            if (t % 8 == 0) z = 0.5f;
            if (t % 8 == 1) z = std::round(z);
            if (t % 8 == 2 && random.below(3) == 0) z = special[random.below(10)];
            if (t % 8 == 3) z = nan;
            if (t % 8 == 4) z *= 100;
            if (t % 8 == 5) z *= 1e-4f;
            if (t % 8 == 6) z = std::nextafter(1.0f, random.below(2) ? 2.0f : 0.0f);
        }
    return logits;
}

Floats near_ties(int64_t n_tokens, int64_t n_experts) {
    Floats logits = normal(n_tokens * n_experts, 22, 1);
    clients::Random random(9);
    for (int64_t t = 0; t < n_tokens; ++t) {
        float* z = logits.data() + t * n_experts;
        const bool far = t % 2 == 1;
        const float step = far ? 5e-3f : 1e-9f;
        for (int64_t e = 0; e < n_experts; ++e)
            z[e] = random.below(static_cast<int32_t>(n_experts)) < 20
                       ? 0.01f + step * random.below(20)
                       : z[e] - 9.0f;
        if (far) z[t % n_experts] = 100;
    }
    return logits;
}

}  // namespace moe_gpu
