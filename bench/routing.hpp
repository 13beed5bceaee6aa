// Expert ids of a case: k distinct experts per token. The popularity of experts is rank^-a over a
// seeded random order (Gumbel top-k); a = 0 is uniform.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace moe::bench {

class Router {
  public:
    Router(int32_t n_experts, int32_t top_k, double zipf, uint32_t seed);
    // Returns ids [n_tokens, k].
    std::vector<int32_t> ids(int64_t n_tokens);

  private:
    std::vector<double> log_popularity_;
    int32_t top_k_;
    std::mt19937 random_;
};

// Counts the distinct experts in a list of ids.
int32_t count_distinct(const std::vector<int32_t>& ids, int32_t n_experts);

}  // namespace moe::bench
