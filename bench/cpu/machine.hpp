// A result names the machine that gave it by these facts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moe::bench {

struct Machine {
    std::string cpu;               // its model name
    std::vector<std::string> isa;  // the extensions that kernels ask about, by Linux' names
    int32_t n_processors;          // on which this process may run
    int32_t n_cores;
    int64_t l2_bytes, l3_bytes;  // of one cache; 0 where unknown
    int64_t memory_bytes;
    std::string huge_pages;  // always, madvise or never
    double load;             // the load average of a minute, at the begin
};

// Reads /proc and /sys of Linux; what is not there is empty or 0.
Machine read_machine();
nlohmann::ordered_json machine_json(const Machine& machine);

}  // namespace moe::bench
