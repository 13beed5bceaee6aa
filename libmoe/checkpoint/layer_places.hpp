// Which decoder layers have routed experts, found in the tensor names alone: what the configuration
// says of it is known to be wrong at times.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/checkpoint/tensor_index.hpp"

namespace moe {

struct LayerPlace {
    int32_t number = 0;
    std::string_view prefix;  // of the names of the block: "model.layers.3.mlp.", "blk.3."
};

// What decides where a layer's names begin, and its number.
struct LayerNames {
    bool is_gguf = false;
    bool of_whole_layers = false;  // a family whose names begin there, whatever its block is
    int32_t n_layers = 0;          // decoder layers, as the configuration says; 0: it does not
};

// Ascending. Layers that predict further tokens and have numbers of their own ("mtp.layers.0.")
// come after the decoder layers: the first has the number of decoder layers. Two blocks of experts
// in one layer are MOE_ERROR_UNSUPPORTED.
std::pmr::vector<LayerPlace> find_layers(std::pmr::memory_resource& memory,
                                         const TensorIndex& index, std::span<const File> files,
                                         const LayerNames& names);
// For an index in which there are none: the first name that looks like one of experts, and which
// are known.
std::string why_no_layers(const TensorIndex& index, bool is_gguf);

}  // namespace moe
