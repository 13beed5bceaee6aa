// Prints one line per case and writes one JSON object per run.
#include "bench/report.hpp"

#include <fstream>

#include "bench/report_heading.hpp"

namespace moe::bench {
namespace {

using Json = nlohmann::ordered_json;

double rate(double amount, const Result& result) {
    return amount / result.time.median_us / 1e6;
}

Json shape_json(const Model& model) {
    return {{"hidden", model.hidden},
            {"intermediate", model.intermediate},
            {"n_experts", model.n_experts},
            {"top_k", model.top_k},
            {"shared_intermediate", model.shared_intermediate}};
}

Json stages_json(const Result& r) {
    Json stages = Json::array();
    for (const StageResult& one : r.stages)
        stages.push_back({{"stage", one.name},
                          {"us", one.time.median_us},
                          {"us_lowest", one.time.lowest_us},
                          {"us_highest", one.time.highest_us},
                          {"bytes", one.work.bytes},
                          {"flops", one.work.flops}});
    return stages;
}

Json result_json(const Result& r) {
    Json json = {{"case", r.what.name()},
                 {"model", r.what.model->name},
                 {"shape", shape_json(*r.what.model)},
                 {"format", r.what.format},
                 {"mode", r.what.mode_name()},
                 {"n_tokens", r.what.n_tokens},
                 {"zipf", r.what.zipf},
                 {"unfused", r.what.unfused},
                 {"x_type", name_of_type(r.what.x_type)},
                 {"intermediate_type", name_of_type(r.what.intermediate_type)},
                 {"kernels", r.what.kernels},
                 {"kernel", r.kernel},
                 {"us", r.time.median_us},
                 {"us_lowest", r.time.lowest_us},
                 {"us_highest", r.time.highest_us},
                 {"floor_us", r.floor_us},
                 {"times_floor", r.time.median_us / r.floor_us},
                 {"weight_bytes", r.bytes},
                 {"tb_per_s", rate(r.bytes, r)},
                 {"flops", r.flops},
                 {"tflops", rate(r.flops, r)},
                 {"workspace_bytes", r.workspace_bytes},
                 {"n_sets", r.n_sets},
                 {"n_calls", r.n_calls},
                 {"n_launches", r.time.n_launches},
                 {"stages", stages_json(r)}};
    if (r.what.fp8_activations) json["activation_quantization"] = "fp8";
    return json;
}

}  // namespace

void print_heading() {
    std::printf("%-44s %10s %9s %7s %7s %7s  %s\n", "case", "us", "floor", "x floor", "TB/s",
                "TFLOP/s", "experts kernel");
}

void print_row(const Result& r) {
    std::printf("%-44s %10.2f %9.2f %7.2f %7.2f %7.0f  %s\n", r.what.name().c_str(),
                r.time.median_us, r.floor_us, r.time.median_us / r.floor_us, rate(r.bytes, r),
                rate(r.flops, r), r.kernel.c_str());
    for (const StageResult& one : r.stages)
        std::printf("  %-42s %10.2f\n", one.name.c_str(), one.time.median_us);
    std::fflush(stdout);
}

void write_json(const std::string& path, const std::string& commit, const Limits& limits,
                const std::vector<Result>& results, const std::vector<std::string>& failures) {
    Json json = heading_json("libmoe.bench.3", commit, limits), rows = Json::array();
    for (const Result& result : results) rows.push_back(result_json(result));
    json["results"] = rows;
    json["failures"] = failures;
    std::ofstream(path) << json.dump(1) << '\n';
}

}  // namespace moe::bench
