// moe_route: TritonMoE's router grid (tokens, experts, k; model sizes; edges), and every routing
// rule of moe.h from given logits, where device and CPU must agree to the bit.
#include <dlfcn.h>

#include <cmath>

#include "compare.hpp"
#include "layer_kinds.hpp"
#include "stages.hpp"

namespace moe_gpu {
namespace {

void only_route(moe_plan_desc& desc) {
    desc.stages = MOE_STAGE_ROUTE;
}

Result as_result(const Routed& routed) {
    Result result;
    result.ids = routed.ids;
    result.weights = routed.weights;
    result.logits = routed.logits;
    return result;
}

void note_kernel(const Pair& pair, int64_t n_tokens) {
    const char* name = nullptr;
    if (moe_plan_kernel(pair.subject.plan.get(), MOE_STAGE_ROUTE, n_tokens, &name) == MOE_OK)
        pair.context.kernels.insert(name);
}

// From x: ids and weights wherever the logits decide.
Result check_from_x(const Pair& pair, int64_t n_tokens, float scale, uint64_t seed = 3) {
    Route call;
    call.n_tokens = n_tokens;
    call.x = pair.x(n_tokens, seed);
    for (float& value : call.x) value *= scale;
    call.x = rounded(call.x, pair.spec.numbers.x);
    call.uses_second_bias = random_second_bias(pair.desc(), n_tokens, seed);
    Forward same;
    same.n_tokens = n_tokens;
    same.x = call.x;
    same.uses_second_bias = call.uses_second_bias;
    const Result got = as_result(route(pair.subject, call));
    const Result wanted = as_result(route(pair.reference, call));
    note_kernel(pair, n_tokens);
    measure_routing(pair, got, wanted, decided_tokens(pair.reference, same, wanted), n_tokens,
                    "from x");
    return got;
}

// Softmax and sigmoid hold to this, whatever the reference says: ids in range, each once for a
// token, weights that are not negative and add up to 1 at most.
void check_gating(const Pair& pair, int64_t n_tokens, float scale) {
    const Result got = check_from_x(pair, n_tokens, scale);
    const auto k = static_cast<size_t>(pair.desc().top_k);
    for (size_t t = 0; t < static_cast<size_t>(n_tokens); ++t) {
        std::set<int32_t> ids;
        double sum = 0;
        bool good = true;
        for (size_t i = t * k; i < (t + 1) * k; ++i) {
            good = good && got.ids[i] >= 0 && got.ids[i] < pair.desc().n_experts;
            good = good && got.weights[i] >= 0;
            ids.insert(got.ids[i]);
            sum += got.weights[i];
        }
        pair.context.expect(good && ids.size() == k && sum <= 1 + 1e-5,
                            text("token %zu has a routing that the gating cannot give", t));
    }
}

// From logits: ids to the bit, weights to the last place.
void check_from_logits(const Pair& pair, const Floats& logits, int64_t n_tokens) {
    Route call;
    call.n_tokens = n_tokens;
    call.routing = MOE_ROUTING_LOGITS;
    call.logits = logits;
    call.token_ids = random_token_ids(pair.desc(), n_tokens, 5);
    call.uses_second_bias = random_second_bias(pair.desc(), n_tokens, 5);
    const Routed got = route(pair.subject, call), wanted = route(pair.reference, call);
    note_kernel(pair, n_tokens);
    pair.context.expect(got.ids == wanted.ids, "from logits: ids differ");
    pair.context.measure("from logits: ulps of weights",
                         static_cast<double>(most_ulps(got.weights, wanted.weights)), 1);
    if (pair.desc().selection == MOE_SELECT_HASH) return;
    // The same ids given: the same weights.
    call.routing = MOE_ROUTING_IDS;
    call.ids.assign(wanted.ids.begin(), wanted.ids.end());
    const Floats by_ids = route(pair.subject, call).weights;
    pair.context.measure("from ids: ulps of weights",
                         static_cast<double>(most_ulps(by_ids, wanted.weights)), 1);
}

PairSpec route_spec(const moe_layer_desc& desc, const Numbers& numbers, int64_t max_tokens,
                    const char* router_format = "bf16") {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.router_format = numbers.x == MOE_TYPE_F32 ? "f32" : router_format;
    spec.layer.distinct_experts = 1;  // of experts nothing is loaded
    spec.numbers = numbers;
    spec.max_tokens = max_tokens;
    spec.both = only_route;
    return spec;
}

struct Gating {
    const char* name;
    moe_score score;
    moe_renormalize renormalize;
    float eps;
};
constexpr Gating gatings[] = {
    {"softmax", MOE_SCORE_SOFTMAX, MOE_RENORMALIZE_NONE, 0},
    {"sigmoid", MOE_SCORE_SIGMOID, MOE_RENORMALIZE_SUM_ADD, 1e-6f},
};

moe_layer_desc gated_layer(const Gating& gating, int32_t hidden, int32_t n_experts, int32_t k) {
    moe_layer_desc desc = plain_layer(hidden, 16, n_experts, k);
    desc.score = gating.score;
    desc.renormalize = gating.renormalize;
    desc.renormalize_eps = gating.eps;
    return desc;
}

constexpr ExpertsAndK expert_grid[] = {{8, 2}, {64, 4}, {256, 8}};

void add_grid(CaseList& list) {
    for (const Gating& gating : gatings)
        for (const auto& [n, k] : expert_grid)
            for (const Numbers& numbers : common_numbers)
                for (const int64_t T : {1, 32, 128, 512}) {
                    const moe_layer_desc desc = gated_layer(gating, 256, n, k);
                    list.add(text("triton/router_%s/t%ld_e%d_k%d/%s", gating.name,
                                  static_cast<long>(T), n, k, numbers.name),
                             T == 32 ? Extent::smoke : Extent::full, [=](Context& context) {
                                 const Pair pair(context, route_spec(desc, numbers, T));
                                 check_gating(pair, T, 1);
                                 check_from_logits(pair, normal(T * n, 9, 1.5f), T);
                             });
                }
}

struct Model {
    const char* name;
    int32_t hidden, n_experts, k;
};
constexpr Model models[] = {{"mixtral_8x7b", 4096, 8, 2},
                            {"mixtral_8x22b", 6144, 8, 2},
                            {"qwen2_moe_57b", 3584, 64, 4},
                            {"deepseek_v3", 7168, 256, 8}};

void add_models(CaseList& list) {
    for (const Gating& gating : gatings)
        for (const Model& model : models)
            for (const Numbers& numbers : common_numbers) {
                const bool is_sigmoid = gating.score == MOE_SCORE_SIGMOID;
                list.add(text("triton/router_models%s/%s/%s", is_sigmoid ? "_sigmoid" : "",
                              model.name, numbers.name),
                         Extent::full, [=](Context& context) {
                             const moe_layer_desc desc =
                                 gated_layer(gating, model.hidden, model.n_experts, model.k);
                             const Pair pair(context, route_spec(desc, numbers, 1024));
                             for (const int64_t T : {1, 32, 128, 1024}) check_gating(pair, T, 1);
                         });
            }
}

void check_repeats(const Pair& pair) {
    Route call;
    call.n_tokens = 128;
    call.x = pair.x(128);
    const Routed first = route(pair.subject, call);
    for (int i = 0; i < 5; ++i) {
        const Routed again = route(pair.subject, call);
        pair.context.expect(again.ids == first.ids && again.weights == first.weights &&
                                again.logits == first.logits,
                            "the same call gives other bits");
    }
    note_kernel(pair, 128);
}

void add_edges(CaseList& list) {
    for (const Numbers& numbers : common_numbers) {
        const auto add = [&](const char* name, const moe_layer_desc& desc, auto run) {
            list.add(text("triton/router_edge/%s/%s", name, numbers.name), Extent::smoke,
                     [=](Context& context) { run(Pair(context, route_spec(desc, numbers, 128))); });
        };
        const moe_layer_desc desc = gated_layer(gatings[0], 256, 8, 2);
        add("single_token", desc, [](const Pair& pair) { check_gating(pair, 1, 1); });
        add("k_is_e", gated_layer(gatings[0], 256, 8, 8),
            [](const Pair& pair) { check_gating(pair, 32, 1); });
        add("logits_x100", desc, [](const Pair& pair) { check_gating(pair, 128, 100); });
        // float16 holds x of 1e-4 with few digits, but exactly what is rounded is given to both.
        add("logits_x1e-4", desc, [](const Pair& pair) {
            Route call;
            call.n_tokens = 128;
            call.routing = MOE_ROUTING_LOGITS;
            call.logits = normal(128 * 8, 4, 1e-4f);
            check_from_logits(pair, call.logits, 128);
        });
        add("determinism", desc, check_repeats);
    }
}

// Up to four tokens for a multiprocessor a block selects for each, of more a warp: more than that
// on any GPU of today.
constexpr int64_t many_tokens = 800;

// Finite weights that are not numbers on one side only would pass a comparison of ulps.
void check_hard_logits(const Pair& pair, int64_t T) {
    const int64_t n = pair.subject.n_experts_all();
    Route call;
    call.n_tokens = T;
    call.routing = MOE_ROUTING_LOGITS;
    call.logits = hard_logits(T, n);
    call.uses_second_bias = random_second_bias(pair.desc(), T, 7);
    const Routed got = route(pair.subject, call), wanted = route(pair.reference, call);
    note_kernel(pair, T);
    pair.context.expect(got.ids == wanted.ids, "hard logits: ids differ");
    for (const int32_t id : got.ids)
        pair.context.expect(id >= 0 && id < n, text("hard logits: id %d", id));
    pair.context.measure("hard logits: ulps of weights",
                         static_cast<double>(most_ulps(got.weights, wanted.weights)), 1);
}

void add_rules(CaseList& list) {
    for (const NamedLayer& layer : routing_layers())
        for (const Numbers& numbers : {f32, bf16})
            list.add(text("router/rule/%s/%s", layer.name, numbers.name), Extent::smoke,
                     [=](Context& context) {
                         const Pair pair(context,
                                         route_spec(layer.desc, numbers, many_tokens, "f32"));
                         for (const int64_t T : {int64_t{1}, int64_t{7}, many_tokens})
                             check_from_logits(
                                 pair, normal(T * pair.subject.n_experts_all(), 40, 1.5f), T);
                         if (layer.desc.selection == MOE_SELECT_HASH) return;
                         for (const int64_t T : {int64_t{32}, many_tokens})
                             check_hard_logits(pair, T);
                         for (const int64_t T : {1, 33, 200}) check_from_x(pair, T, 1);
                     });
}

// Where several warps select for a token: the same rules with four times as many experts. The
// logits that are far apart have scores that are subnormal, and none.
void add_rules_of_many(CaseList& list) {
    for (const NamedLayer& layer : routing_layers())
        list.add(text("router/rule_of_many/%s", layer.name), Extent::smoke, [=](Context& context) {
            moe_layer_desc desc = layer.desc;
            desc.n_experts *= 4;
            const Pair pair(context, route_spec(desc, bf16, many_tokens, "f32"));
            const int64_t n = pair.subject.n_experts_all();
            for (const float spread : {1.5f, 40.0f, 100.0f})
                for (const int64_t T : {int64_t{9}, many_tokens})
                    check_from_logits(pair, normal(T * n, 41, spread), T);
            if (layer.desc.selection != MOE_SELECT_HASH)
                for (const int64_t T : {int64_t{32}, many_tokens}) check_hard_logits(pair, T);
        });
}

void add_sizes(CaseList& list) {
    constexpr ExpertsAndK sizes[] = {{1, 1},    {2, 2},    {31, 5},    {33, 33},
                                     {64, 64},  {96, 7},   {128, 16},  {257, 10},
                                     {384, 22}, {512, 32}, {1000, 10}, {4096, 64}};
    for (const auto& [n, k] : sizes)
        list.add(text("router/size/e%d_k%d", n, k), Extent::smoke, [=](Context& context) {
            const Pair pair(context,
                            route_spec(gated_layer(gatings[0], 160, n, k), bf16, many_tokens));
            check_from_x(pair, 40, 1);
            for (const int64_t T : {int64_t{24}, many_tokens})
                check_from_logits(pair, normal(T * n, 11, 1.5f), T);
        });
}

// Which of them come first their logits do not say, and the lowest index does.
void add_near_ties(CaseList& list) {
    constexpr ExpertsAndK sizes[] = {{24, 4}, {64, 8}, {128, 8}, {512, 10}, {512, 32}};
    for (const auto& [n, k] : sizes)
        list.add(text("router/near_ties/e%d_k%d", n, k), Extent::smoke, [=](Context& context) {
            const Pair pair(context,
                            route_spec(gated_layer(gatings[0], 160, n, k), bf16, many_tokens));
            for (const int64_t T : {int64_t{2}, int64_t{40}, many_tokens})
                check_from_logits(pair, near_ties(T, n), T);
        });
}

// Inkling's: one sum of the chosen and of those that every token takes, first in its slots.
void add_always_chosen(CaseList& list) {
    constexpr ExpertsAndK sizes[] = {{18, 5}, {130, 10}, {258, 8}};
    for (const auto& [n, k] : sizes)
        list.add(text("router/always_chosen/e%d_k%d", n, k), Extent::smoke, [=](Context& context) {
            moe_layer_desc desc = gated_layer(gatings[1], 160, n, k);
            desc.has_selection_bias = 1;
            PairSpec spec = route_spec(desc, bf16, many_tokens);
            spec.layer.always_chosen = 2;
            const Pair pair(context, spec);
            for (const int64_t T : {int64_t{1}, int64_t{40}, many_tokens}) {
                const Result got = check_from_x(pair, T, 1);
                for (int64_t t = 0; t < T; ++t) {
                    const int32_t* ids = got.ids.data() + t * k;
                    context.expect(
                        ids[0] == n - 2 && ids[1] == n - 1,
                        text("token %ld begins with %d, %d", static_cast<long>(t), ids[0], ids[1]));
                }
            }
        });
}

void add_formats(CaseList& list) {
    for (const char* format : {"f32", "f16", "bf16"})
        for (const Numbers& numbers : common_numbers)
            for (const int32_t hidden : {32, 96, 704, 2880})
                list.add(text("router/types/%s/h%d/%s", format, hidden, numbers.name),
                         hidden == 704 ? Extent::smoke : Extent::full, [=](Context& context) {
                             PairSpec spec =
                                 route_spec(gated_layer(gatings[1], hidden, 24, 3), numbers, 300);
                             spec.layer.router_format = format;
                             const Pair pair(context, spec);
                             for (const int64_t T : {1, 2, 17, 300}) check_from_x(pair, T, 1);
                         });
}

// By the names under which the library looks for it.
bool is_cublaslt_there() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
        if (dlopen(name, RTLD_NOW | RTLD_LOCAL)) return true;
    return false;
}

bool runs_library(const Pair& pair, int64_t n_tokens) {
    const size_t mark = launch_mark();
    check_from_x(pair, n_tokens, 1);
    return names_of(launches_since(mark)).count("cublaslt_gemm") > 0;
}

// The logits of 256 tokens and more are cuBLASLt's where the machine has it, and the plan lets the
// other tokens of a call decide over the order of a token's sums.
void check_library(Context& context, const Numbers& numbers) {
    if (!context.device.is_cuda()) throw Skip("the CPU has no cuBLASLt");
    need_launches();
    if (!is_cublaslt_there()) throw Skip("the machine has no cuBLASLt");
    PairSpec spec = route_spec(gated_layer(gatings[0], 512, 64, 4), numbers, 1024,
                               numbers.x == MOE_TYPE_F16 ? "f16" : "bf16");
    const Pair pair(context, spec);
    for (const int64_t T : {256, 1024})
        context.expect(runs_library(pair, T),
                       text("T %ld: cuBLASLt did not run", static_cast<long>(T)));
    context.expect(!runs_library(pair, 255), "T 255: cuBLASLt ran");
    spec.subject = [](moe_plan_desc& desc) { desc.batch_invariant = 1; };
    context.expect(!runs_library(Pair(context, spec), 1024), "batch_invariant: cuBLASLt ran");
}

void add_library(CaseList& list) {
    for (const Numbers& numbers : {bf16, f16})
        list.add(text("router/library/%s", numbers.name), Extent::smoke,
                 [=](Context& context) { check_library(context, numbers); });
}

}  // namespace

void add_router_cases(CaseList& list) {
    add_grid(list);
    add_models(list);
    add_edges(list);
    add_rules(list);
    add_rules_of_many(list);
    add_sizes(list);
    add_near_ties(list);
    add_always_chosen(list);
    add_formats(list);
    add_library(list);
}

}  // namespace moe_gpu
