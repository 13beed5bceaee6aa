// The plan in words: facts only. A predicted time stays null until a cost model has been measured.
#include "libmoe/base/fmt.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libmoe/formats/format.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(const std::array<uint8_t, 16>& id) {
    return fmt::format("{:02x}", fmt::join(id, ""));
}

Json layer_json(const Layer& layer) {
    return {{"hidden", layer.hidden},
            {"intermediate", layer.intermediate},
            {"n_experts", layer.n_experts},
            {"n_identity_experts", layer.n_identity_experts},
            {"top_k", layer.top_k},
            {"latent", layer.latent},
            {"shared_intermediate", layer.shared_intermediate}};
}

Json slice_json(const moe_plan& plan) {
    const Slice& slice = plan.layout.slice;
    return {{"whole", slice.whole()},
            {"partial", plan.partial},
            {"n_local_experts", slice.n_local},
            {"intermediate", {slice.intermediate_begin, slice.intermediate_count}},
            {"shared", {slice.shared_begin, slice.shared_count}}};
}

Json types_json(const moe_plan& plan) {
    return {{"x", type_name(plan.x_type)},
            {"router_input", type_name(plan.router_input_type)},
            {"out", type_name(plan.out_type)},
            {"intermediate", type_name(plan.intermediate_type)}};
}

Json weights_json(const WeightsLayout& layout) {
    Json roles = Json::array();
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || !layout.needs(role)) continue;
        const uint64_t bytes = layout.matrix_copy_bytes(role);
        const int64_t count = layout.count(role);
        roles.push_back({{"role", role_name(role)},
                         {"format", format_name(layout.formats[i]).text},
                         {"count", count},
                         {"bytes", bytes * count}});
    }
    const bool packed = layout.residency == MOE_RESIDENCY_PACKED;
    return {{"residency", packed ? "packed" : "source"},
            {"layout_id", hex(layout.id)},
            {"bytes", layout.copy_bytes()},
            {"matrices", roles}};
}

Json stages_json(const moe_plan& plan) {
    Json stages = Json::array();
    for (const moe_stage stage : all_stages) {
        Json candidates = Json::array();
        for (const Candidate& candidate : plan.candidates) {
            if (candidate.stage != stage) continue;
            candidates.push_back(
                {{"kernel", candidate.name},
                 {"chosen", candidate.is_chosen},
                 {"applicable", candidate.applicable},
                 {"max_tokens",
                  candidate.tokens == Tokens::few ? Json(candidate.most_tokens) : Json(nullptr)},
                 {"reason_code", candidate.reason->code},
                 {"reason", candidate.reason->sentence}});
        }
        stages.push_back({{"stage", stage_name(stage)},
                          {"used", (plan.layout.stages & stage) != 0},
                          {"kernel", plan.chosen(stage).name},
                          {"candidates", candidates}});
    }
    return stages;
}

// Where moe_forward runs it.
Json shared_expert_json(const moe_plan& plan) {
    if (!plan.layout.layer.shared_intermediate) return nullptr;
    return plan.is_cuda() && plan.cuda.shared_joins ? "with_experts" : "apart";
}

Json workspace_json(const moe_plan& plan) {
    const moe_workspace_need need = plan.workspace_need(plan.max_tokens);
    return {{"host_bytes", need.host_bytes},
            {"device_bytes", need.device_bytes},
            {"alignment", need.alignment},
            {"max_tokens", plan.max_tokens},
            {"chunk_tokens", plan.chunk_tokens()}};
}

Json to_json(const moe_plan& plan) {
    return {{"schema", "libmoe.explain.1"},
            {"version", moe_version_string()},
            {"key", hex(plan.key)},
            {"device",
             {{"kind", plan.is_cuda() ? "cuda" : "cpu"},
              {"index", plan.device_index},
              {"reason", plan.device_reason},
              {"n_threads", plan.is_cuda() ? 0 : plan.setup.n_workers}}},
            {"layer", layer_json(plan.layout.layer)},
            {"slice", slice_json(plan)},
            {"types", types_json(plan)},
            {"stages", stages_json(plan)},
            {"shared_expert", shared_expert_json(plan)},
            {"weights", weights_json(plan.layout)},
            {"workspace", workspace_json(plan)},
            {"predicted_us", nullptr}};
}

std::string token_range(const Json& candidate) {
    const Json& most = candidate["max_tokens"];
    return most.is_null() ? "" : fmt::format(" (up to {} tokens)", most.get<int32_t>());
}

void append_stage(std::string& text, const Json& stage) {
    text += fmt::format("stage {}: {}{}\n", stage["stage"].get<std::string>(),
                        stage["kernel"].get<std::string>(),
                        stage["used"].get<bool>() ? "" : " (not used by this plan)");
    for (const Json& candidate : stage["candidates"])
        text += fmt::format("  {} {}{}: {}\n", candidate["chosen"].get<bool>() ? '*' : '-',
                            candidate["kernel"].get<std::string>(), token_range(candidate),
                            candidate["reason"].get<std::string>());
}

}  // namespace

std::string explain_json(const moe_plan& plan) {
    return to_json(plan).dump(2);
}

std::string explain_text(const moe_plan& plan) {
    const Json json = to_json(plan);
    const Json& device = json["device"];
    const Json& types = json["types"];
    const Json& workspace = json["workspace"];
    std::string text = fmt::format(
        "device {} {}, {} threads: {}\n", device["kind"].get<std::string>(), plan.device_index,
        device["n_threads"].get<int32_t>(), device["reason"].get<std::string>());
    text += fmt::format("layer hidden {} intermediate {} experts {} top_k {} latent {} shared {}\n",
                        plan.layout.layer.hidden, plan.layout.layer.intermediate,
                        plan.layout.layer.n_experts, plan.layout.layer.top_k,
                        plan.layout.layer.latent, plan.layout.layer.shared_intermediate);
    text += fmt::format("slice {} local experts, intermediate [{}, +{}){}\n",
                        plan.layout.slice.n_local, plan.layout.slice.intermediate_begin,
                        plan.layout.slice.intermediate_count, plan.partial ? ", partial" : "");
    text += fmt::format("types x {} out {} intermediate {}\n", types["x"].get<std::string>(),
                        types["out"].get<std::string>(), types["intermediate"].get<std::string>());
    for (const Json& stage : json["stages"]) append_stage(text, stage);
    text +=
        fmt::format("weights {} bytes, layout {}\n", plan.layout.copy_bytes(), hex(plan.layout.id));
    for (const Json& matrix : json["weights"]["matrices"])
        text += fmt::format("  {} {} x{}: {} bytes\n", matrix["role"].get<std::string>(),
                            matrix["format"].get<std::string>(), matrix["count"].get<int64_t>(),
                            matrix["bytes"].get<uint64_t>());
    text += fmt::format("workspace {} bytes for {} tokens, {} at a time\n",
                        workspace[plan.is_cuda() ? "device_bytes" : "host_bytes"].get<uint64_t>(),
                        plan.max_tokens, plan.chunk_tokens());
    text += "predicted time: none yet\n";
    return text;
}

}  // namespace moe
