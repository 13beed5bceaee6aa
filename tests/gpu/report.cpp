// Writes the report. Reports are read by check_report.py.
#include "report.hpp"

#include <cmath>
#include <cstdio>
#include <ctime>

#include "handles.hpp"
#include "kernel_hashes.hpp"

namespace moe_gpu {
namespace {

std::string quoted(const std::string& value) {
    std::string result = "\"";
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            result += '\\', result += c;
        else if (byte < 0x20)
            result += text("\\u%04x", byte);
        else
            result += c;
    }
    return result + '"';
}

template <class List>
std::string listed(const List& values) {
    std::string result = "[";
    for (const std::string& value : values)
        result += (result.size() > 1 ? ", " : "") + quoted(value);
    return result + "]";
}

// JSON has no infinity.
std::string number(double value) {
    return std::isfinite(value) ? text("%.4g", value) : "null";
}

std::string today() {
    const std::time_t now = std::time(nullptr);
    char buffer[32];
    std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return buffer;
}

std::string launches_of(const Outcome& outcome) {
    std::string line = ", \"launched\": " + listed(outcome.launched);
    const std::pair<const char*, int64_t> counts[] = {
        {"named_checked", outcome.n_named_checked},
        {"functions_checked", outcome.n_functions_checked},
        {"gave_way", outcome.n_gave_way}};
    for (const auto& [key, n] : counts)
        if (n) line += text(", \"%s\": %ld", key, static_cast<long>(n));
    return line;
}

std::string line_of(const Outcome& outcome) {
    std::string line = "    {\"name\": " + quoted(outcome.name);
    line += ", \"ok\": " + std::string(outcome.good() ? "true" : "false");
    if (outcome.has_metric)
        line += ", \"metric\": " + number(outcome.metric) + ", \"limit\": " + number(outcome.limit);
    line += ", \"seconds\": " + text("%.3f", outcome.seconds);
    line += ", \"kernels\": " + listed(outcome.kernels);
    line += launches_of(outcome);
    if (!outcome.skipped.empty()) line += ", \"skipped\": " + quoted(outcome.skipped);
    if (!outcome.notes.empty()) line += ", \"notes\": " + listed(outcome.notes);
    if (!outcome.failures.empty()) line += ", \"failures\": " + listed(outcome.failures);
    return line + "}";
}

}  // namespace

bool write_report(const Report& report, const std::string& path) {
    std::string json = "{\n  \"schema\": \"libmoe.gpu-report.1\",\n";
    const std::pair<const char*, std::string> facts[] = {
        {"extent", report.extent},         {"device", report.names.device},
        {"driver", report.names.driver},   {"cuda", report.names.runtime},
        {"commit", report.commit},         {"date", today()},
        {"library", moe_version_string()}, {"kernel_filter", report.kernels},
    };
    for (const auto& [key, value] : facts)
        json += "  \"" + std::string(key) + "\": " + quoted(value) + ",\n";
    json += std::string("  \"launches_recorded\": ") +
            (report.are_launches_recorded ? "true" : "false") + ",\n";
    json += "  \"sources\": {";
    const char* separator = "\n";
    for (const KernelSource& source : kernel_sources) {
        if (!source.path) continue;
        json += separator + ("    " + quoted(source.path)) + ": " + quoted(source.hash);
        separator = ",\n";
    }
    json += "\n  },\n  \"cases\": [";
    separator = "\n";
    for (const Outcome& outcome : report.outcomes) {
        json += separator + line_of(outcome);
        separator = ",\n";
    }
    json += "\n  ]\n}\n";
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) return false;
    const bool good = std::fwrite(json.data(), 1, json.size(), file) == json.size();
    return std::fclose(file) == 0 && good;
}

}  // namespace moe_gpu
