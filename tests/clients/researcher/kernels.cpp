// Candidates: enumerated, forced one by one, refused where they do not apply.
#include <string>

#include "researcher/researcher.hpp"
#include "support/layer_tensors.hpp"
#include "support/reference_layer.hpp"

namespace clients {
namespace {

constexpr moe_stage stages[] = {MOE_STAGE_ROUTE, MOE_STAGE_DISPATCH, MOE_STAGE_EXPERTS,
                                MOE_STAGE_COMBINE, MOE_STAGE_FINISH};

struct Candidate {
    moe_stage stage;
    bool chosen, applicable;
    std::string kernel, reason_code, reason;
};

std::vector<Candidate> candidates_of(const moe_plan* plan) {
    std::vector<Candidate> result;
    for (uint32_t index = 0;; ++index) {
        auto candidate = sized<moe_candidate>();
        const moe_status status = moe_candidates(plan, index, &candidate);
        if (status == MOE_ERROR_NOT_FOUND) return result;
        CHECK_OK(status);
        CHECK(candidate.kernel && candidate.reason_code && candidate.reason,
              "candidate %u lacks a text", index);
        result.push_back({candidate.stage, candidate.chosen != 0, candidate.applicable != 0,
                          candidate.kernel, candidate.reason_code, candidate.reason});
    }
}

void check_order(const moe_plan* plan, const std::vector<Candidate>& candidates) {
    for (size_t i = 1; i < candidates.size(); ++i)
        CHECK(candidates[i - 1].stage <= candidates[i].stage, "stages are not in order at %zu", i);
    for (moe_stage stage : stages) {
        int chosen = 0;
        for (const Candidate& c : candidates) {
            if (c.stage != stage || !c.chosen) continue;
            ++chosen;
            CHECK(c.applicable && c.reason_code == "chosen", "%s is chosen: \"%s\"",
                  c.kernel.c_str(), c.reason_code.c_str());
            const char* name = nullptr;
            CHECK_OK(moe_plan_kernel(plan, stage, 1, &name));
            CHECK(c.kernel == name, "plan_kernel says %s, the candidates %s", name,
                  c.kernel.c_str());
        }
        CHECK(chosen == 1, "stage %d has %d chosen candidates", int(stage), chosen);
    }
}

struct Study {
    LayerWeights layer;
    LayerTensors tensors;
    int64_t T = 21;
    std::vector<float> x;

    explicit Study(const char* format)
        : layer(random_weights(description(), 51)),
          tensors(layer, format, Form::stacked),
          x(Random(52).values(T * 128)) {}

    static moe_layer_desc description() {
        moe_layer_desc desc = plain_layer(128, 80, 8, 3);
        desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
        desc.activation_up_offset = 1.0f;
        desc.has_activation_alpha = 1;
        desc.activation_alpha = 1.702f;
        desc.has_gate_limit = desc.has_up_limit = 1;
        desc.gate_limit = desc.up_limit = 2.0f;
        desc.shared_intermediate = 64;
        desc.shared_activation = MOE_ACTIVATION_SILU;
        desc.shared_is_gated = 1;
        return desc;
    }

    moe_plan_desc plan_desc(moe_type intermediate) const {
        moe_plan_desc desc = tensors.plan_desc(layer.desc, T);
        desc.intermediate_type = intermediate;
        return desc;
    }

