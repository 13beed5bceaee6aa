// Errors inside the library: one exception type that carries a moe_status and a sentence in a fixed
// buffer, so that reporting an error needs no memory of its own. api/guard.hpp turns it into a
// status at the boundary.
#pragma once

#include <exception>

#include "libmoe/base/fmt.hpp"
#include "moe/moe.h"

namespace moe {

class Error final : public std::exception {
  public:
    static constexpr size_t capacity = 1024;

    Error(moe_status status, fmt::string_view format, fmt::format_args args) : status_(status) {
        auto end = fmt::vformat_to_n(text_, capacity - 1, format, args).out;
        *end = '\0';
    }
    moe_status status() const { return status_; }
    const char* what() const noexcept override { return text_; }

  private:
    moe_status status_;
    char text_[capacity];
};

// Throws Error with a formatted sentence. The sentence names the field, file or tensor, and the
// value.
template <class... Args>
[[noreturn]] void fail(moe_status status, fmt::format_string<Args...> format, Args&&... args) {
    throw Error(status, format, fmt::make_format_args(args...));
}

// Fails with MOE_ERROR_INVALID_ARGUMENT unless condition holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) fail(MOE_ERROR_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

inline void check_flag(int32_t value, const char* name) {
    require(value == 0 || value == 1, "{} is {}, must be 0 or 1", name, value);
}

}  // namespace moe
