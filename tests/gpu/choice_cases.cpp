// Few tokens from logits to the sum: forward chooses the same experts as the reference, from hard
// logits too, and works with what it chose, whichever kernels the choice is made by.
#include "compare.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

// From the same logits on both sides, so that ids are equal and weights nearly.
void check_choice(const Pair& pair, Forward call, const Floats& logits, const char* what) {
    call.token_ids = random_token_ids(pair.desc(), call.n_tokens, 5);
    call.uses_second_bias = random_second_bias(pair.desc(), call.n_tokens, 5);
    call.routing = MOE_ROUTING_LOGITS;
    call.logits = logits;
    const Result got = pair.run(call), wanted = pair.reference.forward(call);
    const std::string where = text("%s, T %ld", what, static_cast<long>(call.n_tokens));
    pair.context.expect(got.ids == wanted.ids, where + ": ids differ");
    pair.context.expect(got.counts == wanted.counts, where + ": counts differ");
    pair.context.measure(where + ": ulps of weights",
                         static_cast<double>(most_ulps(got.weights, wanted.weights)), 1);
    if (rms(wanted.weights) > 100) return;  // logits of 1e30 as weights
    const auto width = static_cast<int64_t>(wanted.out.size()) / call.n_tokens;
    pair.context.expect(rms(wanted.out) > 0.02, where + ": the reference's output is nothing");
    pair.context.measure(where, worst_row(got.out, wanted.out, width), pair.spec.limit());
}

void check_choices(const Pair& pair) {
    const int64_t n = pair.subject.n_experts_all();
    for (const int64_t T : {1, 2, 3, 4, 16})
        check_choice(pair, pair.call(T), normal(T * n, 30, 1.5f), "logits");
    // Rows 0 to 7 of hard logits are hard in ways of their own, of which a call takes some.
    const Floats hard = hard_logits(8, n);
    for (const int64_t t : {0, 4}) {
        const auto first = hard.begin() + static_cast<ptrdiff_t>(t * n);
        check_choice(pair, pair.call(4), Floats(first, first + 4 * n), "hard logits");
    }
}

// Ids that the caller gives, some of which are no experts: the weights come from logits.
void check_given_ids(const Pair& pair) {
    const auto k = static_cast<int64_t>(pair.desc().top_k);
    Forward call = pair.call(3);
    call.routing = MOE_ROUTING_IDS;
    const std::vector<int32_t> ids = random_ids(3, pair.desc().top_k, pair.desc().n_experts, 12);
    call.ids.assign(ids.begin(), ids.end());
    pair.check(call, "given ids");
    call.ids[static_cast<size_t>(k)] = pair.subject.n_experts_all();
    call.ids.back() = -1;
    pair.check(call, "given ids, one too large and one absent");
}

PairSpec choice_spec(const moe_layer_desc& desc) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.distinct_experts = 5;
    spec.max_tokens = 16;
    return spec;
}

void add_choice(CaseList& list, const std::string& name, const moe_layer_desc& desc) {
    list.add("choice/" + name, Extent::smoke, [=](Context& context) {
        with_every_kernel(context, choice_spec(desc), MOE_STAGE_EXPERTS, check_choices);
    });
}

void add_sizes(CaseList& list) {
    constexpr ExpertsAndK sizes[] = {{1, 1},  {31, 5},   {33, 33},  {40, 8},   {64, 64},
                                     {96, 7}, {257, 10}, {384, 22}, {512, 32}, {513, 4}};
    for (const auto& [n, k] : sizes)
        add_choice(list, text("size/e%d_k%d", n, k), plain_layer(64, 64, n, k));
}

}  // namespace

void add_choice_cases(CaseList& list) {
    for (const NamedLayer& layer : routing_layers())
        add_choice(list, text("rule/%s", layer.name), layer.desc);
    add_sizes(list);
    list.add("choice/given_ids", Extent::smoke, [](Context& context) {
        with_every_kernel(context, choice_spec(plain_layer(128, 64, 16, 4)), MOE_STAGE_EXPERTS,
                          check_given_ids);
    });
}

}  // namespace moe_gpu
