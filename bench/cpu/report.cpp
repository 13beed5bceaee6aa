#include "bench/cpu/report.hpp"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <numeric>
#include <stdexcept>

namespace moe::bench {
namespace {

using Json = nlohmann::ordered_json;

// Below so many tokens the arithmetic of a call is no measure of it.
constexpr int64_t first_with_gflops = 64;

Json shape_json(const Model& model) {
    return {{"hidden", model.hidden},
            {"intermediate", model.intermediate},
            {"n_experts", model.n_experts},
            {"top_k", model.top_k}};
}

Json peer_json(const CpuResult& r) {
    if (!r.has_peer) return nullptr;
    return {{"format", r.peer_format},
            {"buffer", r.peer_buffer},
            {"us", r.peer.median_us()},
            {"us_best", r.peer.best_us()},
            {"gb_per_s", r.peer.median_rate() / 1e9},
            {"gb_per_s_best", r.peer.best_rate() / 1e9},
            {"ratio", r.over_peer()},
            {"ratio_best", r.best_over_peer()},
            {"error", r.peer_error}};
}

Json result_json(const CpuResult& r) {
    const CpuCase& one = r.what;
    const std::vector<double>& bytes = r.calls.bytes;
    return {{"case", one.name()},
            {"model", one.model.name},
            {"shape", shape_json(one.model)},
            {"format", one.format},
            {"x_type", type_name(one.x_type)},
            {"n_tokens", one.n_tokens},
            {"n_threads", one.n_threads},
            {"int8", one.is_int8},
            {"packed", one.is_packed},
            {"kernels", one.kernels},
            {"kernel", r.kernel},
            {"n_sets", r.n_sets},
            {"n_calls", bytes.size()},
            {"weight_bytes",
             std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size())},
            {"us", r.calls.median_us()},
            {"us_best", r.calls.best_us()},
            {"gb_per_s", r.calls.median_rate() / 1e9},
            {"gb_per_s_best", r.calls.best_rate() / 1e9},
            {"read_gb_per_s", r.reads.median_rate() / 1e9},
            {"read_gb_per_s_best", r.reads.best_rate() / 1e9},
            {"ratio", r.over_reads()},
            {"ratio_best", r.best_over_reads()},
            {"flops", r.flops},
            {"gflops", r.gflops()},
            {"gflops_best", r.best_gflops()},
            {"peer", peer_json(r)}};
}

}  // namespace

void print_heading() {
    std::printf("%-42s %16s %16s %13s %13s %7s  %s\n", "", "GB/s of weights", "read, GB/s",
                "call / read", "libmoe / ggml", "GFLOP/s", "");
    std::printf("%-42s %8s %7s %8s %7s %6s %6s %6s %6s %7s  %s\n", "case", "median", "best",
                "median", "best", "median", "best", "median", "best", "best",
                "kernel; ggml's buffer, error");
}

void print_row(const CpuResult& r) {
    std::printf("%-42s %8.1f %7.1f %8.1f %7.1f %6.2f %6.2f ", r.what.name().c_str(),
                r.calls.median_rate() / 1e9, r.calls.best_rate() / 1e9, r.reads.median_rate() / 1e9,
                r.reads.best_rate() / 1e9, r.over_reads(), r.best_over_reads());
    if (r.has_peer)
        std::printf("%6.2f %6.2f ", r.over_peer(), r.best_over_peer());
    else
        std::printf("%6s %6s ", "-", "-");
    if (r.what.n_tokens >= first_with_gflops)
        std::printf("%7.0f  ", r.best_gflops());
    else
        std::printf("%7s  ", "-");
    std::printf("%s", r.kernel.c_str());
    if (r.has_peer) std::printf("; %s, %.1e", r.peer_buffer.c_str(), r.peer_error);
    std::printf("\n");
    std::fflush(stdout);
}

void write_json(const std::string& path, const CpuReport& report) {
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    Json rates = Json::array(), results = Json::array();
    for (const auto& [n_threads, rate] : report.read_rates)
        rates.push_back({{"n_threads", n_threads}, {"gb_per_s", rate / 1e9}});
    for (const CpuResult& result : report.results) results.push_back(result_json(result));
    Json peer;
    if (report.peer)
        peer = {{"name", "ggml"},
                {"version", report.peer->version()},
                {"variant", report.peer->variant()}};
    const Json json{{"schema", "libmoe.bench-cpu.2"},
                    {"commit", report.commit},
                    {"date", date},
                    {"version", moe_version_string()},
                    {"machine", machine_json(report.machine)},
                    {"read_rates", rates},
                    {"peer", peer},
                    {"results", results},
                    {"failures", report.failures}};
    if (!(std::ofstream(path) << json.dump(1) << '\n'))
        throw std::runtime_error(path + ": cannot be written");
}

}  // namespace moe::bench
