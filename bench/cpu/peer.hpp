// Another program that computes the experts of a layer on the CPU, as the benchmark runs it beside
// libmoe: on the same weights, ids and activations, with threads of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu/weights.hpp"

namespace moe::bench {

// Calls of one number of tokens on one number of threads.
class PeerLayer {
  public:
    virtual ~PeerLayer() = default;

    // Seconds of a call with set `set` of the weights and these ids, every slot weighted by
    // slot_weight. Its threads are awake when the time begins.
    virtual double forward(size_t set, const std::vector<int32_t>& ids) = 0;
    // The output of the last call, [n_tokens, hidden].
    virtual std::vector<float> out() const = 0;
    // Lets its threads sleep until the next call, so that others are measured without them.
    virtual void rest() = 0;
};

class PeerWeights {
  public:
    virtual ~PeerWeights() = default;

    // The form of gate, and of down where it differs: "CPU" as given, "CPU_REPACK", "Q4_K_R4+CPU".
    virtual const std::string& buffer() const = 0;
    // x: [n_tokens, hidden].
    virtual std::unique_ptr<PeerLayer> layer(std::vector<float> x, int64_t n_tokens,
                                             int32_t n_threads) const = 0;
};

class Peer {
  public:
    virtual ~Peer() = default;

    virtual std::string name() const = 0;
    virtual std::string version() const = 0;
    // The kind of processor that it is built for, such as "zen4".
    virtual std::string variant() const = 0;
    // The format in which it has the values of one of libmoe's, empty where it has none.
    virtual std::string format(const std::string& ours) const = 0;
    // The weights must outlive what is made of them, and the peer all of it.
    virtual std::unique_ptr<PeerWeights> weights(const ExpertWeights& weights) const = 0;
};

}  // namespace moe::bench
