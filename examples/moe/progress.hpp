// progress.hpp - one line on standard error that follows long work, when somebody watches.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace moe::cli {

class Progress {
  public:
    // Shows itself on a terminal, or always when forced.
    Progress(std::string what, bool forced);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // One thread at a time.
    void show(uint64_t done, uint64_t total);
    // moe_progress_fn; user_data is the Progress.
    static int32_t callback(uint64_t done, uint64_t total, void* user_data);

  private:
    std::string what_;
    bool enabled_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace moe::cli
