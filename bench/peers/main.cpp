// moe-bench-peers: libmoe and other ways to do the same, in one run: microseconds of calls from ids
// of small batches, beside the floor. First every peer of this program is checked against a sum in
// float64; what other programs measured is merged.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "bench/formats.hpp"
#include "bench/json_fields.hpp"
#include "bench/layer_run.hpp"
#include "bench/peers/ggml_cuda.hpp"
#include "bench/peers/peer_list.hpp"
#include "bench/peers/warp_decode.hpp"
#include "bench/report_heading.hpp"
#include "bench/routing.hpp"
#include "bench/weights.hpp"
#include "libmoe/base/half.hpp"

using namespace moe::bench;

namespace {

constexpr int n_calls = 24;
constexpr const char* model_names[] = {"qwen3-30b", "qwen3next", "mixtral"};
constexpr const char* formats[] = {"bf16", "nvfp4", "mxfp4", "kbit2", "kbit3", "kbit4", "q4_k"};
constexpr int64_t token_counts[] = {1, 2, 8, 16};
constexpr int64_t most_tokens = 16;
constexpr const char* format_of_warp_decode = "nvfp4";

// Beside ggml: its formats, and more tokens.
constexpr const char* ggml_models[] = {"qwen3-30b", "mixtral"};
constexpr const char* ggml_formats[] = {"q4_0",   "q4_1",   "q5_0",    "q5_1",     "q8_0",
                                        "q2_k",   "q3_k",   "q4_k",    "q5_k",     "q6_k",
                                        "iq4_nl", "iq4_xs", "iq2_xxs", "iq2_xs",   "iq3_xxs",
                                        "iq3_s",  "mxfp4",  "nvfp4",   "q4_k+q6_k"};
constexpr int64_t ggml_token_counts[] = {1, 2, 4, 8, 16, 32, 128, 512};

struct Options {
    std::string json;
    std::string commit = "unknown";
    std::vector<std::string> outside;
    std::string ggml;  // folder
};

// Weights of a whole layer as warp decode reads them, random, and what its calls need.
class Fp4Layer {
  public:
    Fp4Layer(int32_t hidden, int32_t intermediate, int32_t n_experts, int32_t top_k,
             int64_t n_tokens)
        : n_tokens_(n_tokens) {
        layer_.hidden = hidden;
        layer_.intermediate = intermediate;
        layer_.top_k = top_k;
        const int64_t n = int64_t{n_experts} * hidden * intermediate;
        layer_.gate = matrix(n);
        layer_.up = matrix(n);
        layer_.down = matrix(n);
        Router router(n_experts, top_k, 0.0, 17);
        ids_ = router.ids(n_calls * n_tokens);
        device_ids_ = DeviceBuffer::of(ids_);
        weights_ = take(n_tokens * top_k * 4);
        fill_f32(weights_, n_tokens * top_k, 1.0f, 3);
        layer_.weights = static_cast<float*>(weights_);
        void* x = take(n_tokens * hidden * 2);
        fill_bf16(x, n_tokens * hidden, 7);
        layer_.x = x;
        layer_.h = take(n_tokens * top_k * intermediate * 2);
        layer_.out = take(n_tokens * hidden * 2);
    }

    // Every call has other experts, so that the L2 does not hold them.
    void run(int call, cudaStream_t stream) const {
        WarpDecode layer = layer_;
        layer.ids = static_cast<int32_t*>(device_ids_.data()) + call * n_tokens_ * layer.top_k;
        run_warp_decode(layer, static_cast<int32_t>(n_tokens_), stream);
    }
    const WarpDecode& layer() const { return layer_; }
    const std::vector<int32_t>& ids() const { return ids_; }

  private:
    void* take(int64_t bytes) {
        buffers_.emplace_back(bytes);
        return buffers_.back().data();
    }
    // Scales between 2^-5 and 2^-4 keep h near one.
    Fp4Matrix matrix(int64_t n) {
        void* codes = take(n / 2);
        void* scales = take(n / 16);
        fill_random(codes, n / 2, static_cast<uint32_t>(buffers_.size()));
        check_cuda(cudaMemset(scales, 0x13, n / 16), "cudaMemset");
        return {static_cast<uint8_t*>(codes), static_cast<uint8_t*>(scales)};
    }

