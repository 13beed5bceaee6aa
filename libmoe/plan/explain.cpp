// The plan in words: facts, and the time that the cost model predicts where there is one
// (cost.hpp).
#include "libmoe/base/fmt.hpp"

#include <fmt/format.h>

#include "libmoe/formats/format.hpp"
#include "libmoe/plan/explain_launches.hpp"
#include "libmoe/plan/explain_matrices.hpp"
#include "libmoe/plan/explain_prediction.hpp"
#include "libmoe/plan/json_writer.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

std::string hex(const std::array<uint8_t, 16>& id) {
    return fmt::format("{:02x}", fmt::join(id, ""));
}

const char* device_name(const moe_plan& plan) {
    return plan.is_cuda() ? "cuda" : "cpu";
}

int32_t n_threads(const moe_plan& plan) {
    return plan.is_cuda() ? 0 : plan.setup.n_workers;
}

bool is_used(const moe_plan& plan, moe_stage stage) {
    return (plan.layout.stages & stage) != 0;
}

// `see(role, format, count, bytes of all)`
template <class See>
void for_every_matrix(const WeightsLayout& layout, See see) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || !layout.needs(role)) continue;
        const int64_t count = layout.count(role);
        const uint64_t bytes = layout.matrix_copy_bytes(role) * static_cast<uint64_t>(count);
        see(role_name(role), format_words(layout, role).c_str(), count, bytes);
    }
}

void write_device(JsonWriter& json, const moe_plan& plan) {
    json.object("device", [&] {
        json.member("kind", device_name(plan));
        json.member("index", plan.device_index);
        json.member("reason", plan.device_reason);
        json.member("n_threads", n_threads(plan));
    });
}

void write_layer(JsonWriter& json, const Layer& layer) {
    json.object("layer", [&] {
        json.member("hidden", layer.hidden);
        json.member("intermediate", layer.intermediate);
        json.member("n_experts", layer.n_experts);
        json.member("n_identity_experts", layer.n_identity_experts);
        json.member("top_k", layer.top_k);
        json.member("latent", layer.latent);
        json.member("shared_intermediate", layer.shared_intermediate);
    });
}

void write_range(JsonWriter& json, const char* name, int64_t begin, int64_t count) {
    json.array(name, [&] {
        json.value(begin);
        json.value(count);
    });
}

void write_slice(JsonWriter& json, const moe_plan& plan) {
    const Slice& slice = plan.layout.slice;
    json.object("slice", [&] {
        json.member("whole", slice.whole());
        json.member("partial", plan.partial);
        json.member("n_local_experts", slice.n_local);
        write_range(json, "intermediate", slice.intermediate_begin, slice.intermediate_count);
        write_range(json, "shared", slice.shared_begin, slice.shared_count);
    });
}

void write_types(JsonWriter& json, const moe_plan& plan) {
    json.object("types", [&] {
        json.member("x", type_name(plan.x_type));
        json.member("router_input", type_name(plan.router_input_type));
        json.member("out", type_name(plan.out_type));
        json.member("intermediate", type_name(plan.intermediate_type));
    });
}

void write_candidate(JsonWriter& json, const Candidate& candidate) {
    json.object([&] {
        json.member("kernel", candidate.name());
        if (candidate.down.empty())
            json.member("down_kernel", nullptr);
        else
            json.member("down_kernel", candidate.down.c_str());
        json.member("chosen", candidate.is_chosen && candidate.tokens != Tokens::many_rows);
        json.member("applicable", candidate.applicable);
        if (candidate.tokens == Tokens::small_batch)
            json.member("max_tokens", candidate.most_tokens);
        else
            json.member("max_tokens", nullptr);
        if (candidate.min_rows.least())
            json.member("min_rows", candidate.min_rows.least());
        else
            json.member("min_rows", nullptr);
        json.member("reason_code", candidate.reason->code);
        json.member("reason", candidate.reason->sentence);
    });
}

void write_stage(JsonWriter& json, const moe_plan& plan, moe_stage stage) {
    json.object([&] {
        json.member("stage", stage_name(stage));
        json.member("used", is_used(plan, stage));
        json.member("kernel", plan.chosen(stage).name());
        json.array("candidates", [&] {
            for (const Candidate& candidate : plan.candidates)
                if (candidate.stage == stage) write_candidate(json, candidate);
        });
        write_matrices(json, plan, stage);
    });
}

// Where moe_forward runs it.
void write_shared_expert(JsonWriter& json, const moe_plan& plan) {
    if (!plan.layout.layer.shared_intermediate) return json.member("shared_expert", nullptr);
    const bool joins = plan.is_cuda() && plan.cuda.shared_joins;
    json.member("shared_expert", joins ? "with_experts" : "apart");
}

