// Errors inside the library: one exception type that carries a moe_status and a sentence in a fixed
// buffer, so that reporting an error needs no memory of its own. api/guard.hpp turns it into a
// status at the boundary.
#pragma once

#include <exception>

#include "libmoe/base/fmt.hpp"
#include "moe/moe.h"

namespace moe {

// Every error of this thread begins with this text while the context lives: it names the field that
// a lower layer does not know. Contexts do not nest.
class ErrorContext {
  public:
    template <class... Args>
    explicit ErrorContext(fmt::format_string<Args...> format, Args&&... args) {
        *fmt::format_to_n(text_, capacity - 1, format, std::forward<Args>(args)...).out = '\0';
        current_ = text_;
    }
    ~ErrorContext() { current_ = ""; }
    ErrorContext(const ErrorContext&) = delete;
    ErrorContext& operator=(const ErrorContext&) = delete;

    static const char* current() { return current_; }

  private:
    static constexpr size_t capacity = 256;
    static inline thread_local const char* current_ = "";
    char text_[capacity];
};

class Error final : public std::exception {
  public:
    static constexpr size_t capacity = 1024;

    Error(moe_status status, fmt::string_view format, fmt::format_args args) : status_(status) {
        char* begin = fmt::format_to_n(text_, capacity - 1, "{}", ErrorContext::current()).out;
        const auto left = static_cast<size_t>(text_ + capacity - 1 - begin);
        *fmt::vformat_to_n(begin, left, format, args).out = '\0';
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

// The same error, for whoever may want to throw it later or not at all.
template <class... Args>
Error make_error(moe_status status, fmt::format_string<Args...> format, Args&&... args) {
    return Error(status, format, fmt::make_format_args(args...));
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
