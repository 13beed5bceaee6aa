// The layers whose packed files are fuzzed: small, in host memory in the place of a device's. One
// has every tensor but a hash table, the other routes by one.
#pragma once

#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe_fuzz {

inline moe_layer_desc small_packed_layer() {
    moe_layer_desc desc = moe::test::rich_layer(64, 32);
    desc.shared_intermediate = 32;
    return desc;
}

inline moe_layer_desc hash_packed_layer() {
    moe_layer_desc desc = moe::test::plain_layer(32, 32, 2, 1);
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 6;
    return desc;
}

struct PackedLayer {
    PackedLayer(const moe_layer_desc& desc, const char* format)
        : layer(desc, {.everywhere = format}), plan(moe::test::make_plan(layer)), packed(*plan) {}

    moe::test::LayerTensors layer;
    moe_test::Plan plan;
    moe::test::PackedWeights packed;
};

// Packed weights of the CPU: rows that are interleaved, and others with scales of several rows.
struct HostLayer {
    HostLayer()
        : layer(small_packed_layer(), {.everywhere = "q8_0",
                                       .formats = {{MOE_ROLE_UP, "nvfp4"},
                                                   {MOE_ROLE_DOWN, "fp8_128x128"},
                                                   {MOE_ROLE_SHARED_DOWN, "kbit4"}}}),
          plan(moe::test::make_plan(layer, {.residency = MOE_RESIDENCY_PACKED})) {}

    moe::test::LayerTensors layer;
    moe_test::Plan plan;
};

struct PackedLayers {
    PackedLayer small{small_packed_layer(), "nvfp4"}, hash{hash_packed_layer(), "mxfp4"};
    HostLayer host;
};

}  // namespace moe_fuzz
