#include "bench/cpu/calibrate.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

#include "bench/cpu/calls.hpp"
#include "bench/cpu/measure.hpp"

namespace moe::bench {
namespace {

// The larger expert has 1.6 MB in bfloat16, 0.4 MB in 4 bits. K-quants have blocks of 256.
constexpr int32_t hidden = 512, intermediates[] = {256, 512};
// Rows of a call: of gemv kernels, which take one and four at once, and of gemm kernels.
constexpr int64_t gemv_rows[] = {1, 4}, gemm_rows[] = {16, 64};
constexpr int n_rounds = 20;

Model model_of(int32_t columns, int32_t intermediate) {
    Model model{};
    model.name = "calibration";
    model.hidden = columns;
    model.intermediate = intermediate;
    model.n_experts = model.top_k = 1;
    return model;
}

enum class Way { usual, int8, packed };

struct Setting {
    int32_t n_threads;
    double seconds;  // of a measurement
};

// One call of every thread, on a layer of its own.
class Layers {
  public:
    Layers(const CpuCase& one, const ExpertWeights& weights, int32_t n_threads)
        : ids_(static_cast<size_t>(one.n_tokens), 0) {
        for (int32_t i = 0; i < n_threads; ++i)
            layers_.push_back(std::make_unique<CpuLayer>(one, weights));
        best_.assign(layers_.size(), 1e9);
        const std::string name = layers_.front()->kernel();
        kernel_ = name.substr(0, name.rfind("_gate_up"));
    }

    const std::string& kernel() const { return kernel_; }
    // The best of each thread, and the mean of the threads.
    double seconds() const {
        return std::accumulate(best_.begin(), best_.end(), 0.0) / static_cast<double>(best_.size());
    }
    void repeat_for(double seconds) {
        std::barrier begin(static_cast<std::ptrdiff_t>(layers_.size()));
        std::vector<std::thread> threads;
        for (size_t i = 1; i < layers_.size(); ++i)
            threads.emplace_back([&, i] { run(i, begin, seconds); });
        run(0, begin, seconds);
        for (std::thread& thread : threads) thread.join();
    }

  private:
    using Clock = std::chrono::steady_clock;
    void run(size_t i, std::barrier<>& begin, double seconds) {
        begin.arrive_and_wait();
        const auto end = Clock::now() + std::chrono::duration<double>(seconds);
        while (Clock::now() < end) best_[i] = std::min(best_[i], layers_[i]->forward(0, ids_));
    }

    std::vector<int32_t> ids_;
    std::vector<std::unique_ptr<CpuLayer>> layers_;
    std::vector<double> best_;
    std::string kernel_;
};

class Format {
  public:
    Format(const std::string& name, Way way, const Setting& setting)
        : name_(name),
          way_(way),
          setting_(setting),
          weights_{ExpertWeights(model_of(hidden, intermediates[0]), name, false, 1),
                   ExpertWeights(model_of(hidden, intermediates[1]), name, false, 1)} {}

    // Adds the kernels that take these numbers of rows, where one takes both. is_gemm: may gemm
    // kernels take them?
    void add_kernel(const int64_t (&rows)[2], bool is_gemm, std::vector<KernelRate>& all) const {
        std::vector<Layers> calls;
        for (const int64_t n : rows)
            for (const ExpertWeights& weights : weights_)
                calls.emplace_back(case_of(weights, n, is_gemm), weights, setting_.n_threads);
        const std::string& kernel = calls.front().kernel();
        const bool is_known = std::any_of(
            all.begin(), all.end(), [&](const KernelRate& one) { return one.kernel == kernel; });
        if (is_known || !kernel.ends_with(is_gemm ? "_gemm" : "_gemv")) return;
        // In turns, so that what else runs on the machine disturbs no one of them alone.
        for (int i = 0; i < n_rounds; ++i)
            for (Layers& one : calls) one.repeat_for(setting_.seconds / n_rounds);
        const double few = calls[1].seconds() - calls[0].seconds();
        const double many = calls[3].seconds() - calls[2].seconds();
        all.push_back(rate_of(kernel, rows, few, many));
    }

