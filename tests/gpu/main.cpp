// moe-gpu-test: compares a device's plans with the CPU's, case by case, and reports.
#include <fnmatch.h>

#include <chrono>
#include <cstring>

#include "cases.hpp"
#include "launches.hpp"
#include "report.hpp"

namespace moe_gpu {

void Context::measure(const std::string& what, double value, double allowed) {
    const bool good = value <= allowed;
    if (!good) failures.push_back(what + text(": %.3g, limit %.3g", value, allowed));
    if (!has_metric || !good || value / allowed > metric / limit) {
        metric = value;
        limit = allowed;
    }
    has_metric = true;
}

void Context::expect(bool good, const std::string& what) {
    if (!good) failures.push_back(what);
}

namespace {

constexpr const char* usage = R"(moe-gpu-test [options]
  --device cuda|cpu   what is tested (default cuda); cpu tries the cases themselves, without a GPU
  --list              the names of the cases and nothing else
  --filter GLOB       only cases whose name matches; may be given several times
  --smoke             the short set
  --kernels FILTER    the kernel_filter of plans for which the case has none
  --report FILE       write a JSON report
  --commit NAME       the commit under test, for the report
  --quiet             print failures and the last line only
)";

struct Options {
    bool is_cuda = true, lists = false, smoke = false, quiet = false;
    std::vector<const char*> filters;
    const char* report = nullptr;
    const char* commit = "";
    const char* kernels = "";
    const char* child = nullptr;
    const char* child_filter = "";
};

bool parse(int count, char** words, Options& options) {
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const auto value = [&]() -> const char* { return i + 1 < count ? words[++i] : nullptr; };
        if (word == "--list") {
            options.lists = true;
        } else if (word == "--smoke") {
            options.smoke = true;
        } else if (word == "--quiet") {
            options.quiet = true;
        } else if (const char* given = value(); !given) {
            return false;
        } else if (word == "--device" &&
                   (!std::strcmp(given, "cuda") || !std::strcmp(given, "cpu"))) {
            options.is_cuda = !std::strcmp(given, "cuda");
        } else if (word == "--filter") {
            options.filters.push_back(given);
        } else if (word == "--report") {
            options.report = given;
        } else if (word == "--commit") {
            options.commit = given;
        } else if (word == "--kernels") {
            options.kernels = given;
        } else if (word == "--child") {
            options.child = given;
        } else if (word == "--child-filter") {
            options.child_filter = given;
        } else {
            return false;
        }
    }
    return true;
}

CaseList all_cases() {
    CaseList list;
    for (auto* add : {add_router_cases,     add_choice_cases, add_dispatch_cases, add_triton_cases,
                      add_format_cases,     add_column_cases, add_skew_cases,     add_fp8_cases,
                      add_fp8_expert_cases, add_layer_cases,  add_call_cases,     add_stage_cases,
                      add_slice_cases,      add_graph_cases,  add_process_cases,  add_error_cases,
                      add_weight_cases,     add_memory_cases, add_large_cases,    add_launch_cases,
                      add_random_cases})
        add(list);
    return list;
}

bool is_wanted(const Case& one, const Options& options) {
    if (options.smoke && one.extent != Extent::smoke) return false;
    for (const char* glob : options.filters)
        if (fnmatch(glob, one.name.c_str(), 0) == 0) return true;
    return options.filters.empty();
}

