// run.cpp - `moe run`: one layer of a checkpoint on random or given tokens, timed, and checked
// against the library's fp64 reference when asked.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "gaussian.hpp"
#include "layer_call.hpp"
#include "measure.hpp"
#include "npy.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

struct Tokens {
    int64_t count = 0;
    std::vector<float> x;
};

Tokens tokens_asked_for(const RunOptions& options, int32_t hidden) {
    if (options.input.empty()) {
        Tokens tokens{options.tokens, {}};
        tokens.x.resize(static_cast<size_t>(options.tokens) * static_cast<size_t>(hidden));
        fill_gaussian(stream_of(options.seed, "x", 0), 0, 0.0F, 1.0F, tokens.x);
        return tokens;
    }
    FloatArray array = read_npy(options.input);
    if (array.columns != hidden) {
        throw Failure(fmt::format("{}: shape ({}, {}), but the layer's hidden size is {}",
                                  options.input, array.rows, array.columns, hidden));
    }
    return {array.rows, std::move(array.values)};
}

void check_usage(const RunOptions& options) {
    if (options.tokens < 1 || options.tokens > 1'000'000) {
        throw UsageFailure("--tokens must be 1 to 1000000");
    }
    if (options.repeat < 1) throw UsageFailure("--repeat must be at least 1");
    if (options.io != "mmap" && options.io != "read")
        throw UsageFailure("--io must be mmap or read");
}

void print_device(const moe_plan* plan) {
    moe_device_kind kind = MOE_DEVICE_AUTO;
    int32_t index = 0;
    const char* reason = nullptr;
    check(moe_plan_device(plan, &kind, &index, &reason));
    fmt::print("device   {} {}{}\n", device_kind_name(kind), index,
               reason && *reason ? fmt::format(" ({})", reason) : "");
}

void print_kernels(const moe_plan* plan, int64_t n_tokens) {
    std::string words;
    for (const auto& [stage, kernel] : kernels_of(plan, n_tokens))
        words += fmt::format("{}{} {}", words.empty() ? "" : ", ", stage, kernel);
    fmt::print("kernels  {}\n", words);
}

moe_memory_report print_weights(const moe_weights* weights, double seconds) {
    const moe_memory_report report = memory_of(weights);
    const bool borrowed = report.borrowed_bytes > 0;
    fmt::print(
        "weights  {} {}, loaded in {}\n",
        byte_words(borrowed ? report.borrowed_bytes : report.host_bytes + report.device_bytes),
        borrowed ? "read in place" : "copied", time_words(seconds));
    return report;
}

void print_timing(const CallResult& result, const moe_memory_report& report, int64_t n_tokens) {
    const double best = *std::min_element(result.seconds.begin(), result.seconds.end());
    const int64_t n_hit = experts_hit(result);
    const uint64_t touched = touched_bytes(report, n_hit);
    fmt::print("call     {} token{}: best {}, median {}, first {}\n", n_tokens,
               n_tokens == 1 ? "" : "s", time_words(best), time_words(median(result.seconds)),
               time_words(result.seconds.front()));
    fmt::print("touched  {} of {} experts, {}: {:.3g} GB/s\n", n_hit, result.counts.size(),
               byte_words(touched), static_cast<double>(touched) / best / 1e9);
}

// Damaged scales show nowhere else without --check.
void print_not_finite(const CallResult& result, int64_t n_tokens, int32_t hidden) {
    int64_t count = 0;
    for (auto row = result.out.begin(); row != result.out.end(); row += hidden)
        count += !std::all_of(row, row + hidden, [](float y) { return std::isfinite(y); });
    if (count > 0) fmt::print("outputs  {} of {} tokens are not finite\n", count, n_tokens);
}