  private:
    CpuCase case_of(const ExpertWeights& weights, int64_t n_rows, bool is_gemm) const {
        return {weights.model(), name_, is_gemm ? "" : "-*_gemm_*", MOE_TYPE_BF16,
                n_rows,          1,     way_ == Way::int8,          way_ == Way::packed};
    }
    // few, many: seconds of the weights that the larger expert has more. seconds = dequantize +
    // rows * multiply; what the noise hides of either is a tenth of the whole.
    KernelRate rate_of(const std::string& kernel, const int64_t (&rows)[2], double few,
                       double many) const {
        const auto n = [&](int i) { return static_cast<double>(rows[i]); };
        const double per_row = std::max((many - few) / (n(1) - n(0)), few / n(0) / 10);
        const double dequantize = std::max(few - per_row * n(0), few / 10);
        const double multiply = (many - dequantize) / n(1);
        const double values = 3.0 * hidden * (intermediates[1] - intermediates[0]);
        return {kernel, (bytes_of(weights_[1]) - bytes_of(weights_[0])) / dequantize / 1e9,
                2 * values / multiply / 1e9};
    }
    static double bytes_of(const ExpertWeights& weights) {
        std::vector<ByteRange> ranges;
        weights.add_ranges(0, 0, ranges);
        return size_of(ranges);
    }

    std::string name_;
    Way way_;
    Setting setting_;
    ExpertWeights weights_[2];
};

// Returns the time that a row takes beside weights, by calls of few and many rows on a small expert
// and on one of twice its size.
double row_seconds(const Setting& setting) {
    const ExpertWeights small(model_of(hidden, 32), "bf16", false, 1);
    const ExpertWeights large(model_of(hidden, 64), "bf16", false, 1);
    std::vector<Layers> calls;
    constexpr int64_t rows[] = {16, 128};
    for (const int64_t n : rows)
        for (const ExpertWeights* weights : {&small, &large})
            calls.emplace_back(CpuCase{weights->model(), "bf16", "", MOE_TYPE_BF16, n, 1}, *weights,
                               setting.n_threads);
    for (int i = 0; i < n_rounds; ++i)
        for (Layers& one : calls) one.repeat_for(setting.seconds / n_rounds);
    const double few = 2 * calls[0].seconds() - calls[1].seconds();
    const double many = 2 * calls[2].seconds() - calls[3].seconds();
    return (many - few) / static_cast<double>(rows[1] - rows[0]);
}

// A call of the pool's threads on an expert that takes them no time.
double call_seconds(const Setting& setting) {
    const Model model = model_of(64, 16 * setting.n_threads);
    const ExpertWeights weights(model, "bf16", false, 1);
    CpuLayer layer({model, "bf16", "", MOE_TYPE_BF16, 1, setting.n_threads}, weights);
    std::vector<double> all;
    for (double sum = 0; sum < setting.seconds; sum += all.back())
        all.push_back(layer.forward(0, {0}));
    std::nth_element(all.begin(), all.begin() + static_cast<long>(all.size() / 2), all.end());
    return all[all.size() / 2];
}

}  // namespace

std::vector<KernelRate> kernel_rates(const std::vector<std::string>& formats, int32_t n_threads,
                                     double seconds) {
    std::vector<KernelRate> found;
    for (const Way way : {Way::usual, Way::int8, Way::packed})
        for (const std::string& name : formats) {
            const Format format(name, way, {n_threads, seconds});
            format.add_kernel(gemv_rows, false, found);
            format.add_kernel(gemm_rows, true, found);
        }
    return found;
}

Calibration calibrate(const std::vector<std::string>& formats, int32_t n_threads, double seconds) {
    const Setting setting{n_threads, seconds};
    Calibration found{};
    for (int32_t n = 1; n < n_threads; n *= 2)
        found.read_gb_per_s.emplace_back(n, read_rate(n) / 1e9);
    found.read_gb_per_s.emplace_back(n_threads, read_rate(n_threads) / 1e9);
    found.call_us = call_seconds(setting) * 1e6;
    found.row_ns = row_seconds(setting) / hidden * 1e9;
    found.kernels = kernel_rates(formats, n_threads, seconds);
    return found;
}

void print_calibration(const Calibration& found) {
    std::printf("    call_us %.1f, row_ns %.2f, reads {", found.call_us, found.row_ns);
    for (const auto& [n, rate] : found.read_gb_per_s) std::printf("{%d, %.1f}, ", n, rate);
    std::printf("}\n");
    for (const KernelRate& one : found.kernels)
        std::printf("    {\"%s\", %.1f, %.1f},\n", one.kernel.c_str(), one.gb_per_s,
                    one.gflop_per_s);
}

}  // namespace moe::bench
