// moe-bench: the floors of this device, then cases; see --help.
#include <fnmatch.h>

#include <CLI/CLI.hpp>

#include "bench/load_run.hpp"
#include "bench/report.hpp"

using namespace moe::bench;

namespace {

struct Options {
    bool quick = false;
    bool list = false;
    std::string filter = "*";
    std::string json;
    std::string commit = "unknown";
    std::string kernels;
    double seconds = 1e9;
    std::vector<std::string> load;  // model, format, folder
};

std::vector<Case> chosen_cases(const Options& options) {
    std::vector<Case> cases;
    for (const Case& one : options.quick ? quick_cases() : all_cases())
        if (fnmatch(options.filter.c_str(), one.name().c_str(), 0) == 0) cases.push_back(one);
    return cases;
}

bool same_weights(const Case& a, const Case& b) {
    return a.model == b.model && a.format == b.format && a.mode == b.mode;
}

// Cases that share weights run one after the other; the plan is for the largest of them.
int run(const Options& options) {
    std::vector<Case> cases = chosen_cases(options);
    std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) {
        return std::tie(a.model, a.format, a.mode) < std::tie(b.model, b.format, b.mode);
    });
    const auto begin = std::chrono::steady_clock::now();
    const Limits limits{measure_reads(options.quick), measure_dense_tflops()};
    std::printf("read floor: 1 GB in %.1f us; dense bf16 %.0f TFLOP/s\n", limits.reads.back().us,
                limits.dense_tflops);
    print_heading();
    std::vector<Result> results;
    std::vector<std::string> failures;
    std::unique_ptr<LayerRun> layer;
    for (size_t i = 0; i < cases.size(); ++i) {
        const std::chrono::duration<double> used = std::chrono::steady_clock::now() - begin;
        if (used.count() > options.seconds) {
            failures.push_back(cases[i].name() + ": not run, out of time");
            continue;
        }
        try {
            if (!layer || i == 0 || !same_weights(cases[i], cases[i - 1])) {
                int64_t most = 0;
                for (size_t j = i; j < cases.size() && same_weights(cases[i], cases[j]); ++j)
                    most = std::max(most, cases[j].n_tokens);
                layer.reset();
                layer = std::make_unique<LayerRun>(*cases[i].model, cases[i].format, cases[i].mode,
                                                   most, options.kernels);
            }
            results.push_back(layer->run(cases[i], limits));
            print_row(results.back());
        } catch (const std::exception& error) {
            failures.push_back(cases[i].name() + ": " + error.what());
            std::printf("%-44s failed: %s\n", cases[i].name().c_str(), error.what());
        }
    }
    if (!options.json.empty()) write_json(options.json, options.commit, limits, results, failures);
    return failures.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures MoE layers against the floors of this device");
    app.add_flag("--quick", options.quick, "about forty cases instead of all");
    app.add_flag("--list", options.list, "names of the cases, nothing is run");
    app.add_option("--filter", options.filter, "shell pattern on model/format/mode/T/skew");
    app.add_option("--json", options.json, "file for the results");
    app.add_option("--commit", options.commit, "written into the results");
    app.add_option("--kernels", options.kernels, "moe_plan_desc.kernel_filter");
    app.add_option("--seconds", options.seconds, "stop beginning new cases after that long");
    app.add_option("--load", options.load,
                   "instead: how fast packed weights load from a file in FOLDER")
        ->type_name("MODEL FORMAT FOLDER")
        ->expected(3);
    CLI11_PARSE(app, argc, argv);
    if (options.list) {
        for (const Case& one : chosen_cases(options)) std::puts(one.name().c_str());
        return 0;
    }
    try {
        if (options.load.empty()) return run(options);
        measure_load(options.load[0], options.load[1], options.load[2]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "moe-bench: %s\n", error.what());
        return 1;
    }
}
