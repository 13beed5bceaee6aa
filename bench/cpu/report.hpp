// Prints one line per case and writes one JSON object per run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/cpu/machine.hpp"
#include "bench/cpu/measure.hpp"

namespace moe::bench {

struct CpuReport {
    std::string commit;
    Machine machine;
    std::vector<std::pair<int32_t, double>> read_rates;  // threads, bytes per second
    CaseWeights::Peers peers;
    std::vector<CpuResult> results;
    std::vector<std::string> failures;
};

// A row has columns for every peer of the report.
void print_heading(const CpuReport& report);
void print_row(const CpuReport& report, const CpuResult& result);
// In the form of bench/cpu.schema.json.
void write_json(const std::string& path, const CpuReport& report);

}  // namespace moe::bench
