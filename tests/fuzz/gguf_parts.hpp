// A GGUF file taken apart and put together again, for mutators.
#pragma once

#include <string>
#include <string_view>

#include "tests/fuzz/random.hpp"

namespace moe_fuzz {

// Changes keys, values and tensor infos; then, mostly, makes counts, offsets and data fit.
std::string mutate_gguf_file(std::string_view input, Random& random);

}  // namespace moe_fuzz
