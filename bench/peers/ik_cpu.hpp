// ik_llama.cpp as a peer on the CPU: the experts of one layer in the graph that its own programs
// build for them by default, on the same weights as libmoe, with its own threads.
#pragma once

#include "bench/cpu/peer.hpp"
#include "bench/peers/ik_api.hpp"

namespace moe::bench {

class IkPeer : public Peer {
  public:
    // version: the library has none to ask for. repacks: rows of the weights are interleaved, as by
    // the option -rtr of its programs. The library is shared by peers that repack and do not.
    IkPeer(std::shared_ptr<ik::Library> library, const std::string& version, bool repacks)
        : library_(std::move(library)), version_(version), repacks_(repacks) {}

    std::string name() const override { return repacks_ ? "ik-rtr" : "ik"; }
    std::string version() const override { return version_; }
    std::string variant() const override { return library_->variant(); }
    std::string format(const std::string& ours) const override;
    std::unique_ptr<PeerWeights> weights(const ExpertWeights& weights) const override;

  private:
    std::shared_ptr<ik::Library> library_;
    std::string version_;
    bool repacks_;
};

}  // namespace moe::bench
