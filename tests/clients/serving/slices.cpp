// Ranks that hold some of the experts, or some of the intermediate features: each loads its own
// bytes only, gives its partial sum, and what does not belong to a slice is added once by
// moe_finish.
#include "serving/serving.hpp"

namespace clients {
namespace {

constexpr uint32_t routed_stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;

moe_plan_desc partial_plan(const Batch& batch, const moe_slice& slice, uint32_t stages) {
    moe_plan_desc desc = batch.plan_desc();
    desc.partial = 1;
    desc.slice = &slice;
    desc.stages = stages;
    return desc;
}

uint64_t whole_bytes(const Batch& batch, int role) {
    const RoleShape shape = shape_of(batch.layer.desc, role);
    return uint64_t(shape.n * shape.rows * shape.columns) * 4;
}

// The role's bytes are the part numerator / denominator of the whole layer's.
void check_bytes(const Batch& batch, const moe_memory_report& report, int role, int64_t numerator,
                 int64_t denominator) {
    const uint64_t want = whole_bytes(batch, role) * uint64_t(numerator) / uint64_t(denominator);
    CHECK(report.role_bytes[role] == want,
          "role %d has %llu bytes, the slice %lld/%lld of it has %llu", role,
          static_cast<unsigned long long>(report.role_bytes[role]),
          static_cast<long long>(numerator), static_cast<long long>(denominator),
          static_cast<unsigned long long>(want));
}

void add(std::vector<float>& sum, const std::vector<float>& part) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
}

// ---- experts over ranks
// ---------------------------------------------------------------------------------------

struct ExpertSplit {
    const char* name;
    std::vector<std::vector<int32_t>> ranks;  // global ids in local order
    bool as_range;
};

moe_slice slice_of(const std::vector<int32_t>& experts, bool as_range, std::vector<int32_t>& map) {
    auto slice = sized<moe_slice>();
    if (as_range) {
        slice.has_expert_range = 1;
        slice.expert_begin = experts.front();
        slice.expert_count = int32_t(experts.size());
        return slice;
    }
    for (size_t local = 0; local < experts.size(); ++local)
        map[size_t(experts[local])] = int32_t(local);
    slice.expert_to_local = map.data();
    slice.n_expert_to_local = int32_t(map.size());
    return slice;
}

// The partial sum of one rank, [T, L]; added to *accumulated too by a second call.
std::vector<float> run_rank(const Batch& batch, const std::vector<int32_t>& experts, bool as_range,
                            std::vector<float>& accumulated) {
    std::vector<int32_t> map(size_t(batch.E()), -1);
    const moe_slice slice = slice_of(experts, as_range, map);
    const LayerRun run(nullptr, batch.tensors, partial_plan(batch, slice, routed_stages));

    const moe_memory_report report = memory_of(run.weights);
    CHECK(report.n_local_experts == experts.size(), "%u local experts", report.n_local_experts);
    for (int role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN, MOE_ROLE_DOWN_BIAS})
        check_bytes(batch, report, role, int64_t(experts.size()), batch.E());
    for (int role :
         {MOE_ROLE_ROUTER, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN, MOE_ROLE_LATENT_OUT})
        check_bytes(batch, report, role, 0, 1);
    check_bytes(batch, report, MOE_ROLE_LATENT_IN, 1, 1);

    std::vector<float> out = poisoned(batch.T * batch.L());
    moe_forward_args args = batch.given_routing(out);
    CHECK_OK(run.forward(args));
    args.out = accumulated.data();
    args.accumulate = 1;
    CHECK_OK(run.forward(args));
    return out;
}

