// moe-bench-cpu: experts of one layer on the CPU, from ids and weights, next to a streaming read of
// the same bytes by the same number of threads. Calls and reads take turns, each on weights that no
// cache holds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "bench/cpu/layer.hpp"
#include "bench/routing.hpp"

namespace moe::bench {
namespace {

struct Options {
    std::string model = "qwen3-30b";
    std::vector<std::string> formats{"q4_k"};
    std::vector<int64_t> tokens{1};
    std::vector<int32_t> threads{1, 2};
    std::string x_type = "bf16", down, kernels, json;
    int32_t n_experts = 0;
    double seconds = 1.0;
    bool small_pages = false;
};

// Experts of call after call. One token walks through all experts, so that each comes back as late
// as can be; more tokens draw evenly.
class Calls {
  public:
    Calls(const CpuCase& one, size_t n_sets)
        : router_(one.model.n_experts, one.model.top_k, 0.0, 11), case_(one), n_sets_(n_sets) {
        order_.resize(static_cast<size_t>(one.model.n_experts));
        std::iota(order_.begin(), order_.end(), 0);
        std::shuffle(order_.begin(), order_.end(), std::mt19937(5));
    }
    struct Call {
        size_t set;
        std::vector<int32_t> ids;
    };
    Call next() {
        const size_t set = n_++ % n_sets_;
        if (case_.n_tokens > 1) return {set, router_.ids(case_.n_tokens)};
        std::vector<int32_t> ids;
        for (int32_t j = 0; j < case_.model.top_k; ++j)
            ids.push_back(order_[at_++ % order_.size()]);
        return {set, ids};
    }

  private:
    Router router_;
    const CpuCase& case_;
    size_t n_sets_, n_ = 0, at_ = 0;
    std::vector<int32_t> order_;
};

std::vector<ByteRange> ranges_of(const CpuLayer& layer, const Calls::Call& call) {
    std::vector<int32_t> experts = call.ids;
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    std::vector<ByteRange> ranges;
    for (const int32_t expert : experts) layer.add_ranges(call.set, expert, ranges);
    return ranges;
}

double size_of(const std::vector<ByteRange>& ranges) {
    double bytes = 0;
    for (const ByteRange& range : ranges) bytes += static_cast<double>(range.size);
    return bytes;
}

struct Rates {
    std::vector<double> values;  // bytes per second
    double best() const { return *std::max_element(values.begin(), values.end()); }
    double median() const {
        std::vector<double> sorted = values;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    }
};

nlohmann::ordered_json measure(const CpuCase& one, double seconds) {
    CpuLayer layer(one);
    Calls calls(one, layer.n_sets());
    Readers readers(one.n_threads);
    Rates experts, reads, ratios;
    double spent = 0, bytes = 0;
    for (int warm_up = 2; spent < seconds || experts.values.size() < 7; --warm_up) {
        const Calls::Call call = calls.next();
        const auto touched = ranges_of(layer, call), read = ranges_of(layer, calls.next());
        const double call_seconds = layer.forward(call.set, call.ids);
        const double read_seconds = readers.read(read);
        if (warm_up > 0) continue;
        spent += call_seconds + read_seconds;
        bytes = size_of(touched);
        experts.values.push_back(bytes / call_seconds);
        reads.values.push_back(size_of(read) / read_seconds);
        ratios.values.push_back(experts.values.back() / reads.values.back());
    }
    const double ratio = experts.best() / reads.best();
    fmt::print("{:<44} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f} {:>6.2f} {:>6.2f}  {}\n", one.name(),
               experts.median() / 1e9, experts.best() / 1e9, reads.median() / 1e9,
               reads.best() / 1e9, ratios.median(), ratio, layer.kernel());
    std::fflush(stdout);
    return {{"case", one.name()},
            {"kernel", layer.kernel()},
            {"n_calls", experts.values.size()},
            {"weight_bytes", bytes},
            {"gb_per_s", experts.median() / 1e9},
            {"gb_per_s_best", experts.best() / 1e9},
            {"read_gb_per_s", reads.median() / 1e9},
            {"read_gb_per_s_best", reads.best() / 1e9},
            {"ratio", ratios.median()},
            {"ratio_best", ratio}};
}

moe_type type_of(const std::string& name) {
    return name == "f32" ? MOE_TYPE_F32 : name == "f16" ? MOE_TYPE_F16 : MOE_TYPE_BF16;
}

int run(const Options& options) {
    const Model* found = find_model(options.model);
    if (!found) throw std::runtime_error("no model " + options.model);
    Model model = *found;
    if (options.n_experts) model.n_experts = options.n_experts;
    nlohmann::ordered_json cases = nlohmann::ordered_json::array();
    fmt::print("{:<44} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}  {}\n", "case; GB/s of weights",
               "median", "best", "read", "best", "ratio", "best", "kernel");
    for (const std::string& format : options.formats)
        for (const int32_t n_threads : options.threads)
            for (const int64_t n_tokens : options.tokens)
                cases.push_back(measure(
                    {model, format, options.down.empty() ? format : options.down, options.kernels,
                     type_of(options.x_type), n_tokens, n_threads, options.small_pages},
                    options.seconds));
    if (!options.json.empty())
        std::ofstream(options.json) << nlohmann::ordered_json{{"schema", "libmoe.bench-cpu.1"},
                                                              {"version", moe_version_string()},
                                                              {"cases", cases}}
                                           .dump(1)
                                    << "\n";
    return 0;
}

}  // namespace
}  // namespace moe::bench

int main(int argc, char** argv) {
    moe::bench::Options options;
    CLI::App app{"Experts on the CPU next to the read rate"};
    app.add_option("--model", options.model, "One of bench/cases.cpp");
    app.add_option("--experts", options.n_experts, "Number of experts instead of the model's");
    app.add_option("--formats", options.formats, "Of gate, up and down; int4_g128 and the like too")
        ->delimiter(',');
    app.add_option("--down", options.down, "Of down, where it differs");
    app.add_option("--tokens", options.tokens, "Tokens of a call")->delimiter(',');
    app.add_option("--threads", options.threads, "Threads")->delimiter(',');
    app.add_option("--type", options.x_type, "bf16, f16 or f32");
    app.add_option("--kernels", options.kernels, "kernel_filter of the plan");
    app.add_option("--seconds", options.seconds, "Of a case");
    app.add_flag("--small-pages", options.small_pages, "No huge pages for the weights");
    app.add_option("--json", options.json, "File for the results");
    CLI11_PARSE(app, argc, argv);
    try {
        return moe::bench::run(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
