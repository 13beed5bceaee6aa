// Measures moe_weights_open against two limits: threads that only read the file, 4 MB at a time
// (the best of several numbers of threads), and one stream that only copies from pinned memory.
#include "bench/load_run.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/layer_run.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe::bench {
namespace {

constexpr int n_times = 5;

double seconds_of(const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the median of n_times measurements.
double median_seconds(const auto& before, const auto& work) {
    std::vector<double> all;
    for (int i = 0; i < n_times; ++i) {
        before();
        all.push_back(seconds_of(work));
    }
    std::sort(all.begin(), all.end());
    return all[n_times / 2];
}

class OpenFile {
  public:
    explicit OpenFile(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY)) {
        if (descriptor_ < 0) throw std::runtime_error(path + ": cannot be opened");
    }
    OpenFile(const OpenFile&) = delete;
    ~OpenFile() { close(descriptor_); }

    int64_t size() const {
        struct stat facts {};
        fstat(descriptor_, &facts);
        return facts.st_size;
    }
    void drop_from_cache() const {
        fsync(descriptor_);
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
    }
    void read_all(int n_threads) const {
        constexpr int64_t chunk = 4 << 20;
        std::atomic<int64_t> next{0};
        std::atomic<bool> failed{false};
        const auto work = [&] {
            std::vector<char> buffer(chunk);
            for (int64_t at = chunk * next++; at < size(); at = chunk * next++)
                if (pread(descriptor_, buffer.data(), chunk, at) <= 0) failed = true;
        };
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < n_threads; ++i) threads.emplace_back(work);
        }
        if (failed) throw std::runtime_error("reading failed");
    }

  private:
    int descriptor_;
};

double copy_bytes_per_second() {
    constexpr int64_t bytes = 256 << 20;
    DeviceBuffer to(bytes);
    void* from = nullptr;
    check_cuda(cudaMallocHost(&from, bytes), "cudaMallocHost");
    std::memset(from, 1, bytes);
    const double seconds = median_seconds(
        [] {},
        [&] {
            check_cuda(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyHostToDevice, nullptr),
                       "copying");
            check_cuda(cudaStreamSynchronize(nullptr), "copying");
        });
    cudaFreeHost(from);
    return bytes / seconds;
}

double read_bytes_per_second(const OpenFile& file, const auto& before) {
    double best = 0;
    for (const int n : {1, 2, 4, 8, 16})
        best = std::max(best, file.size() / median_seconds(before, [&] { file.read_all(n); }));
    return best;
}

struct DestroyWeights {
    void operator()(moe_weights* weights) const { moe_weights_destroy(weights); }
};
using OpenedWeights = std::unique_ptr<moe_weights, DestroyWeights>;

OpenedWeights open_packed(const moe_plan& plan, const std::string& path) {
    moe_weights* weights = nullptr;
    if (moe_weights_open(&plan, path.c_str(), &weights) != MOE_OK)
        throw std::runtime_error(moe_last_error());
    return OpenedWeights(weights);
}

}  // namespace

void measure_load(const std::string& model, const std::string& format, const std::string& folder) {
    const Model* known = find_model(model);
    if (!known) throw std::runtime_error("there is no model " + model);
    const LayerRun layer({known, format, Mode::layer, 1, 0}, 1);
    const std::string path = folder + "/moe-bench-packed";
    if (moe_weights_save(layer.weights(), path.c_str()) != MOE_OK)
        throw std::runtime_error(moe_last_error());
    const double copy = copy_bytes_per_second();
    std::printf("%-10s %10s %10s %10s %10s %8s\n", "file", "GB", "read GB/s", "copy GB/s",
                "open GB/s", "of limit");
    for (const bool cached : {true, false}) {
        const OpenFile file(path);
        OpenedWeights opened;
        const auto before = [&] {
            opened.reset();
            if (!cached) file.drop_from_cache();
        };
        file.read_all(1);
        const double read = read_bytes_per_second(file, before);
        const double open =
            file.size() / median_seconds(before, [&] { opened = open_packed(layer.plan(), path); });
        const double part = open / std::min(read, copy);
        std::printf("%-10s %10.3f %10.2f %10.2f %10.2f %8.2f\n", cached ? "cached" : "dropped",
                    file.size() / 1e9, read / 1e9, copy / 1e9, open / 1e9, part);
    }
    std::remove(path.c_str());
}

}  // namespace moe::bench
