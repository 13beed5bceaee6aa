// Programs compute the same graphs again and again, token by token. What was found in one is kept,
// and taken when every tensor of it is as it was.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "chain.hpp"
#include "experts.hpp"
#include "interface.hpp"

namespace moe::ggml {

// A graph that was seen: its steps, and what Experts keeps for each of its chains.
struct KnownGraph {
    explicit KnownGraph(Steps found) : steps(std::move(found)), chains(steps.n_chains()) {}

    Steps steps;
    std::vector<Prepared> chains;
};

class KnownGraphs {
  public:
    // Valid until the next call.
    KnownGraph& get(const std::vector<Tensor*>& nodes,
                    const std::function<bool(const Chain&)>& can_run);

  private:
    // All of a tensor but its name.
    struct Seen {
        const Tensor* tensor;
        unsigned char bytes[offsetof(Tensor, name)];
    };
    struct Entry {
        std::vector<Tensor*> nodes;
        std::vector<Seen> tensors;  // nodes and what they read
        std::unique_ptr<KnownGraph> graph;
    };

    static bool is_as_it_was(const Entry& entry, const std::vector<Tensor*>& nodes);
    static std::vector<Seen> look_at(const std::vector<Tensor*>& nodes);

    std::unordered_map<const Tensor*, Entry> by_first_node_;
};

}  // namespace moe::ggml
