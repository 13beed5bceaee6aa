// The two sentences by which readers refuse a broken file: about the file, and about one of its
// tensors.
#pragma once

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/file.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {

template <class... Args>
[[noreturn]] void fail_corrupt(const File& file, fmt::format_string<Args...> format,
                               Args&&... args) {
    fail(MOE_ERROR_CORRUPT_FILE, "{}: {}", file.name(),
         fmt::vformat(format, fmt::make_format_args(args...)));
}

template <class... Args>
[[noreturn]] void fail_corrupt_tensor(const File& file, std::string_view tensor,
                                      fmt::format_string<Args...> format, Args&&... args) {
    fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}': {}", file.name(), printable(tensor).text,
         fmt::vformat(format, fmt::make_format_args(args...)));
}

}  // namespace moe
