// moe-bench-cpu measures experts of one layer on the CPU, from ids and weights, next to a streaming
// read of the same bytes by as many threads, and next to ggml and ik_llama.cpp where their
// libraries are given; --help lists the options.
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "bench/cpu/calibrate.hpp"
#include "bench/cpu/case_list.hpp"
#include "bench/cpu/report.hpp"
#include "bench/peers/ggml_cpu.hpp"
#include "bench/peers/ik_cpu.hpp"

namespace moe::bench {
namespace {

struct Options {
    std::string list;
    std::string model = "qwen3-30b";
    std::vector<std::string> formats{"q4_k"}, filters{"*"};
    std::vector<int64_t> tokens{1};
    std::vector<int32_t> threads{1, 2};
    std::vector<std::string> kernels{""};
    std::string x_type = "bf16", json, commit = "unknown";
    std::string ggml, ik, ik_version = "unknown";
    int32_t n_experts = 0;
    double seconds = 1.0, limit = 1e9;
    bool has_small_pages = false, is_only_named = false, is_int8 = false, is_packed = false;
    bool calibrates = false, has_ik_rtr = false;
};

moe_type type_of(const std::string& name) {
    for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16})
        if (name == type_name(type)) return type;
    throw std::runtime_error("no type " + name + " of x");
}

// Each case with each kernel_filter, one after the other on the same weights.
std::vector<CpuCase> with_kernels(const std::vector<CpuCase>& cases,
                                  const std::vector<std::string>& kernels) {
    std::vector<CpuCase> all;
    for (const CpuCase& one : cases)
        for (const std::string& filter : kernels) {
            all.push_back(one);
            all.back().kernels = filter;
        }
    return all;
}

std::vector<CpuCase> chosen_cases(const Options& options, int32_t n_processors) {
    std::vector<CpuCase> cases;
    if (!options.list.empty()) {
        cases = cpu_list(options.list, n_processors);
    } else {
        Model model = cpu_model(options.model);
        if (options.n_experts) model.n_experts = options.n_experts;
        for (const std::string& format : options.formats)
            for (const int32_t n_threads : options.threads)
                for (const int64_t n_tokens : options.tokens)
                    cases.push_back({model, format, "", MOE_TYPE_BF16, n_tokens, n_threads});
    }
    for (CpuCase& one : cases) {
        one.x_type = type_of(options.x_type);
        one.is_int8 |= options.is_int8;
        one.is_packed |= options.is_packed;
    }
    cases = with_kernels(cases, options.kernels);
    std::erase_if(cases, [&](const CpuCase& one) {
        return std::none_of(options.filters.begin(), options.filters.end(),
                            [&](const auto& filter) {
                                return fnmatch(filter.c_str(), one.name().c_str(), 0) == 0;
                            });
    });
    return cases;
}

void fail(const CpuCase& one, const std::string& problem, CpuReport& report) {
    report.failures.push_back(one.name() + ": " + problem);
    std::fprintf(stderr, "%s\n", report.failures.back().c_str());
}

void run_cases(const std::vector<CpuCase>& cases, const Options& options, CpuReport& report) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_ptr<CaseWeights> weights;
    for (const CpuCase& one : cases) {
        const std::chrono::duration<double> used = std::chrono::steady_clock::now() - begin;
        if (used.count() > options.limit) {
            report.failures.push_back(one.name() + ": not run, out of time");
            continue;
        }
        try {
            if (!weights || !weights->holds(one)) {
                weights.reset();  // before there are others
                weights = std::make_unique<CaseWeights>(one, options.has_small_pages, report.peers);
            }
            report.results.push_back(measure(one, *weights, options.seconds));
            print_row(report, report.results.back());
            for (const std::string& problem : report.results.back().failures)
                fail(one, problem, report);
        } catch (const std::exception& error) {
            fail(one, error.what(), report);
        }
    }
}

int run_calibration(const Options& options) {
    constexpr double usual_seconds = 0.1;
    const bool has_formats = options.formats.size() > 1 || options.formats.front() != "q4_k";
    const int32_t n_threads = options.threads.back();
    const Machine machine = read_machine();
    std::printf("%s, %d threads of %d processors, load %.1f\n", machine.cpu.c_str(), n_threads,
                machine.n_processors, machine.load);
    print_calibration(calibrate(has_formats ? options.formats : calibrated_formats(), n_threads,
                                std::min(options.seconds, usual_seconds)));
    return 0;
}