// A failed device call leaves nothing to be tested after it; the caller sees it in every later
// case.
Outcome run_case(const Case& one, Device& device, Device& host) {
    Outcome outcome;
    outcome.name = one.name;
    Context context(device, host, nullptr, one.name);
    forget_launches();
    const auto begin = std::chrono::steady_clock::now();
    try {
        one.run(context);
        check_functions(context, launches_since(0));
    } catch (const Skip& skip) {
        outcome.skipped = skip.what();
    } catch (const std::exception& error) {
        context.failures.push_back(error.what());
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    outcome.kernels = context.kernels;
    outcome.launched = context.launched_elsewhere;
    outcome.launched.merge(names_of(launches_since(0)));
    outcome.n_named_checked = context.n_named_checked;
    outcome.n_functions_checked = context.n_functions_checked;
    outcome.n_gave_way = context.n_gave_way;
    outcome.notes = context.notes;
    outcome.failures = context.failures;
    outcome.metric = context.metric;
    outcome.limit = context.limit;
    outcome.has_metric = context.has_metric;
    outcome.seconds = time.count();
    return outcome;
}

void print(const Outcome& outcome, bool quiet) {
    if (quiet && outcome.good()) return;
    const char* word = !outcome.good() ? "FAIL" : outcome.skipped.empty() ? "ok" : "skip";
    std::printf("%-4s %-60s %7.2f s", word, outcome.name.c_str(), outcome.seconds);
    if (outcome.has_metric) std::printf("  %.2e of %.0e", outcome.metric, outcome.limit);
    if (!outcome.skipped.empty()) std::printf("  %s", outcome.skipped.c_str());
    std::printf("\n");
    for (const std::string& note : outcome.notes) std::printf("       %s\n", note.c_str());
    size_t n = 0;
    for (const std::string& failure : outcome.failures)
        if (n++ < 12) std::printf("     ! %s\n", failure.c_str());
    if (n > 12) std::printf("     ! and %zu more\n", n - 12);
    std::fflush(stdout);
}

// Checks that were silently none would look like checks that passed.
void print_launch_checks(const Report& report) {
    int64_t n_named = 0, n_functions = 0, n_gave_way = 0;
    for (const Outcome& outcome : report.outcomes) {
        n_named += outcome.n_named_checked;
        n_functions += outcome.n_functions_checked;
        n_gave_way += outcome.n_gave_way;
    }
    if (!report.are_launches_recorded)
        return static_cast<void>(std::printf("launches: the library has no hook, none checked\n"));
    std::printf(
        "launches: %ld kernels that plans name, %ld functions; %ld where one could give way\n",
        static_cast<long>(n_named), static_cast<long>(n_functions), static_cast<long>(n_gave_way));
}

int run_cases(const Options& options, const CaseList& list) {
    Report report;
    report.extent = !options.filters.empty() ? "filtered" : options.smoke ? "smoke" : "full";
    report.commit = options.commit;
    const auto host = make_host_device();
    const auto device = options.is_cuda ? make_cuda_device() : make_host_device();
    device->kernels = report.kernels = options.kernels;
    if (options.child) return run_child(options.child, options.child_filter, *device, *host);
    report.names = device->names();
    report.are_launches_recorded = are_launches_recorded();
    size_t n_failed = 0, n_skipped = 0;
    double seconds = 0;
    for (const Case& one : list.cases) {
        if (!is_wanted(one, options)) continue;
        const Outcome& outcome = report.outcomes.emplace_back(run_case(one, *device, *host));
        print(outcome, options.quiet);
        n_failed += !outcome.good();
        n_skipped += !outcome.skipped.empty();
        seconds += outcome.seconds;
    }
    const size_t n = report.outcomes.size();
    print_launch_checks(report);
    std::printf("%zu cases: %zu passed, %zu failed, %zu skipped, %.1f s\n", n,
                n - n_failed - n_skipped, n_failed, n_skipped, seconds);
    if (options.report && !write_report(report, options.report)) {
        std::fprintf(stderr, "cannot write %s\n", options.report);
        return 2;
    }
    return n_failed || !n ? 1 : 0;
}

int run(int count, char** words) {
    Options options;
    if (!parse(count, words, options)) {
        std::fputs(usage, stderr);
        return 2;
    }
    const CaseList list = all_cases();
    if (!options.lists) return run_cases(options, list);
    for (const Case& one : list.cases)
        if (is_wanted(one, options)) std::printf("%s\n", one.name.c_str());
    return 0;
}

}  // namespace
}  // namespace moe_gpu

int main(int count, char** words) {
    try {
        return moe_gpu::run(count, words);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "moe-gpu-test: %s\n", error.what());
        return 2;
    }
}
