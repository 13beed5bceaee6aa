// Cases: a name and what it does. Each file of cases adds its own to the list.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "device.hpp"
#include "handles.hpp"

namespace moe_gpu {

// What a case says about itself while it runs.
class Context {
  public:
    Context(Device& device_under_test, Device& host_device, moe_runtime* with, std::string name)
        : device(device_under_test), host(host_device), runtime(with), case_name(std::move(name)) {}

    Device& device;
    Device& host;
    moe_runtime* runtime;
    const std::string case_name;

    std::set<std::string> kernels;
    std::set<std::string> notes;
    std::set<std::string> launched_elsewhere;  // by processes that the case started
    std::vector<std::string> failures;
    // The value nearest to its limit.
    double metric = 0, limit = 0;
    bool has_metric = false;
    // Checks that a kernel that the plan names was launched, that a launched function is what its
    // name says, and that any kernel of the plan's choice was, where the named one may give way.
    int64_t n_named_checked = 0, n_functions_checked = 0, n_gave_way = 0;

    // An error against its limit. NaN fails.
    void measure(const std::string& what, double value, double allowed);
    void expect(bool good, const std::string& what);
};

enum class Extent { smoke, full, large };  // large: full, and minutes on a small machine

struct Case {
    std::string name;
    Extent extent;
    std::function<void(Context&)> run;
};

class CaseList {
  public:
    void add(std::string name, Extent extent, std::function<void(Context&)> run) {
        cases.push_back({std::move(name), extent, std::move(run)});
    }
    std::vector<Case> cases;
};

void add_router_cases(CaseList& list);
void add_choice_cases(CaseList& list);
void add_dispatch_cases(CaseList& list);
void add_triton_cases(CaseList& list);
void add_format_cases(CaseList& list);
void add_column_cases(CaseList& list);
void add_skew_cases(CaseList& list);
void add_fp8_cases(CaseList& list);
void add_fp8_expert_cases(CaseList& list);
void add_layer_cases(CaseList& list);
void add_call_cases(CaseList& list);
void add_stage_cases(CaseList& list);
void add_slice_cases(CaseList& list);
void add_graph_cases(CaseList& list);
void add_process_cases(CaseList& list);
void add_error_cases(CaseList& list);
void add_weight_cases(CaseList& list);
void add_memory_cases(CaseList& list);
void add_large_cases(CaseList& list);
void add_launch_cases(CaseList& list);
void add_random_cases(CaseList& list);

// Runs a case in a process of its own, by name; 0 is good. Cases start it with run_in_child, and
// get the kernels that it ran. filter is the kernel_filter of its plans.
int run_child(const std::string& name, const std::string& filter, Device& device, Device& host);
void run_in_child(Context& context, const std::string& name, const std::string& filter = "");

}  // namespace moe_gpu
