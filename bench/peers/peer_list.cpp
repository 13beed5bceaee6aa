// What others measured comes from a file: names of peers are data, and every field is checked.
#include "bench/peers/peer_list.hpp"

#include <tuple>

#include "bench/json_fields.hpp"

namespace moe::bench {
namespace {

PeerResult peer_of(const Fields& fields) {
    fields.allow({"peer", "version", "model", "format", "n_tokens", "us", "note"});
    PeerResult one{};
    one.peer = fields.line("peer");
    one.version = fields.line("version");
    one.model = fields.word("model", ".-");
    one.format = fields.word("format", "_");
    one.n_tokens = fields.integer("n_tokens", 1, 1 << 20);
    one.us = fields.positive("us");
    one.note = fields.line("note");
    return one;
}

std::string name_of(const PeerResult& one) {
    return one.peer + ", " + one.model + "/" + one.format + "/T" + std::to_string(one.n_tokens);
}

auto layer_key(const PeerResult& one) {
    return std::tie(one.model, one.format, one.n_tokens);
}

}  // namespace

std::vector<PeerResult> parse_peers(const std::string& text) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_array()) throw std::runtime_error("the list of peers is no JSON list");
    std::vector<PeerResult> results;
    for (const Json& one : json)
        results.push_back(peer_of({one, "result " + std::to_string(results.size() + 1)}));
    return results;
}

void merge_peers(std::vector<PeerResult>& results, const std::vector<PeerResult>& others) {
    for (PeerResult one : others) {
        const PeerResult* like = nullptr;
        for (const PeerResult& other : results) {
            if (layer_key(other) != layer_key(one)) continue;
            if (other.peer == one.peer) throw std::runtime_error(name_of(one) + ": is there twice");
            if (!like) like = &other;
        }
        if (!like)
            throw std::runtime_error(name_of(one) + ": the floor of this layer is not known");
        one.floor_us = like->floor_us;
        results.push_back(std::move(one));
    }
}

}  // namespace moe::bench