// A plan for what follows the sum: it needs no expert at all. Partial, so that identity experts are
// its business.
std::vector<float> finish_alone(const Batch& batch, const std::vector<float>& routed) {
    moe_plan_desc desc = batch.plan_desc();
    desc.stages = MOE_STAGE_FINISH;
    desc.partial = 1;
    const LayerRun run(nullptr, batch.tensors, desc);
    const moe_memory_report report = memory_of(run.weights);
    for (int role : {MOE_ROLE_ROUTER, MOE_ROLE_GATE, MOE_ROLE_DOWN, MOE_ROLE_LATENT_IN})
        check_bytes(batch, report, role, 0, 1);
    for (int role : {MOE_ROLE_SHARED_UP, MOE_ROLE_LATENT_OUT})
        check_bytes(batch, report, role, 1, 1);

    std::vector<float> out = poisoned(batch.T * batch.H());
    auto args = sized<moe_finish_args>();
    args.n_tokens = batch.T;
    args.routed = routed.data();
    args.x = batch.x.data();
    args.ids = batch.routing.ids.data();
    args.weights = batch.routing.weights.data();
    args.out = out.data();
    CHECK_OK(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
    return out;
}

void run_split(const Batch& batch, const ExpertSplit& split, const Doubles& want_routed,
               const Doubles& want) {
    std::vector<float> sum(size_t(batch.T * batch.L())), accumulated(sum);
    for (const std::vector<int32_t>& experts : split.ranks)
        add(sum, run_rank(batch, experts, split.as_range, accumulated));
    CHECK_ROWS(want_routed, sum, batch.T, batch.L(), f32_tolerance, split.name);
    CHECK_ROWS(want_routed, accumulated, batch.T, batch.L(), f32_tolerance,
               "  accumulated by the library");
    const std::vector<float> out = finish_alone(batch, sum);
    CHECK_ROWS(want, out, batch.T, batch.H(), f32_tolerance, "  -> finish");
}

// Memory of the engine's own, as large as the library says and no byte written behind it.
void caller_memory(const Batch& batch) {
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_begin = 2;
    slice.expert_count = 3;
    const Plan plan = make_plan(nullptr, partial_plan(batch, slice, routed_stages));
    moe_weights_desc desc = batch.tensors.weights_desc();
    desc.ownership = MOE_OWN_CALLER;
    CHECK_OK(moe_weights_size(plan.get(), &desc, &desc.memory_bytes));
    const uint64_t experts = (whole_bytes(batch, MOE_ROLE_GATE) + whole_bytes(batch, MOE_ROLE_UP) +
                              whole_bytes(batch, MOE_ROLE_DOWN)) *
                             3 / uint64_t(batch.E());
    CHECK(desc.memory_bytes >= experts && desc.memory_bytes < 2 * experts,
          "%llu bytes for experts of %llu", static_cast<unsigned long long>(desc.memory_bytes),
          static_cast<unsigned long long>(experts));

    constexpr size_t guard = 64;
    const size_t padded = (size_t(desc.memory_bytes) + 63) / 64 * 64 + guard;
    const std::unique_ptr<unsigned char, Destroy<std::free>> memory(
        static_cast<unsigned char*>(std::aligned_alloc(64, padded)));
    std::memset(memory.get(), 0xA5, padded);
    desc.memory = memory.get();
    const Weights weights = load_weights(plan.get(), desc);
    for (size_t i = size_t(desc.memory_bytes); i < padded; ++i)
        CHECK(memory.get()[i] == 0xA5, "byte %zu behind the caller's memory was written",
              i - size_t(desc.memory_bytes));
    desc.memory_bytes -= 1;
    moe_weights* refused = nullptr;
    CHECK_REFUSED(moe_weights_load(plan.get(), &desc, &refused), MOE_ERROR_INVALID_ARGUMENT,
                  "memory_bytes");
    std::puts("  weights in the engine's own memory");
}

// Identity experts belong to no rank: the sums leave them out, moe_finish adds them once.
void identity_experts_over_ranks() {
    moe_layer_desc desc = plain_layer(64, 48, 7, 3);
    desc.n_identity_experts = 3;
    desc.has_down_bias = 1;
    const Batch batch(desc, 25, Form::stacked, 350);
    RoutingResult real = batch.routing.reference();
    for (int32_t& id : real.ids)
        if (id >= batch.E()) id = -1;
    const Doubles want_routed = reference_routed(batch.layer, batch.x, batch.T, real);
    const Doubles want =
        reference_forward(batch.layer, batch.x, batch.T, batch.routing.reference());
    const ExpertSplit split{"identity experts belong to no rank", {{0, 1, 2}, {3, 4, 5, 6}}, true};
    run_split(batch, split, want_routed, want);
}

// ---- features over ranks
// ----------------------------------------------------------------------------------------

struct FeatureRank {
    Range routed, shared;
};

moe_slice slice_of(const FeatureRank& rank) {
    auto slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = int32_t(rank.routed.begin);
    slice.intermediate_count = int32_t(rank.routed.count);
    slice.has_shared_range = 1;
    slice.shared_begin = int32_t(rank.shared.begin);
    slice.shared_count = int32_t(rank.shared.count);
    return slice;
}

void check_rank_bytes(const Batch& batch, const LayerRun& run, const FeatureRank& rank) {
    const moe_memory_report report = memory_of(run.weights);
    const moe_layer_desc& d = batch.layer.desc;
    for (int role :
         {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN, MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS})
        check_bytes(batch, report, role, rank.routed.count, d.intermediate);
    for (int role : {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN})
        check_bytes(batch, report, role, rank.shared.count, d.shared_intermediate);
}

// The rank's share of the shared expert, already times the factor of the combine rule, so that the
// sum needs no more.
std::vector<float> shared_part(const Batch& batch, const LayerRun& run) {
    std::vector<float> out = poisoned(batch.T * batch.H());
    auto args = sized<moe_finish_args>();
    args.parts = MOE_FINISH_SHARED | MOE_FINISH_COMBINE;
    args.n_tokens = batch.T;
    args.x = batch.x.data();
    args.out = out.data();
    CHECK_OK(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
    return out;
}

void add_routed(const Batch& batch, const LayerRun& run, const std::vector<float>& routed,
                std::vector<float>& out) {
    auto args = sized<moe_finish_args>();
    args.parts = MOE_FINISH_DOWN_BIAS | MOE_FINISH_LATENT | MOE_FINISH_COMBINE;
    args.n_tokens = batch.T;
    args.routed = routed.data();
    args.ids = batch.routing.ids.data();
    args.weights = batch.routing.weights.data();
    args.out = out.data();
    args.accumulate = 1;
    CHECK_OK(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
}

}  // namespace

void expert_parallel() {
    std::puts("experts over ranks");
    const Batch batch(rich_layer(), 29, Form::tensor_per_expert, 300);
    const RoutingResult routing = batch.routing.reference();
    const Doubles want_routed = reference_routed(batch.layer, batch.x, batch.T, routing);
    const Doubles want = reference_finish(batch.layer, batch.x, batch.T, want_routed);
    run_split(batch, {"ranges 0..3, 4..8", {{0, 1, 2, 3}, {4, 5, 6, 7, 8}}, true}, want_routed,
              want);
    run_split(batch, {"ranges 0, 1..5, 6..8", {{0}, {1, 2, 3, 4, 5}, {6, 7, 8}}, true}, want_routed,
              want);
    run_split(batch, {"odd and even experts", {{0, 2, 4, 6, 8}, {1, 3, 5, 7}}, false}, want_routed,
              want);
    run_split(batch, {"maps in no order", {{8, 0, 5}, {7, 6, 1, 4}, {3, 2}}, false}, want_routed,
              want);
    caller_memory(batch);
    identity_experts_over_ranks();
}

void tensor_parallel() {
    std::puts("features over ranks");
    const Batch batch(rich_layer(), 29, Form::stacked, 400);
    const Doubles want =
        reference_forward(batch.layer, batch.x, batch.T, batch.routing.reference());
    const FeatureRank ranks[] = {{{0, 48}, {0, 16}}, {{48, 32}, {16, 32}}};

    std::vector<float> routed(size_t(batch.T * batch.L())), out(size_t(batch.T * batch.H()));
    std::deque<LayerRun> runs;
    for (const FeatureRank& rank : ranks) {
        const moe_slice slice = slice_of(rank);
        runs.emplace_back(nullptr, batch.tensors, partial_plan(batch, slice, 0));
        check_rank_bytes(batch, runs.back(), rank);
        std::vector<float> part = poisoned(batch.T * batch.L());
        CHECK_OK(runs.back().forward(batch.given_routing(part)));
        add(routed, part);
        add(out, shared_part(batch, runs.back()));
    }
    add_routed(batch, runs.front(), routed, out);
    CHECK_ROWS(want, out, batch.T, batch.H(), f32_tolerance, "sums of two ranks -> finish");

    moe_slice odd = slice_of(ranks[0]);
    odd.intermediate_count = 200;
    CHECK_REFUSED(moe_supports(nullptr,
                               [&] {
                                   static moe_plan_desc desc;
                                   desc = partial_plan(batch, odd, 0);
                                   return &desc;
                               }()),
                  MOE_ERROR_INVALID_ARGUMENT, "intermediate");
}

}  // namespace clients
