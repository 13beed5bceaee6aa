// moe-bench measures the floors of this device, then the cases; --help lists the options.
#include <fnmatch.h>

#include <algorithm>

#include <CLI/CLI.hpp>

#include "bench/case_list.hpp"
#include "bench/load_run.hpp"
#include "bench/named_lists.hpp"
#include "bench/report.hpp"

using namespace moe::bench;

namespace {

struct Options {
    std::string list = list_names().front();
    bool names = false;
    std::string cases;
    std::vector<std::string> filters{"*"};
    std::string json;
    std::string commit = "unknown";
    std::string kernels;
    double seconds = 1e9;
    std::vector<std::string> load;  // model, format, folder
};

CaseList known_cases(const Options& options) {
    if (!options.cases.empty()) return read_cases(options.cases);
    return {{}, named_list(options.list)};
}

CaseList chosen_cases(const Options& options) {
    CaseList list = known_cases(options);
    std::erase_if(list.cases, [&](const Case& one) {
        return std::none_of(options.filters.begin(), options.filters.end(),
                            [&](const auto& filter) {
                                return fnmatch(filter.c_str(), one.name().c_str(), 0) == 0;
                            });
    });
    if (!options.kernels.empty())
        for (Case& one : list.cases) one.kernels = options.kernels;
    return list;
}

auto plan_key(const Case& one) {
    return std::tie(one.model, one.format, one.mode, one.layout, one.unfused, one.x_type,
                    one.intermediate_type, one.fp8_activations, one.kernels);
}

// Cases with the same plan run one after the other, and the plan is made for the largest of them.
int run(const Options& options) {
    CaseList list = chosen_cases(options);
    std::vector<Case>& cases = list.cases;
    std::stable_sort(cases.begin(), cases.end(),
                     [](const Case& a, const Case& b) { return plan_key(a) < plan_key(b); });
    const auto begin = std::chrono::steady_clock::now();
    const Limits limits{measure_reads(), measure_dense_tflops()};
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
            if (!layer || i == 0 || plan_key(cases[i]) != plan_key(cases[i - 1])) {
                int64_t most = 0;
                for (size_t j = i; j < cases.size() && plan_key(cases[i]) == plan_key(cases[j]);
                     ++j)
                    most = std::max(most, cases[j].n_tokens);
                layer.reset();
                layer = std::make_unique<LayerRun>(cases[i], most);
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
    app.add_option("--list", options.list, "the cases of this list (bench/README.md)")
        ->check(CLI::IsMember(list_names()))
        ->capture_default_str();
    app.add_option("--cases", options.cases, "the cases of this file instead")->excludes("--list");
    app.add_flag("--names", options.names, "names of the cases, nothing is run");
    app.add_option("--filter", options.filters,
                   "shell pattern on model/format/mode/T/skew, or several");
    app.add_option("--json", options.json, "file for the results");
    app.add_option("--commit", options.commit, "written into the results");
    app.add_option("--kernels", options.kernels, "moe_plan_desc.kernel_filter");
    app.add_option("--seconds", options.seconds, "stop beginning new cases after that long");
    app.add_option("--load", options.load,
                   "instead: how fast packed weights load from a file in FOLDER")
        ->type_name("MODEL FORMAT FOLDER")
        ->expected(3);
    CLI11_PARSE(app, argc, argv);
    try {
        if (options.names) {
            for (const Case& one : chosen_cases(options).cases) std::puts(one.name().c_str());
            return 0;
        }
        if (options.load.empty()) return run(options);
        measure_load(options.load[0], options.load[1], options.load[2]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "moe-bench: %s\n", error.what());
        return 1;
    }
}