    WarpDecode layer_{};
    int64_t n_tokens_;
    std::vector<int32_t> ids_;
    DeviceBuffer device_ids_;
    void* weights_ = nullptr;
    std::vector<DeviceBuffer> buffers_;
};

template <class T>
std::vector<T> fetch(const void* from, int64_t n) {
    std::vector<T> values(static_cast<size_t>(n));
    check_cuda(cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return values;
}

class HostMatrix {
  public:
    HostMatrix(const Fp4Matrix& matrix, int64_t n)
        : codes_(fetch<uint8_t>(matrix.codes, n / 2)),
          scales_(fetch<uint8_t>(matrix.scales, n / 16)) {}
    double at(int64_t i) const {
        constexpr double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const int code = codes_[static_cast<size_t>(i / 2)] >> 4 * (i % 2) & 15;
        const int scale = scales_[static_cast<size_t>(i / 16)];  // a normal number
        return (code & 8 ? -1 : 1) * values[code & 7] *
               std::ldexp(8 + (scale & 7), (scale >> 3) - 10);
    }

  private:
    std::vector<uint8_t> codes_, scales_;
};

double bf16(uint16_t bits) {
    return moe::bf16_to_float(bits);
}

// Relative L2 error of one small call.
double error_of_warp_decode() {
    constexpr int32_t H = 96, I = 48, E = 5, k = 3;
    const Fp4Layer test(H, I, E, k, 2);
    const WarpDecode& layer = test.layer();
    test.run(0, nullptr);
    check_cuda(cudaDeviceSynchronize(), "warp decode");
    const HostMatrix gate(layer.gate, E * H * I), up(layer.up, E * H * I),
        down(layer.down, E * H * I);
    const auto x = fetch<uint16_t>(layer.x, 2 * H), out = fetch<uint16_t>(layer.out, 2 * H);
    const auto weights = fetch<float>(layer.weights, 2 * k);
    double wrong = 0, size = 0;
    for (int32_t t = 0; t < 2; ++t) {
        std::vector<double> sum(H);
        for (int32_t j = 0; j < k; ++j) {
            const int64_t slot = t * k + j, expert = test.ids()[static_cast<size_t>(slot)];
            for (int32_t n = 0; n < I; ++n) {
                double g = 0, u = 0;
                for (int32_t i = 0; i < H; ++i) {
                    const double value = bf16(x[static_cast<size_t>(t * H + i)]);
                    g += gate.at((expert * I + n) * H + i) * value;
                    u += up.at((expert * I + n) * H + i) * value;
                }
                const double h = g / (1 + std::exp(-g)) * u * weights[static_cast<size_t>(slot)];
                for (int32_t i = 0; i < H; ++i)
                    sum[static_cast<size_t>(i)] += down.at((expert * H + i) * I + n) * h;
            }
        }
        for (int32_t i = 0; i < H; ++i) {
            const double want = sum[static_cast<size_t>(i)];
            const double off = bf16(out[static_cast<size_t>(t * H + i)]) - want;
            wrong += off * off;
            size += want * want;
        }
    }
    return std::sqrt(wrong / size);
}

PeerResult result_of(const char* peer, const Case& what, double us, double floor_us,
                     const char* note) {
    std::printf("%-32s %-12s %10.2f us, floor %10.2f us, ratio %6.2f\n", what.name().c_str(), peer,
                us, floor_us, us / floor_us);
    std::fflush(stdout);
    return {peer,    moe_version_string(), what.model->name, what.format, what.n_tokens, us, note,
            floor_us};
}

double us_of_warp_decode(const Case& what) {
    const Model& model = *what.model;
    const Fp4Layer peer(model.hidden, model.intermediate, model.n_experts, model.top_k,
                        what.n_tokens);
    const Sampling sampling = sampling_for(what.n_tokens);
    return time_calls([&](int i, cudaStream_t stream) { peer.run(i, stream); }, n_calls,
                      sampling.n_replays, sampling.settle_us)
        .median_us;
}

// One plan for all token counts. What fails is told and left out.
void measure(const Model& model, const std::string& format, const Limits& limits,
             std::vector<PeerResult>& results, std::vector<std::string>& failures) {
    Case what{&model, format, Mode::ids, most_tokens, 0.0};
    try {
        LayerRun layer(what, most_tokens);
        for (const int64_t n_tokens : token_counts) {
            what.n_tokens = n_tokens;
            const Result ours = layer.run(what, limits);
            results.push_back(result_of("libmoe", what, ours.time.median_us, ours.floor_us,
                                        "dispatch, experts, combine"));
            if (format != format_of_warp_decode) continue;
            results.push_back(result_of("warp decode", what, us_of_warp_decode(what), ours.floor_us,
                                        "our kernels after its description, from ids to the sum"));
        }
    } catch (const std::exception& error) {
        failures.push_back(what.name() + ": " + error.what());
        std::printf("%s\n", failures.back().c_str());
    }
}

// The same tokens and formats by both, one after the other.
void measure_beside_ggml(const ggml::Library& library, const Model& model,
                         const std::string& format, const Limits& limits,
                         std::vector<PeerResult>& results, std::vector<std::string>& failures) {
    const int64_t most =
        *std::max_element(std::begin(ggml_token_counts), std::end(ggml_token_counts));
    Case what{&model, format, Mode::ids, most, 0.0};
    try {
        const ExpertWeights weights(model, ggml_format(format), false, 1);
        const GgmlCudaLayer theirs(library, weights);
        LayerRun layer(what, most);
        for (const int64_t n_tokens : ggml_token_counts) {
            what.n_tokens = n_tokens;
            const Result ours = layer.run(what, limits);
            results.push_back(result_of("libmoe", what, ours.time.median_us, ours.floor_us,
                                        "dispatch, experts, combine"));
            const int n = n_tokens <= 32 ? n_calls : n_calls / 3;
            Router router(model.n_experts, model.top_k, 0.0, 17);
            PeerResult other = result_of(
                "ggml CUDA", what, theirs.us(n_tokens, router.ids(n * n_tokens), n), ours.floor_us,
                "as llama.cpp builds it: mul_mat_id of gate and up, swiglu, mul_mat_id of down, "
                "weighted sum; x quantised to 8 bits by ggml");
            other.version = library.version();
            results.push_back(other);
        }
    } catch (const std::exception& error) {
        failures.push_back(what.name() + ": " + error.what());
        std::printf("%s\n", failures.back().c_str());
    }
}

void write_peers(const Options& options, const Limits& limits,
                 const std::vector<PeerResult>& results, const std::vector<std::string>& failures) {
    nlohmann::ordered_json json = heading_json("libmoe.peers.1", options.commit, limits);
    json["results"] = nlohmann::ordered_json::array();
    for (const PeerResult& one : results)
        json["results"].push_back({{"peer", one.peer},
                                   {"version", one.version},
                                   {"model", one.model},
                                   {"format", one.format},
                                   {"n_tokens", one.n_tokens},
                                   {"us", one.us},
                                   {"floor_us", one.floor_us},
                                   {"note", one.note}});
    json["failures"] = failures;
    std::ofstream file(options.json);
    if (!(file << json.dump(1) << '\n')) throw std::runtime_error(options.json + ": not written");
}

int run_beside_ggml(const Options& options) {
    const ggml::Library library(options.ggml, ggml::DeviceKind::gpu);
    const Limits limits{measure_reads(), measure_dense_tflops()};
    std::vector<PeerResult> results;
    std::vector<std::string> failures;
    for (const char* name : ggml_models)
        for (const char* format : ggml_formats)
            if (const Model& model = *find_model(name); fits(model, format))
                measure_beside_ggml(library, model, format, limits, results, failures);
    if (!options.json.empty()) write_peers(options, limits, results, failures);
    return failures.empty() ? 0 : 1;
}

// Files of others are read first, so that a wrong one costs no time on the device.
int run(const Options& options) {
    std::vector<PeerResult> others;
    for (const std::string& path : options.outside)
        for (PeerResult& one : parse_peers(text_of_file(path))) others.push_back(std::move(one));
    if (!options.ggml.empty()) return run_beside_ggml(options);
    const double error = error_of_warp_decode();
    std::printf("warp decode: relative error %.1e of a small layer\n", error);
    if (!(error < 1e-2)) return 1;
    const Limits limits{measure_reads(), measure_dense_tflops()};
    std::vector<PeerResult> results;
    std::vector<std::string> failures;
    for (const char* name : model_names)
        for (const char* format : formats)
            if (const Model& model = *find_model(name); fits(model, format))
                measure(model, format, limits, results, failures);
    for (const PeerResult& one : others) {
        try {
            merge_peers(results, {one});
        } catch (const std::exception& problem) {
            failures.push_back(problem.what());
            std::printf("%s\n", failures.back().c_str());
        }
    }
    if (!options.json.empty()) write_peers(options, limits, results, failures);
    return failures.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures MoE layers of small batches by libmoe and by others");
    app.add_option("--json", options.json, "file for the results (bench/peers.schema.json)");
    app.add_option("--commit", options.commit, "written into the results");
    app.add_option(
        "--ggml", options.ggml,
        "instead: beside ggml's CUDA backend, whose shared libraries are in this folder");
    app.add_option("--outside", options.outside, "results of other programs (bench/README.md)");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "moe-bench-peers: %s\n", error.what());
        return 1;
    }
}
