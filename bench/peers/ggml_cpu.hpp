// ggml's CPU backend as a peer: the experts of one layer in the graph that llama.cpp builds for
// them, on the same weights as libmoe, with ggml's own threads.
#pragma once

#include "bench/cpu/peer.hpp"
#include "bench/peers/ggml_api.hpp"

namespace moe::bench {

// A weight lies in ggml's buffer types as llama.cpp chooses: in the first extra type, such as
// CPU_REPACK, that runs MUL_MAT_ID on it; else ggml reads the blocks where they are.
class GgmlPeer : public Peer {
  public:
    // The folder of ggml's libraries; throws as ggml::Library does.
    explicit GgmlPeer(const std::string& folder) : library_(folder) {}

    std::string name() const override { return "ggml"; }
    std::string version() const override { return library_.version(); }
    std::string variant() const override { return library_.variant(); }
    std::string format(const std::string& ours) const override;
    std::unique_ptr<PeerWeights> weights(const ExpertWeights& weights) const override;

  private:
    ggml::Library library_;
};

}  // namespace moe::bench
