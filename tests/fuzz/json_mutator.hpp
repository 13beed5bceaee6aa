// Changes of JSON text that keep most of it JSON: whole values and members are replaced, copied,
// taken away, doubled and wrapped, numbers are moved to edges, texts get escapes and bad bytes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tests/fuzz/random.hpp"

namespace moe_fuzz {

// `words`: texts that mean something to the reader, for keys and values.
std::string mutate_json(std::string_view text, std::span<const std::string_view> words,
                        Random& random);

}  // namespace moe_fuzz
