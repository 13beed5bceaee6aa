// The report of a run: what was tested, on what, with which result, as JSON for the repository.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "device.hpp"

namespace moe_gpu {

struct Outcome {
    std::string name;
    std::set<std::string> kernels;   // that moe_plan_kernel named
    std::set<std::string> launched;  // that ran; none where the library has no launch hook
    std::set<std::string> notes;
    std::vector<std::string> failures;
    double metric = 0, limit = 0, seconds = 0;
    bool has_metric = false;
    int64_t n_named_checked = 0, n_functions_checked = 0, n_gave_way = 0;
    std::string skipped;  // the reason, "" when it ran
    bool good() const { return failures.empty(); }
};

struct Report {
    std::string extent, commit;
    std::string kernels;  // that plans of cases without a filter of their own may have; "": all
    DeviceNames names;
    bool are_launches_recorded = false;
    std::vector<Outcome> outcomes;
};

// False when the file cannot be written.
bool write_report(const Report& report, const std::string& path);

}  // namespace moe_gpu
