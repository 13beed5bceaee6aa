// Draws expert ids by Gumbel top-k: it adds Gumbel noise to log probabilities and takes the k
// largest, which draws k experts without replacement.
#include "bench/routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moe::bench {

Router::Router(int32_t n_experts, int32_t top_k, double zipf, uint32_t seed)
    : log_popularity_(n_experts), top_k_(top_k), random_(seed) {
    std::vector<int32_t> rank(n_experts);
    std::iota(rank.begin(), rank.end(), 1);
    std::shuffle(rank.begin(), rank.end(), random_);
    for (int32_t e = 0; e < n_experts; ++e) log_popularity_[e] = -zipf * std::log(rank[e]);
}

std::vector<int32_t> Router::ids(int64_t n_tokens) {
    const auto n_experts = static_cast<int32_t>(log_popularity_.size());
    std::uniform_real_distribution<double> uniform(1e-12, 1.0);
    std::vector<std::pair<double, int32_t>> keys(n_experts);
    std::vector<int32_t> ids;
    ids.reserve(n_tokens * top_k_);
    for (int64_t t = 0; t < n_tokens; ++t) {
        for (int32_t e = 0; e < n_experts; ++e)
            keys[e] = {-log_popularity_[e] + std::log(-std::log(uniform(random_))), e};
        std::partial_sort(keys.begin(), keys.begin() + top_k_, keys.end());
        for (int32_t j = 0; j < top_k_; ++j) ids.push_back(keys[j].second);
    }
    return ids;
}

int32_t count_distinct(const std::vector<int32_t>& ids, int32_t n_experts) {
    std::vector<bool> seen(n_experts);
    for (const int32_t id : ids) seen[id] = true;
    return static_cast<int32_t>(std::count(seen.begin(), seen.end(), true));
}

}  // namespace moe::bench
