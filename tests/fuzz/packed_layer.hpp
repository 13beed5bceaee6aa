// The layer whose packed file is fuzzed: small, with every tensor, in host memory in the place of a
// device's.
#pragma once

#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe_fuzz {

inline moe_layer_desc small_packed_layer() {
    moe_layer_desc desc = moe::test::rich_layer(64, 32);
    desc.shared_intermediate = 32;
    return desc;
}

struct PackedLayer {
    moe::test::LayerTensors layer{small_packed_layer(), {.everywhere = "nvfp4"}};
    moe_test::Plan plan = moe::test::make_plan(layer);
    moe::test::PackedWeights packed{*plan};
};

}  // namespace moe_fuzz
