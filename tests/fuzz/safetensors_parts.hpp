// A safetensors file taken apart and put together again, for mutators.
#pragma once

#include <string>
#include <string_view>

#include "tests/fuzz/random.hpp"

namespace moe_fuzz {

// Changes the header as JSON; then, mostly, lays the tensors out anew so that they tile the data,
// and makes length and data fit.
std::string mutate_safetensors_file(std::string_view input, Random& random);

}  // namespace moe_fuzz
