#include "libmoe/plan/explain_prediction.hpp"

#include "libmoe/base/fmt.hpp"

#include <fmt/format.h>

#include "libmoe/plan/cpu_cost.hpp"

namespace moe {
namespace {

std::string threads_text(int32_t n) {
    return n == 1 ? std::string("1 thread") : fmt::format("{} threads", n);
}

std::string why_unknown(const moe_plan& plan, const CpuRates* rates) {
    if (!rates) return "no machine with its instruction sets was measured";
    const int32_t least = rates->reads.front().n_threads, most = rates->reads.back().n_threads;
    if (plan.setup.n_workers < least || plan.setup.n_workers > most)
        return fmt::format("{} was measured on {}{}", rates->machine,
                           least < most ? fmt::format("{} to ", least) : std::string(),
                           threads_text(most));
    return fmt::format("a kernel of the experts was not measured on {}", rates->machine);
}

void write_call(JsonWriter& json, const CpuPrediction& one) {
    json.object([&] {
        json.member("tokens", one.n_tokens);
        json.member("us", one.us);
        json.member("bound", one.bound());
        json.member("reading_us", one.reading_us);
        json.member("dequantizing_us", one.dequantizing_us);
        json.member("multiplying_us", one.multiplying_us);
    });
}

}  // namespace

void write_prediction(JsonWriter& json, const moe_plan& plan) {
    const std::vector<CpuPrediction> all = cpu_predictions(plan);
    const auto us = all.empty() ? plan.predicted_us : std::optional(all.back().us);
    if (us)
        json.member("predicted_us", *us);
    else
        json.member("predicted_us", nullptr);
    if (all.empty()) return json.member("prediction", nullptr);
    json.object("prediction", [&] {
        json.member("machine", cpu_rates(plan)->machine);
        json.array("calls", [&] {
            for (const CpuPrediction& one : all) write_call(json, one);
        });
    });
}

std::string cpu_prediction_text(const moe_plan& plan) {
    const CpuRates* rates = cpu_rates(plan);
    const std::vector<CpuPrediction> all = cpu_predictions(plan);
    if (all.empty()) return fmt::format("predicted time: unknown: {}\n", why_unknown(plan, rates));
    std::string text;
    for (const CpuPrediction& one : all)
        text += fmt::format(
            "predicted time: {:.0f} us for the experts of {} token{}, bound by {} (reading {:.0f} "
            "us, dequantizing {:.0f}, multiplying {:.0f})\n",
            one.us, one.n_tokens, one.n_tokens == 1 ? "" : "s", one.bound(), one.reading_us,
            one.dequantizing_us, one.multiplying_us);
    return text + fmt::format(
                      "  by rates that were measured on {}, on {}; another machine has "
                      "others\n",
                      rates->machine, threads_text(plan.setup.n_workers));
}

}  // namespace moe
