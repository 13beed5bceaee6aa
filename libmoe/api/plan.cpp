// moe_layer_validate, moe_plan_*, moe_supports, moe_candidates.
#include "libmoe/plan/plan.hpp"

#include <algorithm>

#include "libmoe/api/guard.hpp"
#include "libmoe/api/plan_desc.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/checkpoint/checkpoint.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

// The list may have nulls; the answer is null where it has nothing else.
const moe_format* most_common(const std::vector<const moe_format*>& formats) {
    std::vector<std::pair<const moe_format*, int64_t>> counts;
    for (const moe_format* one : formats) {
        if (!one) continue;
        const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& count) {
            return same_format(*count.first, *one);
        });
        if (known != counts.end())
            ++known->second;
        else
            counts.emplace_back(one, 1);
    }
    const auto most =
        std::max_element(counts.begin(), counts.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? nullptr : most->first;
}

}  // namespace

PlanDesc::PlanDesc(const moe_plan_desc* given) : desc_(read_struct(given, "moe_plan_desc")) {
    require(desc_.layer || desc_.checkpoint, "moe_plan_desc.layer and checkpoint are both NULL");
    if (desc_.layer) layer_ = read_struct(desc_.layer, "moe_layer_desc");
    if (desc_.slice) {
        slice_ = read_struct(desc_.slice, "moe_slice");
        desc_.slice = &slice_;
    }
    read_formats();
    if (desc_.checkpoint) take_from_checkpoint();
    if (desc_.n_formats_per_expert) read_expert_formats();
    desc_.layer = &layer_;
    desc_.formats = format_pointers_;
    desc_.n_formats = MOE_ROLE_COUNT;
}

// What the caller left to the checkpoint.
void PlanDesc::take_from_checkpoint() {
    const moe_checkpoint& checkpoint = *desc_.checkpoint;
    check_handle(&checkpoint, "checkpoint");
    if (!desc_.layer) layer_ = checkpoint.layer_desc(desc_.checkpoint_layer);
    if (desc_.n_formats) return;
    moe_format* out[MOE_ROLE_COUNT];
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) out[i] = &formats_[i];
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) format_pointers_[i] = &formats_[i];
    if (!desc_.n_formats_per_expert) {
        take_experts_from_checkpoint();
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) out[role] = nullptr;
        // Gate and up say as much of merged matrices, expert by expert.
        if (!expert_pointers_.empty()) out[MOE_ROLE_GATE_UP] = nullptr;
    }
    checkpoint.formats(desc_.checkpoint_layer, out, MOE_ROLE_COUNT);
}

// The format of most experts is that of the role.
void PlanDesc::take_experts_from_checkpoint() {
    const int32_t n_experts = layer_.n_experts;
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) {
        const auto of_experts = desc_.checkpoint->expert_formats(desc_.checkpoint_layer, role);
        const moe_format* common = most_common(of_experts);
        formats_[role] = common ? *common : format_of(MOE_TYPE_NONE);
        for (size_t e = 0; e < of_experts.size(); ++e) {
            const bool is_other = of_experts[e] && !same_format(*of_experts[e], *common);
            if (!is_other || e >= static_cast<size_t>(std::max(n_experts, 0))) continue;
            expert_pointers_.resize(static_cast<size_t>(MOE_ROLE_COUNT) *
                                    static_cast<size_t>(n_experts));
            expert_pointers_[static_cast<size_t>(role * n_experts) + e] = of_experts[e];
        }
    }
    if (expert_pointers_.empty()) return;
    desc_.formats_per_expert = expert_pointers_.data();
    desc_.n_formats_per_expert = static_cast<uint32_t>(expert_pointers_.size());
}

// Copied, since a caller's moe_format may be of another version.
void PlanDesc::read_expert_formats() {
    if (!expert_pointers_.empty()) return;  // the checkpoint's
    const uint32_t n = desc_.n_formats_per_expert;
    require(desc_.formats_per_expert != nullptr,
            "moe_plan_desc.formats_per_expert is NULL, n_formats_per_expert is {}", n);
    const int64_t most = int64_t{MOE_ROLE_COUNT} * std::max(layer_.n_experts, 0);
    require(n <= most, "moe_plan_desc.n_formats_per_expert is {}, {} roles of {} experts are {}", n,
            static_cast<int32_t>(MOE_ROLE_COUNT), layer_.n_experts, most);
    expert_formats_.reserve(n);  // pointers into it stay
    expert_pointers_.resize(n);
    for (uint32_t i = 0; i < n; ++i)
        if (desc_.formats_per_expert[i])
            expert_pointers_[i] = &expert_formats_.emplace_back(
                read_struct(desc_.formats_per_expert[i], "moe_format"));
    desc_.formats_per_expert = expert_pointers_.data();
}

void PlanDesc::read_formats() {
    require(desc_.n_formats == 0 || desc_.formats != nullptr,
            "moe_plan_desc.formats is NULL, n_formats is {}", desc_.n_formats);
    // A newer program may know more roles; this library can do without them only where they are not
    // used.
    for (uint32_t i = 0; i < desc_.n_formats; ++i) {
        if (!desc_.formats[i]) continue;
        const moe_format format = read_struct(desc_.formats[i], "moe_format");
        if (i >= MOE_ROLE_COUNT) {
            require(format.type == MOE_TYPE_NONE,
                    "formats[{}] is a role that this library does not know", i);
            continue;
        }
        formats_[i] = format;
        format_pointers_[i] = &formats_[i];
    }
}

