// The experts of call after call.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/cpu/weights.hpp"
#include "bench/routing.hpp"

namespace moe::bench {

struct Call {
    size_t set;                // of weights
    std::vector<int32_t> ids;  // [n_tokens, top_k]
};

// One token walks through all experts of all sets before one comes back. More tokens draw evenly,
// from one set after the other.
class Calls {
  public:
    Calls(const ExpertWeights& weights, int64_t n_tokens);
    Call next();

  private:
    const ExpertWeights& weights_;
    int64_t n_tokens_;
    Router router_;
    size_t n_calls_ = 0, n_walked_ = 0;
    std::vector<int32_t> order_;
};

// The bytes of the experts of a call, each once.
std::vector<ByteRange> ranges_of(const ExpertWeights& weights, const Call& call);
double size_of(const std::vector<ByteRange>& ranges);

}  // namespace moe::bench
