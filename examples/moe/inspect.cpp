// inspect.cpp - `moe inspect`: what a checkpoint holds, one row per run of equal MoE layers.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "against.hpp"
#include "checkpoint.hpp"
#include "commands.hpp"
#include "text.hpp"
#include "verify.hpp"

namespace moe::cli {
namespace {

// Equal consecutive layers.
struct LayerRun {
    std::vector<int32_t> layers;
    LayerSource source;
    std::string problem;  // why the formats, or the whole layer, could not be told, or ""
    bool is_readable = true;
    uint64_t bytes = 0;  // of one layer
};

uint64_t bytes_of(const moe_tensor& tensor) {
    const uint64_t codes = tensor.data_bytes + tensor.scale_bytes;
    const bool apart = tensor.data_per_expert != nullptr;
    const uint64_t matrices = apart ? codes * static_cast<uint64_t>(tensor.n_experts) : codes;
    return matrices + tensor.zero_point_bytes + tensor.permutation_bytes +
           tensor.nested_scale_bytes +
           sizeof(float) * static_cast<uint64_t>(tensor.n_global_scales);
}

uint64_t layer_bytes(const moe_checkpoint* checkpoint, int32_t layer) {
    uint64_t total = 0;
    for (uint32_t index = 0;; ++index) {
        auto tensor = sized<moe_tensor>();
        auto format = sized<moe_format>();
        const moe_status status = moe_checkpoint_tensor(checkpoint, layer, index, &tensor, &format);
        if (status == MOE_ERROR_NOT_FOUND && index > 0) return total;
        check(status);
        total += bytes_of(tensor);
    }
}

LayerRun describe(const moe_checkpoint* checkpoint, int32_t layer) {
    LayerRun run;
    run.layers = {layer};
    try {
        run.source = source_of(checkpoint, layer);
    } catch (const Failure& failure) {
        run.problem = failure.what();
        run.is_readable = moe_checkpoint_layer(checkpoint, layer, &run.source.desc) == MOE_OK;
    }
    if (run.is_readable) run.bytes = layer_bytes(checkpoint, layer);
    return run;
}

bool same_formats(const std::vector<moe_format>& a, const std::vector<moe_format>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

// The structs are made of 32-bit fields alone and start as zero, so their bytes can be compared.
bool equal(const LayerRun& a, const LayerRun& b) {
    return std::memcmp(&a.source.desc, &b.source.desc, sizeof(moe_layer_desc)) == 0 &&
           std::memcmp(a.source.formats.data(), b.source.formats.data(),
                       sizeof(a.source.formats)) == 0 &&
           same_formats(a.source.expert_formats, b.source.expert_formats) && a.bytes == b.bytes &&
           a.problem == b.problem;
}

std::vector<LayerRun> runs_of(const moe_checkpoint* checkpoint) {
    std::vector<LayerRun> runs;
    for (const int32_t layer : layers_of(checkpoint)) {
        LayerRun run = describe(checkpoint, layer);
        if (!runs.empty() && equal(runs.back(), run)) {
            runs.back().layers.push_back(layer);
        } else {
            runs.push_back(std::move(run));
        }
    }
    return runs;
}

std::string number_or_dash(int32_t number) {
    return number > 0 ? std::to_string(number) : "-";
}

// Those of single experts, and how many have each.
std::map<std::string, int> other_formats(const LayerSource& source, moe_role role) {
    std::map<std::string, int> counts;
    const auto n = static_cast<size_t>(source.desc.n_experts);
    for (size_t e = 0; !source.expert_formats.empty() && e < n; ++e) {
        const moe_format& format = source.expert_formats[role * n + e];
        if (format.type != MOE_TYPE_NONE) ++counts[format_name(format)];
    }
    return counts;
}

// Roles of one format together: "bf16 router; nvfp4 gate up down; q8_0 down of 3 experts".
std::string format_words(const LayerRun& run) {
    std::vector<std::pair<std::string, std::string>> groups;
    for (size_t role = 0; role < run.source.formats.size(); ++role) {
        const moe_format& format = run.source.formats[role];
        if (format.type == MOE_TYPE_NONE) continue;
        const std::string name = format_name(format);
        size_t i = 0;
        while (i < groups.size() && groups[i].first != name) ++i;
        if (i == groups.size()) groups.emplace_back(name, "");
        groups[i].second += std::string(" ") + moe_role_name(static_cast<moe_role>(role));
    }
    std::string words;
    for (const auto& [name, roles] : groups) words += (words.empty() ? "" : "; ") + name + roles;
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
        for (const auto& [name, n] : other_formats(run.source, role))
            words += fmt::format("; {} {} of {} experts", name, moe_role_name(role), n);
    return words;
}

std::vector<std::string> table_row(const LayerRun& run) {
    if (!run.is_readable)
        return {range_words(run.layers), "-", "-", "-", "-", "-", "-", "-", "not readable"};
    const moe_layer_desc& layer = run.source.desc;
    std::string experts = std::to_string(layer.n_experts);
    if (layer.n_identity_experts > 0) experts += fmt::format("+{}", layer.n_identity_experts);
    return {
        range_words(run.layers),
        std::to_string(layer.hidden),
        std::to_string(layer.intermediate),
        experts,
        std::to_string(layer.top_k),
        number_or_dash(layer.shared_intermediate) + (layer.has_shared_expert_gate ? " gated" : ""),
        number_or_dash(layer.latent),
        byte_words(run.bytes),
        routing_words(layer)};
}

std::string layer_words(const LayerRun& run) {
    if (!run.is_readable) return "not readable: " + run.problem;
    return activation_words(run.source.desc) + "; " +
           (run.problem.empty() ? format_words(run) : "formats not readable: " + run.problem);
}

void print_text(const InspectOptions& options, const moe_checkpoint_info& info,
                const std::vector<LayerRun>& runs, const std::vector<MatrixError>& errors,
                const std::vector<std::string>& notes) {
    fmt::print("{}: {}, {} file{}, {} tensors, {}\n", options.checkpoint,
               info.is_gguf ? "GGUF" : "safetensors", info.n_files, info.n_files == 1 ? "" : "s",
               info.n_tensors, byte_words(info.file_bytes));
    fmt::print("family {}, model type {}, {} MoE layer{}\n\n", info.family, info.model_type,
               info.n_layers, info.n_layers == 1 ? "" : "s");
    std::vector<std::vector<std::string>> rows = {
        {"layers", "H", "I", "E", "k", "shared", "latent", "bytes/layer", "routing"}};
    for (const LayerRun& run : runs) rows.push_back(table_row(run));
    fmt::print("{}\n", table_words(rows));
    for (const LayerRun& run : runs) {
        fmt::print("layer{} {}: {}\n", run.layers.size() == 1 ? "" : "s", range_words(run.layers),
                   layer_words(run));
    }
    for (const std::string& note : notes) fmt::print("note: {}\n", note);
    if (options.against.empty()) return;
    fmt::print("\nagainst {}\n{}", options.against, error_table_words(errors, options.each));
}

nlohmann::ordered_json json_of(const LayerRun& run) {
    const moe_layer_desc& layer = run.source.desc;
    nlohmann::ordered_json json;
    json["layers"] = run.layers;
    if (!run.is_readable) {
        json["problem"] = run.problem;
        return json;
    }
    json["hidden"] = layer.hidden;
    json["intermediate"] = layer.intermediate;
    json["n_experts"] = layer.n_experts;
    json["n_identity_experts"] = layer.n_identity_experts;
    json["top_k"] = layer.top_k;
    json["shared_intermediate"] = layer.shared_intermediate;
    json["has_shared_expert_gate"] = layer.has_shared_expert_gate != 0;
    json["latent"] = layer.latent;
    json["n_group"] = layer.n_group;
    json["topk_group"] = layer.topk_group;
    json["routing"] = routing_words(layer);
    json["activation"] = activation_words(layer);
    json["formats"] = nlohmann::ordered_json::object();
    for (size_t role = 0; role < run.source.formats.size(); ++role) {
        const moe_format& format = run.source.formats[role];
        if (format.type == MOE_TYPE_NONE) continue;
        json["formats"][moe_role_name(static_cast<moe_role>(role))] = format_name(format);
    }
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
        for (const auto& [name, n] : other_formats(run.source, role))
            json["formats_of_single_experts"][moe_role_name(role)][name] = n;
    if (!run.problem.empty()) json["problem"] = run.problem;
    json["bytes"] = run.bytes;
    return json;
}

void print_json(const InspectOptions& options, const moe_checkpoint_info& info,
                const std::vector<LayerRun>& runs, const std::vector<MatrixError>& errors,
                const std::vector<std::string>& notes) {
    nlohmann::ordered_json json;
    json["schema"] = "libmoe.inspect.1";
    json["checkpoint"] = options.checkpoint;
    json["container"] = info.is_gguf ? "gguf" : "safetensors";
    json["family"] = info.family;
    json["model_type"] = info.model_type;
    json["n_files"] = info.n_files;
    json["n_tensors"] = info.n_tensors;
    json["file_bytes"] = info.file_bytes;
    json["moe_layers"] = nlohmann::ordered_json::array();
    for (const LayerRun& run : runs) json["moe_layers"].push_back(json_of(run));
    if (!notes.empty()) json["notes"] = notes;
    if (!options.against.empty()) {
        json["against"] = options.against;
        json["errors"] = error_table_json(errors);
    }
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

// After all that could be told has been printed.
void check_readable(const std::vector<LayerRun>& runs) {
    for (const LayerRun& run : runs)
        if (!run.is_readable)
            throw Failure(
                fmt::format("layer {} is not readable: {}", run.layers.front(), run.problem));
}

}  // namespace

int inspect(const InspectOptions& options) {
    if (options.each && options.against.empty())
        throw UsageFailure("--per-tensor goes with --against: it is a row for every matrix");
    if (options.verify && !options.against.empty())
        throw UsageFailure("--verify is for one file of packed weights, --against for checkpoints");
    if (options.verify && !options.read_as.is_empty())
        throw UsageFailure("--family and --set are for checkpoints, not for --verify");
    if (options.verify) {
        verify_packed_file(options);
        return 0;
    }
    std::vector<std::string> notes;
    const Runtime runtime = make_noting_runtime(notes);
    const Checkpoint checkpoint =
        open_checkpoint(runtime.get(), options.checkpoint, options.read_as);
    const moe_checkpoint_info info = info_of(checkpoint.get());
    const std::vector<LayerRun> runs = runs_of(checkpoint.get());
    std::vector<MatrixError> errors;
    if (!options.against.empty())
        errors = errors_against(checkpoint.get(), options.checkpoint, options.against);
    if (options.json) {
        print_json(options, info, runs, errors, notes);
    } else {
        print_text(options, info, runs, errors, notes);
    }
    check_readable(runs);
    return 0;
}

}  // namespace moe::cli
