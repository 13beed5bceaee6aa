// The report of a run: what was tested, on what, with which result, as JSON for the repository.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "device.hpp"

namespace moe_gpu {

struct Outcome {
    std::string name;
    std::set<std::string> kernels, notes;
    std::vector<std::string> failures;
    double metric = 0, limit = 0, seconds = 0;
    bool has_metric = false;
    std::string skipped;  // the reason, "" when it ran
    bool good() const { return failures.empty(); }
};

struct Report {
    std::string extent, commit;
    DeviceNames names;
    std::vector<Outcome> outcomes;
};

// False when the file cannot be written.
bool write_report(const Report& report, const std::string& path);

}  // namespace moe_gpu
