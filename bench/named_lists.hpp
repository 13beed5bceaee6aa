// The lists of cases that moe-bench measures by name, each in one run below ten minutes.
#pragma once

#include <vector>

#include "bench/cases.hpp"

namespace moe::bench {

// Names of the lists, the default first.
std::vector<std::string> list_names();

// Throws std::runtime_error for an unknown name.
std::vector<Case> named_list(const std::string& name);

}  // namespace moe::bench
