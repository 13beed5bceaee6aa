// Checks of the clients: what differs is printed, and the program ends with 1. Results are judged
// per token by the relative L2 distance, which a zero or a NaN output cannot pass.
#pragma once

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "moe/moe.h"

namespace clients {

[[noreturn]] __attribute__((format(printf, 4, 5))) inline void fail_check(const char* file,
                                                                          int line,
                                                                          const char* what,
                                                                          const char* format, ...) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s:%d: %s\n    ", file, line, what);
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    std::exit(1);
}

// CHECK(condition, "printf text that says what was found", ...)
#define CHECK(condition, ...)                                                                 \
    do {                                                                                      \
        if (!(condition)) ::clients::fail_check(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

#define CHECK_OK(call)                                                              \
    do {                                                                            \
        const moe_status check_status = (call);                                     \
        if (check_status != MOE_OK)                                                 \
            ::clients::fail_check(__FILE__, __LINE__, #call, "%s: %s",              \
                                  moe_status_name(check_status), moe_last_error()); \
    } while (0)

// The call must fail with this status and a sentence that contains the word.
#define CHECK_REFUSED(call, status, word)                                                         \
    do {                                                                                          \
        const moe_status check_status = (call);                                                   \
        if (check_status != (status) || !std::strstr(moe_last_error(), (word)))                   \
            ::clients::fail_check(__FILE__, __LINE__, #call,                                      \
                                  "wanted %s naming \"%s\", got %s: %s", moe_status_name(status), \
                                  word, moe_status_name(check_status), moe_last_error());         \
    } while (0)

// A struct of moe.h, zero but for its size.
template <class Struct>
Struct sized() {
    Struct result;
    std::memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    return result;
}

// A row that should be zero must be zero; of the others, |got - want| / |want|.
template <class Want, class Got>
double relative_l2(const Want* want, const Got* got, int64_t n) {
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        const double d = double(got[i]) - double(want[i]);
        difference += d * d;
        norm += double(want[i]) * double(want[i]);
    }
    if (norm == 0.0) return difference == 0.0 ? 0.0 : HUGE_VAL;
    const double result = std::sqrt(difference / norm);
    return std::isnan(result) ? HUGE_VAL : result;
}

// Largest relative L2 of n_rows rows; strides in elements.
template <class Want, class Got>
double worst_row(const Want* want, const Got* got, int64_t n_rows, int64_t n_columns,
                 int64_t got_stride = 0) {
    double worst = 0.0;
    const int64_t stride = got_stride ? got_stride : n_columns;
    for (int64_t row = 0; row < n_rows; ++row)
        worst =
            std::fmax(worst, relative_l2(want + row * n_columns, got + row * stride, n_columns));
    return worst;
}

// Float32 arithmetic against double, as the library promises it.
constexpr double f32_tolerance = 1e-5;

#define CHECK_ROWS(want, got, n_rows, n_columns, tolerance, name)                                \
    do {                                                                                         \
        const double check_worst =                                                               \
            ::clients::worst_row((want).data(), (got).data(), (n_rows), (n_columns));            \
        if (!(check_worst <= (tolerance)))                                                       \
            ::clients::fail_check(__FILE__, __LINE__, name,                                      \
                                  "largest relative L2 of a row is %g, allowed %g", check_worst, \
                                  double(tolerance));                                            \
        std::printf("  %-58s %.2e\n", name, check_worst);                                        \
    } while (0)

// NaN with a payload: untouched memory is told from written memory by its bits.
constexpr uint32_t poison_bits = 0x7fd5aa55u;

inline float poison() {
    float value;
    std::memcpy(&value, &poison_bits, sizeof value);
    return value;
}

inline bool is_poison(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits == poison_bits;
}

inline std::vector<float> poisoned(int64_t n) {
    return std::vector<float>(size_t(n), poison());
}

}  // namespace clients
