// What a view of a tensor is refused with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/weights/view.hpp"

namespace moe::test {

// The sentence, or "no error".
inline std::string refusal_of(const moe_tensor& tensor, int64_t index, moe_status status) {
    try {
        view_of(tensor, index, "tensor gate of expert 2");
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        return error.what();
    }
    return "no error";
}

}  // namespace moe::test
