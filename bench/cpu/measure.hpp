// Measures a case: calls of libmoe, calls of the peer and streaming reads take turns, each on
// weights that no cache holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu/layer.hpp"
#include "bench/peers/ggml_cpu.hpp"

namespace moe::bench {

// Times of one of the three, and the bytes of the distinct experts of each call.
struct Samples {
    std::vector<double> seconds, bytes;

    void add(double one_seconds, double one_bytes);
    double median_us() const;
    double best_us() const;
    // Bytes per second.
    std::vector<double> rates() const;
    double median_rate() const;
    double best_rate() const;
};

struct CpuResult {
    CpuCase what;
    std::string kernel;
    size_t n_sets;
    double flops;  // of a call
    Samples calls, reads, peer;
    bool has_peer = false;
    std::string peer_format, peer_buffer;
    double peer_error = 0;  // relative L2 of its output to libmoe's, for the same weights and ids

    // Median of the ratios of neighbours, and the ratio of the bests.
    double over_reads() const;
    double best_over_reads() const;
    double over_peer() const;
    double best_over_peer() const;
    double gflops() const { return flops / calls.median_us() / 1e3; }
    double best_gflops() const { return flops / calls.best_us() / 1e3; }
};

// The weights of the cases of one model and format, for both.
class CaseWeights {
  public:
    // library: null without a peer. A format that ggml does not have is measured without it.
    CaseWeights(const CpuCase& one, bool has_small_pages, const ggml::Library* library);
    bool holds(const CpuCase& one) const;

    const ExpertWeights& ours() const { return ours_; }
    const GgmlWeights* peers() const { return peers_.get(); }
    const std::string& peer_format() const { return peer_format_; }

  private:
    ExpertWeights ours_;
    std::string peer_format_;
    std::unique_ptr<ExpertWeights> other_;  // in ggml's format, where that is not ours
    std::unique_ptr<GgmlWeights> peers_;
};

// For `seconds` and at least seven rounds, three where a round takes longer than that. Throws where
// the peer computes something else.
CpuResult measure(const CpuCase& one, const CaseWeights& weights, const ggml::Library* library,
                  double seconds);

// Bytes per second of reading 1 GB by so many threads, the best of a few.
double read_rate(int32_t n_threads);

}  // namespace moe::bench
