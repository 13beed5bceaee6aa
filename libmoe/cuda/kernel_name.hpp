// The name of a kernel, <arch>_<weight>_<activation>_<family>_<stage>[_variant]: the plan makes it
// (plan/kernel_names.hpp), explain prints it, kernel_filter matches it, a launch reports it.
#pragma once

#include <string_view>

namespace moe::cuda {

struct KernelName {
    const char* text = "";  // static: names are kept for the life of the process

    const char* c_str() const { return text; }
    std::string_view view() const { return text; }
    bool empty() const { return *text == '\0'; }
};

}  // namespace moe::cuda
