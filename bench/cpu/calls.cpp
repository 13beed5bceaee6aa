#include "bench/cpu/calls.hpp"

#include <algorithm>
#include <numeric>

namespace moe::bench {

Calls::Calls(const ExpertWeights& weights, int64_t n_tokens)
    : weights_(weights),
      n_tokens_(n_tokens),
      router_(weights.model().n_experts, weights.model().top_k, 0.0, 11),
      order_(static_cast<size_t>(weights.model().n_experts)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(5));
}

Call Calls::next() {
    if (n_tokens_ > 1) return {n_calls_++ % weights_.n_sets(), router_.ids(n_tokens_)};
    const auto k = static_cast<size_t>(weights_.model().top_k);
    const size_t per_set = order_.size() / k;
    Call call{n_calls_ / per_set % weights_.n_sets(), {}};
    ++n_calls_;
    for (size_t i = 0; i < k; ++i) call.ids.push_back(order_[n_walked_++ % order_.size()]);
    return call;
}

std::vector<ByteRange> ranges_of(const ExpertWeights& weights, const Call& call) {
    std::vector<int32_t> experts = call.ids;
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    std::vector<ByteRange> ranges;
    for (const int32_t expert : experts) weights.add_ranges(call.set, expert, ranges);
    return ranges;
}

double size_of(const std::vector<ByteRange>& ranges) {
    double bytes = 0;
    for (const ByteRange& range : ranges) bytes += static_cast<double>(range.size);
    return bytes;
}

}  // namespace moe::bench
