// text.hpp - numbers, roles and routing rules in words, for people who read tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moe/moe.h"

namespace moe::cli {

// "softmax, top-8, renormalised"; "sigmoid + bias, 8 groups keep 4 (top-2 sum), top-8,
// renormalised, x2.5".
std::string routing_words(const moe_layer_desc& layer);
// "silu-GLU"; "silu-GLU alpha 1.702, up + 1, gate <= 7, |up| <= 7".
std::string activation_words(const moe_layer_desc& layer);
// "1.13 GiB".
std::string byte_words(uint64_t bytes);
// "812 us".
std::string time_words(double seconds);
// Ascending numbers as ranges: "0, 3-47".
std::string range_words(const std::vector<int32_t>& numbers);
std::string device_kind_name(moe_device_kind kind);

// Columns padded to their widest cell, two spaces apart; the first row is underlined.
std::string table_words(const std::vector<std::vector<std::string>>& rows);

// What people type; UsageFailure lists the choices.
moe_type activation_type_from(const std::string& name);
moe_device_kind device_kind_from(const std::string& name);

}  // namespace moe::cli
