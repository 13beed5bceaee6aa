// moe-bench-regions: what a parallel region of the library's own threads costs, empty and with work
// that is shared, alone and beside other threads that spin on the same cores. A row of results is
// a kind of region, a number of threads and a number of such busy threads.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory_resource>
#include <thread>
#include <vector>

#include "libmoe/base/pool.hpp"

namespace moe::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void spin_for(double us) {
    const auto end = Clock::now() + std::chrono::duration<double, std::micro>(us);
    while (Clock::now() < end) relax();
}

// Work that takes the same number of instructions however often its thread is interrupted.
void compute(int64_t n_steps) {
    uint64_t value = 1;
    for (int64_t i = 0; i < n_steps; ++i) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(value));
    }
}

int64_t steps_per_us() {
    constexpr int64_t n_steps = 20000;
    double best = 1e9;
    for (int i = 0; i < 50; ++i) {
        const auto begin = Clock::now();
        compute(n_steps);
        best = std::min(best, microseconds(Clock::now() - begin));
    }
    return std::max<int64_t>(1, static_cast<int64_t>(n_steps / best));
}

// Threads that only spin, as the pool of another library does between its own regions.
class BusyThreads {
  public:
    explicit BusyThreads(int n) {
        for (int i = 0; i < n; ++i)
            threads_.emplace_back([this] {
                while (!stop_.load(std::memory_order_relaxed)) relax();
            });
    }
    ~BusyThreads() {
        stop_ = true;
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
};

struct Kind {
    const char* name;
    double item_us;   // work of an item
    int64_t items;    // of a region, for each thread
    int regions;      // of a sample, one directly after the other
    double pause_us;  // before a sample: the caller works, the others have nothing to do
};

// "layer" is two regions of tasks of 64 KB at 15 GB/s a thread, 48 tasks in each.
constexpr Kind kinds[] = {
    {"empty, back to back", 0, 1, 100, 0},  {"empty, after 20 us", 0, 1, 1, 20},
    {"empty, after 300 us", 0, 1, 1, 300},  {"layer, after 20 us", 4, 24, 2, 20},
    {"layer, after 300 us", 4, 24, 2, 300},
};

void measure(const Kind& kind, int32_t n_threads, int n_busy, double seconds) {
    Pool pool(*std::pmr::new_delete_resource(), n_threads);
    PoolTeam team(pool);
    const int64_t n_items = kind.items * n_threads;
    const auto n_steps = static_cast<int64_t>(kind.item_us * static_cast<double>(steps_per_us()));
    const BusyThreads busy(n_busy);
    std::vector<double> samples;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end) {
        if (kind.pause_us > 0) spin_for(kind.pause_us);
        const auto begin = Clock::now();
        for (int i = 0; i < kind.regions; ++i)
            team.for_each(n_items, [&](int32_t, int64_t) { compute(n_steps); });
        samples.push_back(microseconds(Clock::now() - begin) / kind.regions);
    }
    std::sort(samples.begin(), samples.end());
    double sum = 0;
    for (const double sample : samples) sum += sample;
    const auto n = samples.size();
    fmt::print("{:<22} {:>7} {:>5} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", kind.name, n_threads,
               n_busy, samples.front(), samples[n / 2], samples[n * 9 / 10],
               sum / static_cast<double>(n));
    std::fflush(stdout);
}

}  // namespace
}  // namespace moe::bench

int main(int argc, char** argv) {
    std::vector<int32_t> threads{1, 2};
    std::vector<int> busy{0};
    double seconds = 0.5;
    CLI::App app{"The cost of parallel regions, microseconds"};
    app.add_option("--threads", threads, "Threads of the pool")->delimiter(',');
    app.add_option("--busy", busy, "Threads that spin beside it")->delimiter(',');
    app.add_option("--seconds", seconds, "Of a row");
    CLI11_PARSE(app, argc, argv);
    fmt::print("{:<22} {:>7} {:>5} {:>9} {:>9} {:>9} {:>9}\n", "us of a region", "threads", "busy",
               "best", "median", "90 %", "mean");
    for (const auto& kind : moe::bench::kinds)
        for (const int32_t n_threads : threads)
            for (const int n_busy : busy) moe::bench::measure(kind, n_threads, n_busy, seconds);
    return 0;
}
