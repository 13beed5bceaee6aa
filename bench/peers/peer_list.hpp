// Times of libmoe and of others for the same layers, and what another program measured of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe::bench {

struct PeerResult {
    std::string peer;
    std::string version;
    std::string model;
    std::string format;
    int64_t n_tokens;
    double us;
    std::string note;     // what of a layer was timed
    double floor_us = 0;  // of this layer, in the run that the results belong to
};

// A list of objects with exactly the fields of PeerResult but floor_us. Throws std::runtime_error
// with a sentence that names the object and the field.
std::vector<PeerResult> parse_peers(const std::string& text);

// Adds `others`, each with the floor of the first result for the same layer. Throws where there is
// none, or where a peer has a layer twice.
void merge_peers(std::vector<PeerResult>& results, const std::vector<PeerResult>& others);

}  // namespace moe::bench
