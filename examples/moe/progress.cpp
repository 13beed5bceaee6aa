// progress.cpp - the line is rewritten at most ten times a second and removed at the end.
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "text.hpp"

namespace moe::cli {

Progress::Progress(std::string what, bool forced)
    : what_(std::move(what)), enabled_(forced || ::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(uint64_t done, uint64_t total) {
    if (!enabled_ || total == 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100) && done < total) return;
    last_ = now;
    shown_ = true;
    const double percent = 100.0 * static_cast<double>(done) / static_cast<double>(total);
    fmt::print(stderr, "\r\033[K{} {:.0f} % of {}", what_, percent, byte_words(total));
    std::fflush(stderr);
}

int32_t Progress::callback(uint64_t done, uint64_t total, void* user_data) {
    static_cast<Progress*>(user_data)->show(done, total);
    return 0;
}

}  // namespace moe::cli