void write_weights(JsonWriter& json, const WeightsLayout& layout) {
    const bool packed = layout.residency == MOE_RESIDENCY_PACKED;
    const auto write_matrix = [&](const char* role, const char* format, int64_t count,
                                  uint64_t bytes) {
        json.object([&] {
            json.member("role", role);
            json.member("format", format);
            json.member("count", count);
            json.member("bytes", bytes);
        });
    };
    json.object("weights", [&] {
        json.member("residency", packed ? "packed" : "source");
        json.member("layout_id", hex(layout.id));
        json.member("bytes", layout.copy_bytes());
        json.array("matrices", [&] { for_every_matrix(layout, write_matrix); });
    });
}

void write_workspace(JsonWriter& json, const moe_plan& plan) {
    const moe_workspace_need need = plan.workspace_need(plan.max_tokens);
    json.object("workspace", [&] {
        json.member("host_bytes", need.host_bytes);
        json.member("device_bytes", need.device_bytes);
        json.member("alignment", need.alignment);
        json.member("max_tokens", plan.max_tokens);
        json.member("chunk_tokens", plan.chunk_tokens());
    });
}

std::string token_range(const Candidate& candidate) {
    if (candidate.tokens == Tokens::any || !candidate.applicable) return "";
    if (candidate.tokens == Tokens::many_rows)
        return fmt::format(" (from {} rows of a matrix)", candidate.min_rows.least());
    return fmt::format(" (up to {} tokens)", candidate.most_tokens);
}

std::string names_text(const Candidate& candidate) {
    if (candidate.down.empty()) return candidate.name();
    return fmt::format("{}, {}", candidate.name(), candidate.down.c_str());
}

// Chosen, used beside the chosen one, or neither.
char mark_of(const Candidate& candidate) {
    if (!candidate.is_chosen) return '-';
    return candidate.tokens == Tokens::many_rows ? '+' : '*';
}

std::string stage_text(const moe_plan& plan, moe_stage stage) {
    std::string text = fmt::format("stage {}: {}{}\n", stage_name(stage), plan.chosen(stage).name(),
                                   is_used(plan, stage) ? "" : " (not used by this plan)");
    for (const Candidate& candidate : plan.candidates) {
        if (candidate.stage != stage) continue;
        text += fmt::format("  {} {}{}: {}\n", mark_of(candidate), names_text(candidate),
                            token_range(candidate), candidate.reason->sentence);
    }
    if (is_used(plan, stage)) text += matrices_text(plan, stage);
    return text;
}

std::string layer_text(const WeightsLayout& layout, bool partial) {
    const Layer& layer = layout.layer;
    const Slice& slice = layout.slice;
    return fmt::format(
        "layer hidden {} intermediate {} experts {} top_k {} latent {} shared {}\n"
        "slice {} local experts, intermediate [{}, +{}){}\n",
        layer.hidden, layer.intermediate, layer.n_experts, layer.top_k, layer.latent,
        layer.shared_intermediate, slice.n_local, slice.intermediate_begin,
        slice.intermediate_count, partial ? ", partial" : "");
}

std::string weights_text(const WeightsLayout& layout) {
    std::string text =
        fmt::format("weights {} bytes, layout {}\n", layout.copy_bytes(), hex(layout.id));
    for_every_matrix(layout,
                     [&](const char* role, const char* format, int64_t count, uint64_t bytes) {
                         text += fmt::format("  {} {} x{}: {} bytes\n", role, format, count, bytes);
                     });
    return text;
}

}  // namespace

std::string explain_json(const moe_plan& plan) {
    JsonWriter json;
    json.object([&] {
        json.member("schema", "libmoe.explain.1");
        json.member("version", moe_version_string());
        json.member("key", hex(plan.key));
        write_device(json, plan);
        write_layer(json, plan.layout.layer);
        write_slice(json, plan);
        write_types(json, plan);
        json.array("stages", [&] {
            for (const moe_stage stage : all_stages) write_stage(json, plan, stage);
        });
        write_shared_expert(json, plan);
        write_launches(json, plan);
        write_weights(json, plan.layout);
        write_workspace(json, plan);
        write_prediction(json, plan);
    });
    return json.take();
}

std::string explain_text(const moe_plan& plan) {
    const moe_workspace_need need = plan.workspace_need(plan.max_tokens);
    std::string text = fmt::format("device {} {}, {} threads: {}\n", device_name(plan),
                                   plan.device_index, n_threads(plan), plan.device_reason);
    text += layer_text(plan.layout, plan.partial);
    text += fmt::format("types x {} out {} intermediate {}\n", type_name(plan.x_type),
                        type_name(plan.out_type), type_name(plan.intermediate_type));
    for (const moe_stage stage : all_stages) text += stage_text(plan, stage);
    text += launches_text(plan);
    text += weights_text(plan.layout);
    text += fmt::format("workspace {} bytes for {} tokens, {} at a time\n",
                        plan.is_cuda() ? need.device_bytes : need.host_bytes, plan.max_tokens,
                        plan.chunk_tokens());
    if (!plan.is_cuda()) return text + cpu_prediction_text(plan);
    text += plan.predicted_us
                ? fmt::format("predicted time: {:.1f} us for the experts of {} tokens\n",
                              *plan.predicted_us, plan.max_tokens)
                : std::string("predicted time: unknown\n");
    return text;
}

}  // namespace moe
