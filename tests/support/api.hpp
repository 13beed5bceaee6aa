// moe.h for tests: handles that end themselves, structs with their size set, calls that must
// succeed, and the one measure of error.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "moe/moe.h"

namespace moe_test {

struct Destroy {
    void operator()(moe_runtime* h) const { moe_runtime_destroy(h); }
    void operator()(moe_plan* h) const { moe_plan_destroy(h); }
    void operator()(moe_weights* h) const { moe_weights_destroy(h); }
    void operator()(moe_workspace* h) const { moe_workspace_destroy(h); }
    void operator()(moe_checkpoint* h) const { moe_checkpoint_destroy(h); }
    void operator()(moe_loading* h) const { moe_loading_destroy(h); }
};
using Runtime = std::unique_ptr<moe_runtime, Destroy>;
using Plan = std::unique_ptr<moe_plan, Destroy>;
using Weights = std::unique_ptr<moe_weights, Destroy>;
using Workspace = std::unique_ptr<moe_workspace, Destroy>;
using Checkpoint = std::unique_ptr<moe_checkpoint, Destroy>;
using Loading = std::unique_ptr<moe_loading, Destroy>;

template <class T>
T sized() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

#define EXPECT_MOE_OK(call) EXPECT_EQ((call), MOE_OK) << moe_last_error()
#define ASSERT_MOE_OK(call) ASSERT_EQ((call), MOE_OK) << moe_last_error()
// The call fails with this status and its sentence contains this text.
#define EXPECT_MOE_ERROR(call, status, text)                                   \
    do {                                                                       \
        EXPECT_EQ((call), (status)) << moe_last_error();                       \
        EXPECT_NE(std::string(moe_last_error()).find(text), std::string::npos) \
            << "the sentence is: " << moe_last_error();                        \
    } while (0)

// Largest relative L2 error over the rows of [n, width]. Rows of zeros in `wanted` must be zero.
// NaN is never small.
template <class T>
double worst_row_error(const std::vector<T>& got, const std::vector<T>& wanted, size_t width) {
    if (got.size() != wanted.size() || wanted.empty()) return INFINITY;
    double worst = 0;
    for (size_t row = 0; row < wanted.size(); row += width) {
        double error = 0, norm = 0;
        for (size_t i = row; i < row + width; ++i) {
            error += std::pow(static_cast<double>(got[i]) - wanted[i], 2);
            norm += std::pow(static_cast<double>(wanted[i]), 2);
        }
        const double relative = norm > 0 ? std::sqrt(error / norm) : error > 0 ? INFINITY : 0;
        if (!(relative <= worst)) worst = relative;
    }
    return worst;
}

// Formats of one layer of a checkpoint, as moe_plan_desc takes them.
struct LayerFormats {
    explicit LayerFormats(const moe_checkpoint* checkpoint, int32_t layer) {
        moe_format* out[MOE_ROLE_COUNT];
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            formats[i] = sized<moe_format>();
            out[i] = &formats[i];
            pointers[i] = &formats[i];
        }
        status = moe_checkpoint_formats(checkpoint, layer, out, MOE_ROLE_COUNT);
    }
    LayerFormats(const LayerFormats&) = delete;

    moe_status status;
    moe_format formats[MOE_ROLE_COUNT];
    const moe_format* pointers[MOE_ROLE_COUNT];
};

}  // namespace moe_test
