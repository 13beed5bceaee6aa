// Writes results as a table and as JSON (bench/results.schema.json).
#pragma once

#include <string>

#include "bench/layer_run.hpp"

namespace moe::bench {

void print_heading();
void print_row(const Result& result);
void write_json(const std::string& path, const std::string& commit, const Limits& limits,
                const std::vector<Result>& results, const std::vector<std::string>& failures);

}  // namespace moe::bench
