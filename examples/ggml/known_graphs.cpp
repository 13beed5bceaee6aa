#include "known_graphs.hpp"

#include <cstring>
#include <unordered_set>

namespace moe::ggml {
namespace {

// Parts of graphs: more than the layers of a model, for a few shapes of its batches.
constexpr size_t most_graphs = 2048;

}  // namespace

std::vector<KnownGraphs::Seen> KnownGraphs::look_at(const std::vector<Tensor*>& nodes) {
    std::vector<Seen> seen;
    std::unordered_set<const Tensor*> known;
    const auto look = [&](const Tensor* tensor) {
        if (!tensor || !known.insert(tensor).second) return;
        Seen& one = seen.emplace_back();
        one.tensor = tensor;
        std::memcpy(one.bytes, tensor, sizeof one.bytes);
    };
    for (const Tensor* node : nodes) look(node);
    for (const Tensor* node : nodes)
        for (const Tensor* source : node->src) look(source);
    return seen;
}

// Nodes come first among the tensors, and are compared first: what they read is where it was, then.
bool KnownGraphs::is_as_it_was(const Entry& entry, const std::vector<Tensor*>& nodes) {
    if (entry.nodes != nodes) return false;
    for (const Seen& seen : entry.tensors)
        if (std::memcmp(seen.bytes, seen.tensor, sizeof seen.bytes) != 0) return false;
    return true;
}

KnownGraph& KnownGraphs::get(const std::vector<Tensor*>& nodes,
                             const std::function<bool(const Chain&)>& can_run) {
    const Tensor* first = nodes.empty() ? nullptr : nodes.front();
    const auto found = by_first_node_.find(first);
    if (found != by_first_node_.end() && is_as_it_was(found->second, nodes))
        return *found->second.graph;
    if (by_first_node_.size() >= most_graphs) by_first_node_.clear();
    Entry& entry = by_first_node_[first];
    entry.nodes = nodes;
    entry.tensors = look_at(nodes);
    entry.graph = std::make_unique<KnownGraph>(Steps(nodes, can_run));
    return *entry.graph;
}

}  // namespace moe::ggml
