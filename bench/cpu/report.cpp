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

Json peer_json(const CpuResult& r, const PeerTimes& peer) {
    return {{"name", peer.name},
            {"format", peer.format},
            {"buffer", peer.buffer},
            {"us", peer.calls.median_us()},
            {"us_best", peer.calls.best_us()},
            {"gb_per_s", peer.calls.median_rate() / 1e9},
            {"gb_per_s_best", peer.calls.best_rate() / 1e9},
            {"ratio", r.over(peer.calls)},
            {"ratio_best", r.best_over(peer.calls)},
            {"error", peer.error}};
}

Json peers_json(const CpuResult& r) {
    Json all = Json::array();
    for (const PeerTimes& peer : r.peers) all.push_back(peer_json(r, peer));
    return all;
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
            {"peers", peers_json(r)}};
}

}  // namespace

void print_heading(const CpuReport& report) {
    std::printf("%-42s %16s %16s %13s ", "", "GB/s of weights", "read, GB/s", "call / read");
    for (const auto& peer : report.peers) std::printf("%13s ", ("/ " + peer->name()).c_str());
    std::printf("%7s\n%-42s %8s %7s %8s %7s %6s %6s ", "GFLOP/s", "case", "median", "best",
                "median", "best", "median", "best");
    for (size_t i = 0; i < report.peers.size(); ++i) std::printf("%6s %6s ", "median", "best");
    std::printf("%7s  kernel%s\n", "best", report.peers.empty() ? "" : "; peers: buffer, error");
}

void print_row(const CpuReport& report, const CpuResult& r) {
    std::printf("%-42s %8.1f %7.1f %8.1f %7.1f %6.2f %6.2f ", r.what.name().c_str(),
                r.calls.median_rate() / 1e9, r.calls.best_rate() / 1e9, r.reads.median_rate() / 1e9,
                r.reads.best_rate() / 1e9, r.over_reads(), r.best_over_reads());
    for (const auto& one : report.peers) {
        if (const PeerTimes* peer = r.peer(one->name()))
            std::printf("%6.2f %6.2f ", r.over(peer->calls), r.best_over(peer->calls));
        else
            std::printf("%6s %6s ", "-", "-");
    }
    if (r.what.n_tokens >= first_with_gflops)
        std::printf("%7.0f  ", r.best_gflops());
    else
        std::printf("%7s  ", "-");
    std::printf("%s", r.kernel.c_str());
    for (const PeerTimes& peer : r.peers)
        std::printf("; %s: %s, %.1e", peer.name.c_str(), peer.buffer.c_str(), peer.error);
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
    Json peers = Json::array();
    for (const auto& peer : report.peers)
        peers.push_back(
            {{"name", peer->name()}, {"version", peer->version()}, {"variant", peer->variant()}});
    const Json json{{"schema", "libmoe.bench-cpu.3"},
                    {"commit", report.commit},
                    {"date", date},
                    {"version", moe_version_string()},
                    {"machine", machine_json(report.machine)},
                    {"read_rates", rates},
                    {"peers", peers},
                    {"results", results},
                    {"failures", report.failures}};
    if (!(std::ofstream(path) << json.dump(1) << '\n'))
        throw std::runtime_error(path + ": cannot be written");
}

}  // namespace moe::bench
