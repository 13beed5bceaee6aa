// error_table.hpp - how far quantised matrices are from what they were made of, per tensor and in
// rows for people.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "moe/moe.h"

namespace moe::cli {

struct MatrixError {
    std::string name;  // of the module: "model.layers.0.mlp.experts.3.up_proj"
    int32_t layer = 0;
    moe_role role = MOE_ROLE_NONE;
    int32_t expert = 0;
    std::string format;
    double relative_l2 = 0.0;    // ||got - wanted|| / ||wanted||
    double largest_error = 0.0;  // of one value
    double largest_value = 0.0;  // of what was wanted, for comparison
};

// Sets the three numbers. Zeros that stay zeros have no error; against zeros alone it is 1.
void measure_error(std::span<const float> got, std::span<const float> wanted, MatrixError& error);

// A row per layer and role with the worst of its experts; with `each`, a row per tensor.
std::string error_table_words(const std::vector<MatrixError>& errors, bool each);
// Every tensor.
nlohmann::ordered_json error_table_json(const std::vector<MatrixError>& errors);

}  // namespace moe::cli