// The layer again, on the CPU by the library's fp64 reference, with the ids and weights of the
// first result.
CallResult reference_result(moe_runtime* runtime, const moe_checkpoint* checkpoint,
                            const RunOptions& options, const LayerSource& source,
                            const Tokens& tokens, const CallResult& result,
                            const std::shared_ptr<moe_weights>& weights) {
    PlanChoice choice;
    choice.device = MOE_DEVICE_CPU;
    choice.x_type = activation_type_from(options.type);
    choice.out_type = MOE_TYPE_F32;
    choice.intermediate_type = MOE_TYPE_F64;
    choice.max_tokens = tokens.count;
    Plan plan = make_plan(runtime, source, choice);
    Progress progress("loading", options.progress);
    auto own =
        can_share(plan.get(), weights.get())
            ? weights
            : load_weights(plan.get(), checkpoint, options.layer, options.io == "mmap", progress);
    LayerCall call(runtime, std::move(plan), std::move(own), source.desc, choice);
    return call.forward(tokens.x, tokens.count, {}, &result);
}

int print_verdict(const CallResult& result, const CallResult& reference, int64_t n_tokens,
                  const std::string& type) {
    const std::vector<double> errors = relative_errors(result.out, reference.out, n_tokens);
    const double tolerance = type == "f32" ? 1e-5 : 6e-3;
    const double largest = errors.empty() ? 0.0 : *std::max_element(errors.begin(), errors.end());
    const bool pass = largest <= tolerance;
    fmt::print(
        "check    {}: relative L2 per token against the fp64 reference, largest {:.3g}, median "
        "{:.3g}, "
        "allowed {:g} ({})\n",
        pass ? "PASS" : "FAIL", largest, median(errors), tolerance,
        time_words(reference.seconds.front()));
    return pass ? 0 : 1;
}

void write_results(const RunOptions& options, const LayerSource& source, int64_t n_tokens,
                   const CallResult& result) {
    if (!options.output.empty())
        write_npy(options.output, n_tokens, source.desc.hidden, result.out);
    if (!options.ids_output.empty()) {
        write_npy(options.ids_output, n_tokens, source.desc.top_k, result.ids);
    }
}

}  // namespace

int run(const RunOptions& options) {
    check_usage(options);
    PlanChoice choice;
    choice.device = device_kind_from(options.device);
    choice.x_type = activation_type_from(options.type);
    choice.kernel = options.kernel;
    choice.packed = options.packed || !options.save.empty() || !options.open.empty();
    const Runtime runtime = make_runtime(options.threads);
    const bool mapped = options.io == "mmap";
    const Checkpoint checkpoint = open_checkpoint(
        runtime.get(), options.checkpoint, options.read_as, mapped ? MOE_IO_MMAP : MOE_IO_READ);
    const LayerSource source = source_of(checkpoint.get(), options.checkpoint, options.layer);
    const Tokens tokens = tokens_asked_for(options, source.desc.hidden);
    choice.max_tokens = tokens.count;
    Plan plan = make_plan(runtime.get(), source, choice);

    const auto start = std::chrono::steady_clock::now();
    std::shared_ptr<moe_weights> weights;
    {
        Progress progress("loading", options.progress);
        weights = options.open.empty()
                      ? load_weights(plan.get(), checkpoint.get(), options.layer, mapped, progress)
                      : open_weights(plan.get(), options.open);
    }
    const std::chrono::duration<double> load_time = std::chrono::steady_clock::now() - start;
    if (!options.save.empty()) check(moe_weights_save(weights.get(), options.save.c_str()));
    LayerCall call(runtime.get(), std::move(plan), weights, source.desc, choice);
    const CallResult result = call.forward(tokens.x, tokens.count, {options.repeat});

    fmt::print("layer    {}: {}\n", options.layer, routing_words(source.desc));
    print_device(call.plan());
    print_kernels(call.plan(), tokens.count);
    const moe_memory_report report = print_weights(weights.get(), load_time.count());
    if (tokens.count > 0) print_timing(result, report, tokens.count);
    print_not_finite(result, tokens.count, source.desc.hidden);
    write_results(options, source, tokens.count, result);
    if (!options.check) return 0;
    return print_verdict(
        result,
        reference_result(runtime.get(), checkpoint.get(), options, source, tokens, result, weights),
        tokens.count, options.type);
}

}  // namespace moe::cli
