// explain.cpp - `moe explain`: the plan's own account of itself, for a checkpoint's layer or a
// model of the table.
#include <fmt/format.h>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "models.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

LayerSource source_asked_for(const ExplainOptions& options, moe_runtime* runtime) {
    if (!options.model.empty()) {
        const Model& model = model_by_name(options.model);
        return source_of(model, options.format.empty() ? model.native_format : options.format);
    }
    const Checkpoint checkpoint = open_checkpoint(runtime, options.checkpoint, options.read_as);
    return source_of(checkpoint.get(), options.checkpoint, options.layer);
}

std::string explanation(const moe_plan* plan, moe_explain_form form) {
    uint64_t size = 0;
    check(moe_plan_explain(plan, form, nullptr, 0, &size));
    std::string text(size, '\0');
    check(moe_plan_explain(plan, form, text.data(), text.size(), &size));
    text.resize(size > 0 ? size - 1 : 0);
    return text;
}

void check_usage(const ExplainOptions& options) {
    if (options.checkpoint.empty() == options.model.empty()) {
        throw UsageFailure("explain needs either a checkpoint with --layer, or --model");
    }
    if (!options.checkpoint.empty()) {
        if (options.layer < 0) throw UsageFailure("--layer is missing");
        if (!options.format.empty())
            throw UsageFailure("--format goes with --model: a checkpoint has its own formats");
    } else if (options.layer >= 0) {
        throw UsageFailure("--layer goes with a checkpoint: the layers of a model are alike");
    } else if (!options.read_as.is_empty()) {
        throw UsageFailure("--family and --set go with a checkpoint");
    }
}

}  // namespace

int explain(const ExplainOptions& options) {
    check_usage(options);
    const Runtime runtime = make_runtime(options.threads);
    const LayerSource source = source_asked_for(options, runtime.get());
    const auto formats = source.format_pointers();
    const auto of_experts = source.expert_format_pointers();
    auto desc = sized<moe_plan_desc>();
    desc.device = device_kind_from(options.device);
    desc.x_type = activation_type_from(options.type);
    desc.layer = &source.desc;
    desc.formats = formats.data();
    desc.n_formats = MOE_ROLE_COUNT;
    desc.formats_per_expert = of_experts.empty() ? nullptr : of_experts.data();
    desc.n_formats_per_expert = static_cast<uint32_t>(of_experts.size());
    if (options.packed) desc.residency = MOE_RESIDENCY_PACKED;
    desc.max_tokens = options.max_tokens;
    desc.kernel_filter = options.kernel.empty() ? nullptr : options.kernel.c_str();
    const Plan plan = make<Plan>(moe_plan_create, runtime.get(), &desc);
    std::string text = explanation(plan.get(), options.json ? MOE_EXPLAIN_JSON : MOE_EXPLAIN_TEXT);
    if (!text.ends_with('\n')) text += '\n';
    fmt::print("{}", text);
    return 0;
}

}  // namespace moe::cli
