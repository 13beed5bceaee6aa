// Which families there are is read from the names of a plan's candidates.
#include "families.hpp"

#include <map>
#include <utility>

#include "launches.hpp"

namespace moe_gpu {
namespace {

struct Forced {
    std::string kernel;  // of the experts
    std::string filter;
};

std::vector<moe_candidate> candidates_of(const moe_plan* plan) {
    std::vector<moe_candidate> all;
    auto candidate = sized<moe_candidate>();
    while (moe_candidates(plan, static_cast<uint32_t>(all.size()), &candidate) == MOE_OK)
        all.push_back(candidate);
    return all;
}

// A layer on the grid of 64 must not lose these two families to its own shapes or formats.
void expect_reason(Context& context, const moe_candidate& candidate, const KernelName& name) {
    if (candidate.applicable || (name.family != "gemv" && name.family != "grouped_gemm")) return;
    for (const std::string mistake : {"size", "weight_type"})
        context.expect(candidate.reason_code != mistake,
                       text("%s does not apply: %s", candidate.kernel, candidate.reason));
}

std::vector<Forced> families_of(Context& context, const moe_plan* plan) {
    std::vector<std::string> order;
    std::map<std::string, Forced> by_group;
    for (const moe_candidate& candidate : candidates_of(plan)) {
        const KernelName name(candidate.kernel);
        if (candidate.stage == MOE_STAGE_EXPERTS) {
            expect_reason(context, candidate, name);
            context.expect(!name.family.empty(),
                           text("%s names no family of kernels", candidate.kernel));
            if (!can_force(candidate) || by_group.count(name.group())) continue;
            order.push_back(name.group());
            by_group[name.group()] = {candidate.kernel, std::string("experts:") + candidate.kernel};
        } else if (candidate.stage == MOE_STAGE_FINISH && can_force(candidate)) {
            // Candidates come stage by stage: the experts' are known.
            const auto found = by_group.find(name.group());
            if (found != by_group.end())
                found->second.filter += std::string(",finish:") + candidate.kernel;
        }
    }
    std::vector<Forced> all;
    for (const std::string& group : order) {
        Forced& forced = all.emplace_back(by_group[group]);
        forced.filter = context.device.with_its_own(forced.filter);
    }
    return all;
}

// In this process or one that it started.
bool ran(const Context& context, const std::string& kernel, size_t mark) {
    if (!are_launches_recorded()) return context.kernels.count(kernel) > 0;
    std::set<std::string> launched = names_of(launches_since(mark));
    launched.insert(context.launched_elsewhere.begin(), context.launched_elsewhere.end());
    for (const std::string& name : launched)
        if (stands_for(kernel, name)) return true;
    return false;
}

void use_family(Context& context, const Forced& forced, const std::function<void()>& use) {
    const size_t n_before = context.failures.size(), mark = launch_mark();
    const std::set<std::string> named = std::exchange(context.kernels, {});
    const std::set<std::string> elsewhere = std::exchange(context.launched_elsewhere, {});
    use();
    context.expect(ran(context, forced.kernel, mark), "it is forced and never runs");
    context.kernels.insert(named.begin(), named.end());
    context.launched_elsewhere.insert(elsewhere.begin(), elsewhere.end());
    for (size_t i = n_before; i < context.failures.size(); ++i)
        context.failures[i] = forced.kernel + ": " + context.failures[i];
}

}  // namespace

void force_every_family(Context& context, const PairSpec& spec,
                        const std::function<void(const ForcePlan&)>& use) {
    if (!context.device.is_cuda()) return use([](moe_plan_desc&) {});
    std::vector<Forced> families;
    {
        const Pair pair(context, spec);
        families = families_of(context, pair.subject.plan.get());
    }
    for (const Forced& forced : families)
        use_family(context, forced, [&] {
            use([&](moe_plan_desc& desc) { desc.kernel_filter = forced.filter.c_str(); });
        });
}

void with_every_family(Context& context, const PairSpec& spec,
                       const std::function<void(const Pair&)>& use) {
    auto data = std::make_shared<LayerData>(spec.layer);
    PairSpec forced = spec;
    force_every_family(context, spec, [&](const ForcePlan& force) {
        forced.subject = [&](moe_plan_desc& desc) {
            if (spec.subject) spec.subject(desc);
            force(desc);
        };
        const Pair pair(context, forced, data);
        forced.loaded = pair.subject.weights;
        use(pair);
    });
}

}  // namespace moe_gpu