namespace {

void copy_id(const std::array<uint8_t, 16>& id, uint8_t out[16], const char* name) {
    check_out(out, name);
    std::copy(id.begin(), id.end(), out);
}

moe_candidate to_public(const Candidate& candidate) {
    moe_candidate out{};
    out.struct_size = sizeof out;
    out.stage = candidate.stage;
    out.chosen = candidate.is_chosen && candidate.tokens != Tokens::many_rows;
    out.applicable = candidate.applicable;
    out.kernel = candidate.name();
    out.reason_code = candidate.reason->code;
    out.reason = candidate.reason->sentence;
    return out;
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_layer_validate(const moe_layer_desc* layer) noexcept {
    return guard([&] { make_layer(read_struct(layer, "moe_layer_desc")); });
}

moe_status moe_plan_create(moe_runtime* runtime, const moe_plan_desc* desc,
                           moe_plan** out_plan) noexcept {
    return guard([&] {
        check_out(out_plan, "out_plan");
        if (runtime) check_handle(runtime, "runtime");
        const PlanDesc whole(desc);
        RuntimeRef ref(runtime);
        moe_plan* plan = create_in<moe_plan>(ref->memory, &*ref, whole.get());
        plan->runtime->log(MOE_LOG_INFO, "plan: {} {}, experts {}, {} tokens at a time",
                           plan->is_cuda() ? "cuda" : "cpu", plan->device_index,
                           plan->chosen(MOE_STAGE_EXPERTS).name(), plan->chunk_tokens());
        *out_plan = plan;
    });
}

void moe_plan_destroy(moe_plan* plan) noexcept {
    if (!plan || !is_living(plan)) return;
    RuntimeRef ref(&*plan->runtime);
    destroy_in(ref->memory, plan);
}

moe_status moe_supports(moe_runtime* runtime, const moe_plan_desc* desc) noexcept {
    return guard([&] {
        if (runtime) check_handle(runtime, "runtime");
        const PlanDesc whole(desc);
        const moe_plan plan(runtime, whole.get());
    });
}

moe_status moe_plan_key(moe_runtime* runtime, const moe_plan_desc* desc,
                        uint8_t out_key[16]) noexcept {
    return guard([&] {
        if (runtime) check_handle(runtime, "runtime");
        const PlanDesc whole(desc);
        const moe_plan plan(runtime, whole.get());
        copy_id(plan.key, out_key, "out_key");
    });
}

moe_status moe_plan_layout_id(const moe_plan* plan, uint8_t out_id[16]) noexcept {
    return guard([&] { copy_id(check_handle(plan, "plan").layout.id, out_id, "out_id"); });
}

moe_status moe_plan_device(const moe_plan* plan, moe_device_kind* out_kind, int32_t* out_index,
                           const char** out_reason) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_out(out_kind, "out_kind");
        check_out(out_index, "out_index");
        *out_kind = plan->device;
        *out_index = plan->device_index;
        if (out_reason) *out_reason = plan->device_reason;
    });
}

moe_status moe_plan_workspace_size(const moe_plan* plan, int64_t n_tokens,
                                   moe_workspace_need* out_need) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_out(out_need, "out_need");
        require(n_tokens >= 0, "n_tokens is {}", n_tokens);
        const int64_t tokens = std::min(n_tokens, plan->max_tokens);
        write_struct(out_need, plan->workspace_need(tokens), "moe_workspace_need");
    });
}

moe_status moe_plan_kernel(const moe_plan* plan, moe_stage stage, int64_t n_tokens,
                           const char** out_name) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        require(n_tokens >= 0 && n_tokens <= plan->max_tokens,
                "n_tokens is {}, the plan takes 0 to {}", n_tokens, plan->max_tokens);
        check_out(out_name, "out_name") = plan->typical(stage, n_tokens).name();
    });
}

moe_status moe_candidates(const moe_plan* plan, uint32_t index,
                          moe_candidate* out_candidate) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_out(out_candidate, "out_candidate");
        if (index >= plan->candidates.size())
            fail(MOE_ERROR_NOT_FOUND, "index is {}, there are {} candidates", index,
                 plan->candidates.size());
        write_struct(out_candidate, to_public(plan->candidates[index]), "moe_candidate");
    });
}

moe_status moe_plan_explain(const moe_plan* plan, moe_explain_form form, char* buffer,
                            uint64_t capacity, uint64_t* out_size) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        require(form == MOE_EXPLAIN_TEXT || form == MOE_EXPLAIN_JSON,
                "form is {}, not a moe_explain_form", static_cast<int32_t>(form));
        const std::string text =
            form == MOE_EXPLAIN_JSON ? explain_json(*plan) : explain_text(*plan);
        copy_text(text.data(), text.size(), buffer, capacity, out_size);
    });
}