    std::vector<float> run(const moe_plan_desc& desc) const {
        const LayerRun run(nullptr, tensors, desc);
        std::vector<float> out = poisoned(T * layer.desc.hidden);
        auto args = sized<moe_forward_args>();
        args.n_tokens = T;
        args.x = x.data();
        args.out = out.data();
        CHECK_OK(run.forward(args));
        return out;
    }
};

// How many of the candidates could be run.
int run_each(const Study& study, moe_type intermediate, const std::vector<float>& reference) {
    const Plan free_plan = make_plan(nullptr, study.plan_desc(intermediate));
    const std::vector<Candidate> candidates = candidates_of(free_plan.get());
    check_order(free_plan.get(), candidates);
    int ran = 0;
    for (const Candidate& c : candidates) {
        if (!c.applicable) continue;
        moe_plan_desc desc = study.plan_desc(intermediate);
        desc.kernel_filter = c.kernel.c_str();
        const Plan forced = make_plan(nullptr, desc);
        const char* name = nullptr;
        CHECK_OK(moe_plan_kernel(forced.get(), c.stage, study.T, &name));
        CHECK(c.kernel == name, "forced %s, the plan has %s", c.kernel.c_str(), name);
        const std::vector<float> out = study.run(desc);
        CHECK_ROWS(reference, out, study.T, study.layer.desc.hidden, f32_tolerance,
                   c.kernel.c_str());
        ++ran;
    }
    return ran;
}

}  // namespace

void every_candidate_against_the_reference() {
    for (const char* format : {"f32", "bf16"}) {
        std::printf("candidates, %s weights\n", format);
        const Study study(format);
        const std::vector<float> reference = study.run(study.plan_desc(MOE_TYPE_F64));
        const Doubles own = reference_forward(study.layer, study.x, study.T,
                                              reference_route(study.layer, study.x, study.T));
        CHECK_ROWS(own, reference, study.T, study.layer.desc.hidden, 1e-6,
                   "fp64 reference against the client's own");
        const int in_f32 = run_each(study, MOE_TYPE_F32, reference);
        const int in_f64 = run_each(study, MOE_TYPE_F64, reference);
        CHECK(in_f32 >= 5 && in_f64 >= 5, "%d and %d candidates for five stages", in_f32, in_f64);
    }
}

// A glob that one stage is bound to leaves the others as they were.
void a_glob_forces_a_stage() {
    std::puts("globs of names");
    const Study study("bf16");
    const Plan free_plan = make_plan(nullptr, study.plan_desc(MOE_TYPE_F32));
    moe_plan_desc desc = study.plan_desc(MOE_TYPE_F32);
    desc.kernel_filter = "experts:*_f32_experts_ref";
    const Plan forced = make_plan(nullptr, desc);
    for (const moe_stage stage : {MOE_STAGE_ROUTE, MOE_STAGE_EXPERTS, MOE_STAGE_FINISH}) {
        const char *name = nullptr, *usual = nullptr;
        CHECK_OK(moe_plan_kernel(forced.get(), stage, study.T, &name));
        CHECK_OK(moe_plan_kernel(free_plan.get(), stage, study.T, &usual));
        const char* wanted = stage == MOE_STAGE_EXPERTS ? "cpu_any_f32_experts_ref" : usual;
        CHECK(std::strcmp(name, wanted) == 0, "the plan has %s instead of %s", name, wanted);
    }
}

void refused_candidates_say_why() {
    std::puts("candidates that do not apply");
    const Study study("f32");
    int refused = 0;
    for (moe_type intermediate : {MOE_TYPE_F32, MOE_TYPE_F64}) {
        const Plan plan = make_plan(nullptr, study.plan_desc(intermediate));
        for (const Candidate& c : candidates_of(plan.get())) {
            if (c.applicable) continue;
            moe_plan_desc desc = study.plan_desc(intermediate);
            const std::string filter = "+" + c.kernel;
            desc.kernel_filter = filter.c_str();
            CHECK_REFUSED(moe_supports(nullptr, &desc), MOE_ERROR_UNSUPPORTED, c.kernel.c_str());
            CHECK_REFUSED(moe_supports(nullptr, &desc), MOE_ERROR_UNSUPPORTED, c.reason.c_str());
            std::printf("  %s (%s): %s\n", c.kernel.c_str(), c.reason_code.c_str(),
                        moe_last_error());
            ++refused;
        }
    }
    CHECK(refused > 0, "every candidate applies to float32 and float64: nothing was shown");

    moe_plan_desc desc = study.plan_desc(MOE_TYPE_F32);
    desc.kernel_filter = "no_such_kernel";
    CHECK(moe_supports(nullptr, &desc) != MOE_OK && std::strstr(moe_last_error(), "no_such_kernel"),
          "an unknown name: %s", moe_last_error());
    std::string all_forbidden;
    const Plan plan = make_plan(nullptr, study.plan_desc(MOE_TYPE_F32));
    for (const Candidate& c : candidates_of(plan.get()))
        if (c.stage == MOE_STAGE_EXPERTS)
            all_forbidden += (all_forbidden.empty() ? "-" : ",-") + c.kernel;
    desc.kernel_filter = all_forbidden.c_str();
    CHECK_REFUSED(moe_supports(nullptr, &desc), MOE_ERROR_UNSUPPORTED, "experts");
}

}  // namespace clients
