// bench.cpp - `moe bench`: the time of moe_forward of one layer, for a checkpoint's layer or for
// random weights of any sizes. On CUDA many calls follow each other on a stream before a wait for
// it; bench/ (./dev bench) measures more there, by the device's own clock.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "gaussian.hpp"
#include "measure.hpp"
#include "models.hpp"
#include "synthetic.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

using Json = nlohmann::ordered_json;

void check_usage(const BenchOptions& options) {
    const bool sized_by_hand =
        options.hidden && options.intermediate && options.experts && options.top_k;
    const bool any_size =
        options.hidden || options.intermediate || options.experts || options.top_k;
    if (options.checkpoint.empty()) {
        if (options.model.empty() && !sized_by_hand)
            throw UsageFailure(
                "bench needs a checkpoint with --layer, or --model, or all of --hidden, "
                "--intermediate, --experts and --top-k");
        if (options.layer >= 0)
            throw UsageFailure("--layer goes with a checkpoint: random weights are one layer");
        if (!options.read_as.is_empty())
            throw UsageFailure("--family and --set go with a checkpoint");
        if (options.reduced && options.model.empty())
            throw UsageFailure("--reduced goes with --model: it is that model's sizes");
    } else {
        if (options.layer < 0) throw UsageFailure("--layer is missing");
        if (any_size || !options.model.empty() || !options.format.empty() || options.reduced)
            throw UsageFailure("a checkpoint has its own sizes and formats");
    }
    if (options.tokens < 1 || options.tokens > 1'000'000)
        throw UsageFailure("--tokens must be 1 to 1000000");
    if (options.repeat < 1) throw UsageFailure("--repeat must be at least 1");
}

// A model of the table, or a plain layer, with the sizes that were given.
LayerSource synthetic_source(const BenchOptions& options) {
    Model model{};
    model.family = Family::Qwen3Moe;
    model.native_format = "bf16";
    if (!options.model.empty()) model = model_by_name(options.model);
    const std::string format = options.format.empty() ? model.native_format : options.format;
    if (options.reduced) model = reduced(model, format);
    if (options.hidden) model.hidden = options.hidden;
    if (options.intermediate) model.intermediate = options.intermediate;
    if (options.experts) model.n_experts = options.experts;
    if (options.top_k) model.top_k = options.top_k;
    return source_of(model, format);
}

// So many calls make the wait for a CUDA stream small beside them.
constexpr int32_t calls_of_cuda = 50;

struct Measured {
    CallResult result;
    Device device;
    Timing timing;
    std::vector<std::pair<std::string, std::string>> kernels;
    uint64_t touched = 0;

    double us(double seconds) const { return seconds * 1e6; }
    double best() const { return *std::min_element(result.seconds.begin(), result.seconds.end()); }
    double gb_per_s() const { return static_cast<double>(touched) / median(result.seconds) / 1e9; }
};

Measured measure(LayerCall& call, const BenchOptions& options, const moe_layer_desc& layer) {
    std::vector<float> x(static_cast<size_t>(options.tokens) * static_cast<size_t>(layer.hidden));
    fill_gaussian(stream_of(options.seed, "x", 0), 0, 0.0F, 1.0F, x);
    Measured measured;
    measured.device = device_of(call.plan());
    measured.timing = {options.repeat + 1, measured.device.is_cpu() ? 1 : calls_of_cuda};
    measured.result = call.forward(x, options.tokens, measured.timing);
    measured.result.seconds.erase(measured.result.seconds.begin());  // threads start, pages come
    measured.kernels = kernels_of(call.plan(), options.tokens);
    measured.touched = touched_bytes(memory_of(call.weights().get()), experts_hit(measured.result));
    return measured;
}

void print_json(const Measured& m, const BenchOptions& options, const LayerSource& source) {
    Json kernels = Json::object();
    for (const auto& [stage, kernel] : m.kernels) kernels[stage] = kernel;
    const Json json = {{"schema", "libmoe.command-bench.1"},
                       {"version", moe_version_string()},
                       {"device", device_kind_name(m.device.kind)},
                       {"hidden", source.desc.hidden},
                       {"intermediate", source.desc.intermediate},
                       {"n_experts", source.desc.n_experts},
                       {"top_k", source.desc.top_k},
                       {"format", format_name(source.formats[MOE_ROLE_UP])},
                       {"type", options.type},
                       {"n_tokens", options.tokens},
                       {"repeat", options.repeat},
                       {"calls_per_synchronize", m.timing.calls},
                       {"us", m.us(median(m.result.seconds))},
                       {"us_lowest", m.us(m.best())},
                       {"experts_hit", experts_hit(m.result)},
                       {"weight_bytes", m.touched},
                       {"gb_per_s", m.gb_per_s()},
                       {"kernels", kernels}};
    fmt::print("{}\n", json.dump(1));
}

std::string timing_words(const Measured& m, int32_t repeat) {
    if (m.device.is_cpu()) return fmt::format("of {} calls", repeat);
    return fmt::format("a call: {} times {} calls on a stream that is then synchronised", repeat,
                       m.timing.calls);
}

void print_text(const Measured& m, const BenchOptions& options, const LayerSource& source) {
    const moe_layer_desc& layer = source.desc;
    fmt::print("layer    {} x {}, {} experts, top-{}, {}; {} token{} in {}\n", layer.hidden,
               layer.intermediate, layer.n_experts, layer.top_k,
               format_name(source.formats[MOE_ROLE_UP]), options.tokens,
               options.tokens == 1 ? "" : "s", options.type);
    for (const auto& [stage, kernel] : m.kernels) fmt::print("{:<8} {}\n", stage, kernel);
    fmt::print("time     {:.2f} us, best {:.2f} us, {}\n", m.us(median(m.result.seconds)),
               m.us(m.best()), timing_words(m, options.repeat));
    fmt::print("touched  {} of {} experts, {}: {:.3g} GB/s\n", experts_hit(m.result),
               m.result.counts.size(), byte_words(m.touched), m.gb_per_s());
}

}  // namespace

int bench(const BenchOptions& options) {
    check_usage(options);
    PlanChoice choice;
    choice.device = device_kind_from(options.device);
    choice.x_type = activation_type_from(options.type);
    choice.kernel = options.kernel;
    choice.packed = options.packed;
    choice.max_tokens = options.tokens;
    const Runtime runtime = make_runtime(options.threads);
    Checkpoint checkpoint;
    if (!options.checkpoint.empty())
        checkpoint = open_checkpoint(runtime.get(), options.checkpoint, options.read_as);
    const LayerSource source = checkpoint
                                   ? source_of(checkpoint.get(), options.checkpoint, options.layer)
                                   : synthetic_source(options);
    Plan plan = make_plan(runtime.get(), source, choice);
    std::optional<SyntheticLayer> synthetic;
    std::shared_ptr<moe_weights> weights;
    if (checkpoint) {
        Progress progress("loading", false);
        weights = load_weights(plan.get(), checkpoint.get(), options.layer, true, progress);
    } else {
        weights = synthetic.emplace(source, options.seed).weights(plan.get(), options.packed);
    }
    LayerCall call(runtime.get(), std::move(plan), std::move(weights), source.desc, choice);
    const Measured measured = measure(call, options, source.desc);
    (options.json ? print_json : print_text)(measured, options, source);
    return 0;
}

}  // namespace moe::cli
