// What the tests of families beside those of models.hpp share.
#pragma once

#include "tests/checkpoint/models.hpp"

namespace moe::test {

inline const std::string layer0 = "model.layers.0.";

inline Model model_of(const std::string& type, const std::string& more) {
    Model model;
    model.config = config_of(type, more);
    return model;
}

inline const std::string routed = R"("moe_intermediate_size":32,"n_routed_experts":4)";
inline const std::string local = R"("intermediate_size":32,"num_local_experts":4)";

// Opens the model and returns layer 0's description, which must be one that a plan takes.
inline moe_layer_desc desc_of(const Model& model, size_t n_tensors) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    EXPECT_EQ(checkpoint->n_layers(), 1);
    EXPECT_EQ(checkpoint->tensors(0).size(), n_tensors);
    const moe_layer_desc desc = checkpoint->layer_desc(0);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    EXPECT_EQ(desc.hidden, hidden);
    EXPECT_EQ(desc.intermediate, width);
    EXPECT_EQ(desc.n_experts, experts);
    EXPECT_EQ(desc.has_router, 1);
    return desc;
}

}  // namespace moe::test
