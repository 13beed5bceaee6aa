// Random values, and loops over all cores.
#include "numbers.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "support/layer_weights.hpp"

namespace moe_gpu {

namespace {

// Normal values of a seed: calls for fewer of them get a prefix.
class Sequence {
  public:
    explicit Sequence(uint64_t seed) : random_(seed) {}

    Floats first(int64_t n, float spread) {
        const std::lock_guard lock(mutex_);
        while (std::ssize(values_) < n) {
            const float u = 0.5f + 0.5f * random_.value(), angle = 3.14159265f * random_.value();
            const float radius = std::sqrt(-2.0f * std::log(std::max(1.0f - u, 1e-7f)));
            values_.push_back(radius * std::cos(angle));
            values_.push_back(radius * std::sin(angle));
        }
        Floats result(values_.begin(), values_.begin() + n);
        for (float& value : result) value *= spread;
        return result;
    }

  private:
    std::mutex mutex_;
    clients::Random random_;
    Floats values_;
};

}  // namespace

// Cases share most of their seeds, and values took half of the time of those that the CPU computes.
Floats normal(int64_t n, uint64_t seed, float spread) {
    constexpr int64_t most_kept = 1 << 26;  // values of all sequences, in calls for up to a million
    static std::mutex mutex;
    struct Kept {
        explicit Kept(uint64_t seed) : sequence(seed) {}
        Sequence sequence;
        int64_t length = 0;
    };
    static std::map<uint64_t, Kept> sequences;
    static int64_t n_kept = 0;
    if (n > 1 << 20) return Sequence(seed).first(n, spread);
    Sequence* sequence = nullptr;
    {
        const std::lock_guard lock(mutex);
        Kept& kept = sequences.try_emplace(seed, seed).first->second;
        const int64_t length = std::max(n, kept.length);
        if (n_kept + length - kept.length <= most_kept) {
            n_kept += length - kept.length;
            kept.length = length;
            sequence = &kept.sequence;
        }
    }
    return sequence ? sequence->first(n, spread) : Sequence(seed).first(n, spread);
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
