// Packed weights in host memory against the tensors that they were made of.
#pragma once

#include <gtest/gtest.h>

#include "libmoe/weights/packed_checkpoint.hpp"
#include "tests/packed/packing.hpp"
#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe::test {

// One rounding where a global scale divides; nothing else may differ.
inline bool is_close(float got, float wanted) {
    return std::abs(got - wanted) <= std::abs(wanted) * 0x1p-22f;
}

inline void expect_packed_matrix(const PackedWeights& packed, const LayerTensors& layer,
                                 moe_role role, int64_t place) {
    const WeightsLayout::Part part = packed.handle.layout.part(role);
    const int64_t expert = expert_at(packed.handle.layout, role, place);
    const auto got = packed.values(role, place);
    const auto source = layer.values(role);
    double norm = 0;
    for (int64_t r = 0; r < part.rows; ++r)
        for (int64_t k = 0; k < part.columns; ++k) {
            const float wanted = source.at(expert, part.row + r, part.column + k);
            norm += std::abs(wanted);
            const float found = got[static_cast<size_t>(r * part.columns + k)];
            ASSERT_TRUE(is_close(found, wanted))
                << role_name(role) << " of expert " << expert << " [" << r << ", " << k << "] is "
                << found << ", not " << wanted;
        }
    ASSERT_GT(norm, 0) << "a source of zeros proves nothing";
}

inline void expect_packed_vector(const PackedWeights& packed, const LayerTensors& layer,
                                 moe_role role) {
    const WeightsLayout::Part part = packed.handle.layout.part(role);
    const float* vector = packed.handle.device.vectors[role];
    ASSERT_NE(vector, nullptr) << role_name(role);
    const auto source = layer.values(role);
    for (int64_t i = 0; i < packed.handle.layout.count(role) * part.columns; ++i)
        ASSERT_EQ(vector[i], source.at(expert_at(packed.handle.layout, role, i / part.columns), 0,
                                       part.column + i % part.columns))
            << role_name(role) << " [" << i << "]";
}

inline void expect_packed(const PackedWeights& packed, const LayerTensors& layer) {
    const WeightsLayout& layout = packed.handle.layout;
    int n_matrices = 0;
    for (int i = 1; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (role == MOE_ROLE_HASH_TABLE) continue;
        if (!layout.needs(role)) {
            EXPECT_EQ(packed.handle.device.vectors[i], nullptr) << role_name(role);
            EXPECT_EQ(packed.handle.device.matrices[i].data, nullptr) << role_name(role);
        } else if (is_matrix_role(role)) {
            for (int64_t place = 0; place < layout.count(role); ++place, ++n_matrices)
                ASSERT_NO_FATAL_FAILURE(expect_packed_matrix(packed, layer, role, place));
        } else {
            ASSERT_NO_FATAL_FAILURE(expect_packed_vector(packed, layer, role));
        }
    }
    EXPECT_GT(n_matrices, 0);
}

inline moe_layer_desc small_layer() {
    moe_layer_desc desc = rich_layer(64, 96);
    desc.shared_intermediate = 32;
    return desc;
}

template <class F>
void expect_fails(F f, moe_status status, const std::string& text) {
    try {
        f();
        FAIL() << "no error with " << text;
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
}

}  // namespace moe::test
