#include "bench/cpu/measure.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "bench/cpu/calls.hpp"

namespace moe::bench {
namespace {

// Errors of eight-bit activations are 0.4 to 2 percent; another layer has 100 and more.
constexpr double largest_error = 0.04;
constexpr double short_seconds = 0.02;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> all;
    for (size_t i = 0; i < a.size(); ++i) all.push_back(a[i] / b[i]);
    return all;
}

double relative_error(const std::vector<float>& value, const std::vector<float>& wanted) {
    double error = 0, size = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const double difference = static_cast<double>(value[i]) - wanted[i];
        error += difference * difference;
        size += static_cast<double>(wanted[i]) * wanted[i];
    }
    return std::sqrt(error / size);
}

using Forward = std::function<double(size_t, const std::vector<int32_t>&)>;

// A short call follows one on other weights, as in a model, where the same threads have just
// computed: else it would be the time in which they wake.
double timed_call(const Forward& forward, const ExpertWeights& weights, Calls& calls,
                  Samples& samples, bool is_counted) {
    if (samples.seconds.empty() || samples.seconds.back() < short_seconds) {
        const Call before = calls.next();
        forward(before.set, before.ids);
    }
    const Call call = calls.next();
    const double seconds = forward(call.set, call.ids);
    if (is_counted) samples.add(seconds, size_of(ranges_of(weights, call)));
    return seconds;
}

// A peer that has computed what libmoe computes with the same weights and ids.
struct Running {
    std::unique_ptr<PeerLayer> layer;
    PeerTimes result;
};

Running start_peer(const CpuCase& one, const CaseWeights::OfPeer& peer, const Call& call,
                   const std::vector<float>& wanted) {
    Running running{
        peer.weights->layer(make_x(one.model, one.n_tokens), one.n_tokens, one.n_threads),
        {peer.name, peer.format, peer.weights->buffer(), 0, {}}};
    running.layer->forward(call.set, call.ids);
    running.layer->rest();
    const double error = relative_error(running.layer->out(), wanted);
    if (!(error <= largest_error))
        throw std::runtime_error("computes another layer: relative L2 " + std::to_string(error));
    running.result.error = error;
    return running;
}

}  // namespace

void Samples::add(double one_seconds, double one_bytes) {
    seconds.push_back(one_seconds);
    bytes.push_back(one_bytes);
}

double Samples::median_us() const {
    return median(seconds) * 1e6;
}

double Samples::best_us() const {
    return *std::min_element(seconds.begin(), seconds.end()) * 1e6;
}

std::vector<double> Samples::rates() const {
    return ratios(bytes, seconds);
}

double Samples::median_rate() const {
    return median(rates());
}

double Samples::best_rate() const {
    const std::vector<double> all = rates();
    return *std::max_element(all.begin(), all.end());
}

double CpuResult::over(const Samples& other) const {
    return median(ratios(calls.rates(), other.rates()));
}

double CpuResult::best_over(const Samples& other) const {
    return calls.best_rate() / other.best_rate();
}

const PeerTimes* CpuResult::peer(const std::string& name) const {
    const auto found = std::find_if(peers.begin(), peers.end(),
                                    [&](const PeerTimes& one) { return one.name == name; });
    return found == peers.end() ? nullptr : &*found;
}

CaseWeights::CaseWeights(const CpuCase& one, bool has_small_pages, const Peers& peers)
    : ours_(one.model, one.format, has_small_pages) {
    for (const auto& peer : peers) {
        const std::string format = peer->format(one.format);
        if (format.empty()) continue;
        peers_.push_back({peer->name(), format, peer->weights(in_format(format, has_small_pages))});
    }
}

const ExpertWeights& CaseWeights::in_format(const std::string& format, bool has_small_pages) {
    if (format == ours_.format()) return ours_;
    for (const auto& other : others_)
        if (format == other->format()) return *other;
    others_.push_back(std::make_unique<ExpertWeights>(ours_.model(), format, has_small_pages));
    return *others_.back();
}

bool CaseWeights::holds(const CpuCase& one) const {
    return one.model.name == ours_.model().name && one.format == ours_.format() &&
           one.model.n_experts == ours_.model().n_experts;
}

CpuResult measure(const CpuCase& one, const CaseWeights& weights, double seconds) {
    constexpr size_t fewest = 3, usual = 7;
    const ExpertWeights& ours = weights.ours();
    CpuLayer layer(one, ours);
    CpuResult result{};
    result.what = one;
    result.kernel = layer.kernel();
    result.n_sets = ours.n_sets();
    result.flops = 6.0 * static_cast<double>(one.n_tokens) * one.model.top_k * one.model.hidden *
                   one.model.intermediate;
    Calls calls(ours, one.n_tokens);
    Readers readers(one.n_threads);
    std::vector<Running> peers;
    if (!weights.peers().empty()) {
        const Call call = calls.next();
        layer.forward(call.set, call.ids);
        const std::vector<float> wanted = layer.out();
        for (const auto& peer : weights.peers()) {
            try {
                peers.push_back(start_peer(one, peer, call, wanted));
            } catch (const std::exception& error) {
                result.failures.push_back(peer.name + ": " + error.what());
            }
        }
    }
    const Forward forward = [&](size_t set, const std::vector<int32_t>& ids) {
        return layer.forward(set, ids);
    };
    double spent = 0;
    const auto is_done = [&] {
        const size_t n = result.calls.seconds.size();
        return spent >= seconds && (n >= usual || (n >= fewest && spent / n > seconds));
    };
    // The comparison with the peers was a first round.
    for (bool is_counted = !peers.empty(); !is_done(); is_counted = true) {
        double round = timed_call(forward, ours, calls, result.calls, is_counted);
        for (Running& peer : peers) {
            const Forward peers_forward = [&](size_t set, const std::vector<int32_t>& ids) {
                return peer.layer->forward(set, ids);
            };
            round += timed_call(peers_forward, ours, calls, peer.result.calls, is_counted);
            peer.layer->rest();
        }
        const auto ranges = ranges_of(ours, calls.next());
        const double read_seconds = readers.read(ranges);
        round += read_seconds;
        if (!is_counted) continue;
        result.reads.add(read_seconds, size_of(ranges));
        spent += round;
    }
    for (Running& peer : peers) result.peers.push_back(std::move(peer.result));
    return result;
}

double read_rate(int32_t n_threads) {
    constexpr size_t bytes = size_t{1} << 30;
    constexpr int n_reads = 7;
    const PageBuffer memory(bytes, false);
    std::fill_n(memory.data(), bytes, static_cast<unsigned char>(1));
    Readers readers(n_threads);
    double best = 0;
    for (int i = 0; i < n_reads; ++i)
        best = std::max(best, static_cast<double>(bytes) / readers.read({{memory.data(), bytes}}));
    return best;
}

}  // namespace moe::bench