CaseWeights::Peers peers_of(const Options& options) {
    CaseWeights::Peers peers;
    if (!options.ggml.empty()) peers.push_back(std::make_unique<GgmlPeer>(options.ggml));
    if (!options.ik.empty()) {
        const auto library = std::make_shared<ik::Library>(options.ik);
        peers.push_back(std::make_unique<IkPeer>(library, options.ik_version, false));
        if (options.has_ik_rtr)
            peers.push_back(std::make_unique<IkPeer>(library, options.ik_version, true));
    }
    if (peers.empty())
        std::printf("without peers: --ggml and --ik name folders of their libraries\n");
    for (const auto& peer : peers)
        std::printf("%s %s, %s\n", peer->name().c_str(), peer->version().c_str(),
                    peer->variant().c_str());
    return peers;
}

int run(const Options& options) {
    if (options.calibrates) return run_calibration(options);
    CpuReport report{options.commit, read_machine(), {}, {}, {}, {}};
    const std::vector<CpuCase> cases = chosen_cases(options, report.machine.n_processors);
    if (options.is_only_named) {
        for (const CpuCase& one : cases) std::printf("%s\n", one.name().c_str());
        return 0;
    }
    report.peers = peers_of(options);
    constexpr double quiet = 0.3;
    if (report.machine.load > quiet)
        std::printf("other programs run here (load average %.1f): times are not the machine's\n",
                    report.machine.load);
    std::vector<int32_t> threads;
    for (const CpuCase& one : cases) threads.push_back(one.n_threads);
    std::sort(threads.begin(), threads.end());
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    for (const int32_t n : threads) {
        report.read_rates.emplace_back(n, read_rate(n));
        std::printf("%s, %d of %d processors read %.1f GB/s\n", report.machine.cpu.c_str(), n,
                    report.machine.n_processors, report.read_rates.back().second / 1e9);
    }
    print_heading(report);
    run_cases(cases, options, report);
    if (!options.json.empty()) write_json(options.json, report);
    return report.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace moe::bench

int main(int argc, char** argv) {
    moe::bench::Options options;
    CLI::App app{"Experts on the CPU next to the read rate, ggml and ik_llama.cpp"};
    app.add_option("--list", options.list, "short or full; instead of the options of cases below");
    app.add_option("--model", options.model, "One of bench/cases.cpp, gpt-oss-20b or dsv3-e32");
    app.add_option("--experts", options.n_experts, "Number of experts instead of the model's");
    app.add_option("--formats", options.formats, "Of gate, up and down; a+b: b of down")
        ->delimiter(',');
    app.add_option("--tokens", options.tokens, "Tokens of a call")->delimiter(',');
    app.add_option("--threads", options.threads, "Threads")->delimiter(',');
    app.add_option("--type", options.x_type, "Of x: bf16, f16 or f32");
    app.add_flag("--int8", options.is_int8, "Activations as bytes");
    app.add_flag("--packed", options.is_packed, "Weights with interleaved rows");
    app.add_option("--kernels", options.kernels,
                   "kernel_filter of the plan; several times: each case with each of them");
    app.add_option("--filter", options.filters, "Shell patterns on names of cases");
    app.add_flag("--names", options.is_only_named, "Only print the names of the cases");
    app.add_flag("--calibrate", options.calibrates,
                 "Instead: the rates of this machine for the plan's cost model, on the last of "
                 "--threads, all formats or --formats");
    app.add_option("--ggml", options.ggml,
                   "Folder of ggml's shared libraries (libggml-base, libggml, libggml-cpu-*), to "
                   "measure it, too");
    CLI::Option* ik = app.add_option("--ik", options.ik,
                                     "Folder of ik_llama.cpp's libggml.so, to measure it, too");
    app.add_option("--ik-version", options.ik_version, "For the JSON file: its commit")->needs(ik);
    app.add_flag("--ik-rtr", options.has_ik_rtr,
                 "ik_llama.cpp once more, with weights repacked as by its option -rtr")
        ->needs(ik);
    app.add_option("--seconds", options.seconds, "Of a case");
    app.add_option("--limit", options.limit, "Seconds after which no new case begins");
    app.add_flag("--small-pages", options.has_small_pages, "No huge pages for the weights");
    app.add_option("--commit", options.commit, "For the JSON file");
    app.add_option("--json", options.json, "File for the results");
    CLI11_PARSE(app, argc, argv);
    try {
        return moe::bench::run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
