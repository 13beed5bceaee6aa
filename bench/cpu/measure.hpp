// Measures a case: calls of libmoe, calls of each peer and streaming reads take turns, each on
// weights that no cache holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu/layer.hpp"
#include "bench/cpu/peer.hpp"

namespace moe::bench {

// Times of one of them, and the bytes of the distinct experts of each call.
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

struct PeerTimes {
    std::string name, format, buffer;
    double error;  // relative L2 of its output to libmoe's, for the same weights and ids
    Samples calls;
};

struct CpuResult {
    CpuCase what;
    std::string kernel;
    size_t n_sets;
    double flops;  // of a call
    Samples calls, reads;
    std::vector<PeerTimes> peers;       // those that have the format and compute this layer
    std::vector<std::string> failures;  // why others were left out

    // Median of the ratios of neighbours, and the ratio of the bests.
    double over_reads() const { return over(reads); }
    double best_over_reads() const { return best_over(reads); }
    double over(const Samples& other) const;
    double best_over(const Samples& other) const;
    double gflops() const { return flops / calls.median_us() / 1e3; }
    double best_gflops() const { return flops / calls.best_us() / 1e3; }
    // Null: the peer lacks the format, failed or was not there.
    const PeerTimes* peer(const std::string& name) const;
};

// The weights of the cases of one model and format, for libmoe and its peers.
class CaseWeights {
  public:
    using Peers = std::vector<std::unique_ptr<Peer>>;
    struct OfPeer {
        std::string name, format;
        std::unique_ptr<PeerWeights> weights;
    };

    // A format that a peer does not have is measured without it. The peers must outlive it.
    CaseWeights(const CpuCase& one, bool has_small_pages, const Peers& peers);
    bool holds(const CpuCase& one) const;

    const ExpertWeights& ours() const { return ours_; }
    const std::vector<OfPeer>& peers() const { return peers_; }

  private:
    const ExpertWeights& in_format(const std::string& format, bool has_small_pages);

    ExpertWeights ours_;
    // In formats of peers that are not ours.
    std::vector<std::unique_ptr<ExpertWeights>> others_;
    std::vector<OfPeer> peers_;
};

// For `seconds` and at least seven rounds, three where a round takes longer than that. A peer that
// fails or computes something else is left out.
CpuResult measure(const CpuCase& one, const CaseWeights& weights, double seconds);

// Bytes per second of reading 1 GB by so many threads, the best of a few.
double read_rate(int32_t n_threads);

}  // namespace moe::bench
