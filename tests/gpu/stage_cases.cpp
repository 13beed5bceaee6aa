// moe_experts in every layout of the table in moe.h, its stop before the activation, and moe_finish
// part by part: what an engine uses that owns its rows.
#include <algorithm>
#include <cmath>

#include "engine.hpp"
#include "families.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

// Tokens to their sums are what a kernel for few tokens makes. What stops before the activation has
// kernels of its own, which no plan names.
void expect_launched(const Engine& engine, const Experts& call,
                     const std::vector<Launch>& launches) {
    if (call.stops_before_activation) return;
    const bool plain = call.in == MOE_IN_TOKENS && call.out == MOE_OUT_REDUCED && !call.x_is_latent;
    engine.pair.expect_launched(launches, MOE_STAGE_EXPERTS, engine.T, !plain);
}

// Both sides; rows that are nobody's must be untouched, the others near.
Floats check(const Engine& engine, const Experts& call, const char* what) {
    const Pair& pair = engine.pair;
    const size_t mark = launch_mark();
    Floats got = experts(pair.subject, call);
    expect_launched(engine, call, launches_since(mark));
    Floats wanted = experts(pair.reference, call);
    clear_padding(call, got, what);
    clear_padding(call, wanted, what);
    pair.context.measure(text("%s, in %d out %d", what, call.in, call.out),
                         worst_row(got, wanted, call.out_columns), pair.spec.limit());
    pair.context.expect(rms(wanted) > 0.02, "the reference is near zero");
    const auto a = pair.subject.faults(), b = pair.reference.faults();
    pair.context.expect(!a.faults && !b.faults, text("%s: faults %#x", what, a.faults));
    for (const std::string& name : pair.subject.kernels(engine.T))
        pair.context.kernels.insert(name);
    return got;
}

void check_cells(const Pair& pair, int64_t n_tokens, bool stops) {
    for (const int32_t block : {0, 16}) {
        const Engine engine(pair, n_tokens, block);
        for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED, MOE_IN_BATCHED})
            for (const auto out : {MOE_OUT_REDUCED, MOE_OUT_PER_SLOT, MOE_OUT_ROWS}) {
                if (in == MOE_IN_BATCHED && out != MOE_OUT_ROWS) continue;
                if (stops && out == MOE_OUT_REDUCED) continue;
                check(engine, engine.call(in, out, stops), stops ? "stopped" : "whole");
            }
    }
}

void check_accumulated(const Pair& pair, int64_t n_tokens) {
    const Engine engine(pair, n_tokens, 0);
    for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED}) {
        Experts call = engine.call(in, MOE_OUT_REDUCED);
        call.base = rounded(normal(n_tokens * engine.L, 3), pair.spec.numbers.out);
        check(engine, call, "accumulated");
    }
}

void check_latent_rows(const Pair& pair, int64_t n_tokens) {
    Engine engine(pair, n_tokens, 4);
    engine.x = rounded(normal(n_tokens * engine.L, 29), pair.spec.numbers.x);
    engine.x_is_latent = true;
    for (const auto out : {MOE_OUT_REDUCED, MOE_OUT_PER_SLOT, MOE_OUT_ROWS})
        check(engine, engine.call(MOE_IN_TOKENS, out), "latent rows");
}

// Weights by row instead of by slot: the same bits.
void check_row_weights(const Pair& pair, int64_t n_tokens) {
    const Engine engine(pair, n_tokens, 4);
    Experts call = engine.call(MOE_IN_SORTED, MOE_OUT_ROWS);
    const Floats by_slot = check(engine, call, "weights by slot");
    for (const int32_t slot : call.row_ids)
        call.row_weights.push_back(slot < 0 ? NAN : call.weights[static_cast<size_t>(slot)]);
    call.weights.clear();
    pair.context.expect(check(engine, call, "weights by row") == by_slot,
                        "weights by row: other bits");
}

// The kernels of a call, those of a family by its name.
std::string launched_by(const Engine& engine, const Experts& call) {
    const size_t mark = launch_mark();
    check(engine, call, "launches");
    std::string launched;
    for (const Launch& launch : launches_since(mark)) {
        const KernelName name(launch.kernel);
        launched += " " + (name.family.empty() ? launch.kernel : name.arch + "_" + name.family);
    }
    return launched;
}

// Rows of the caller are listed and not sorted. Where the results go back to them, down stores them
// there. Hopper's grouped GEMM wants token blocks, which is a launch more.
void check_row_launches(const Pair& pair, int64_t n_tokens) {
    if (!pair.subject.device.is_cuda()) throw Skip("the CPU launches nothing");
    need_launches();
    const std::string hopper = " list_rows gather_rows sm90_grouped_gemm sm90_grouped_gemm";
    const std::string stopped = " list_rows sm80_grouped_gemm";
    const std::string portable = stopped + " sm80_grouped_gemm";
    const Engine engine(pair, n_tokens, 0);
    const auto expect = [&](const Experts& call, const std::string& before,
                            const std::string& after) {
        const std::string launched = launched_by(engine, call);
        const bool is_wanted =
            call.stops_before_activation
                ? launched == before + stopped + after
                : launched == before + hopper + after || launched == before + portable + after;
        pair.context.expect(is_wanted, text("in %d, out %d, stops %d:", call.in, call.out,
                                            call.stops_before_activation) +
                                           launched);
    };
    for (const bool stops : {false, true}) {
        for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED, MOE_IN_BATCHED})
            expect(engine.call(in, MOE_OUT_ROWS, stops), "", "");
        expect(engine.call(MOE_IN_SORTED, MOE_OUT_PER_SLOT, stops), " clear_slots", " copy_rows");
    }
    expect(engine.call(MOE_IN_SORTED, MOE_OUT_REDUCED), " clear_slots", " combine_slots");
}

// Few rows go to gemv as they lie, or gathered by slot.
void check_few_row_launches(const Pair& pair) {
    if (!pair.subject.device.is_cuda()) throw Skip("the CPU launches nothing");
    need_launches();
    if (!pair.subject.takes_few_rows()) throw Skip("too few multiprocessors for two rows");
    const Engine engine(pair, 1, 0);
    const auto expect = [&](moe_in_layout in, moe_out_layout out, const std::string& before,
                            const std::string& after) {
        const std::string launched = launched_by(engine, engine.call(in, out));
        const bool is_wanted = launched == before + " sm90_gemv sm90_gemv" + after ||
                               launched == before + " sm80_gemv sm80_gemv" + after;
        pair.context.expect(is_wanted, text("in %d, out %d:", in, out) + launched);
    };
    const std::string listed = " slots_of_few_rows", gathered = listed + " gather_slots";
    expect(MOE_IN_TOKENS, MOE_OUT_PER_SLOT, " take_slots gather_slots", "");
    expect(MOE_IN_TOKENS, MOE_OUT_ROWS, gathered, "");
    expect(MOE_IN_SORTED, MOE_OUT_ROWS, listed, "");
    expect(MOE_IN_SORTED, MOE_OUT_PER_SLOT, gathered, "");
    expect(MOE_IN_SORTED, MOE_OUT_REDUCED, listed + " take_slots gather_slots", " combine_slots");
}

struct Kind {
    const char* name;
    moe_layer_desc desc;
};

std::vector<Kind> kinds(const moe_layer_desc& rich) {
    moe_layer_desc on_input = rich, latent = rich, ungated = rich, norm = rich;
    on_input.weight_on = MOE_WEIGHT_ON_INPUT;
    latent.latent = 64;
    latent.has_latent_norm = 1;
    latent.latent_norm_eps = 1e-5f;
    ungated.is_gated = ungated.has_gate_bias = 0;
    ungated.activation = MOE_ACTIVATION_RELU2;
    norm.has_expert_norm = 1;
    norm.expert_norm_eps = 1e-5f;
    moe_layer_desc muse_spark = norm;
    muse_spark.expert_norm_weight_first = 1;
    muse_spark.latent = 64;
    muse_spark.has_latent_in_norm = 1;
    muse_spark.latent_in_norm_eps = 1e-5f;
    return {{"rich", rich},       {"on_input", on_input}, {"latent", latent},
            {"ungated", ungated}, {"expert_norm", norm},  {"muse_spark", muse_spark}};
}

// Every layout that moe_experts takes.
void check_layouts(const Pair& pair) {
    for (const int64_t T : {1, 5, 30}) {
        check_cells(pair, T, false);
        check_cells(pair, T, true);
        check_accumulated(pair, T);
        if (pair.desc().latent) check_latent_rows(pair, T);
        if (pair.desc().weight_on == MOE_WEIGHT_ON_INPUT) check_row_weights(pair, T);
    }
}

PairSpec experts_spec(const moe_layer_desc& desc, const char* format, const Numbers& numbers) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.format = format;
    spec.numbers = numbers;
    spec.max_tokens = 30;
    return spec;
}

void add_experts_on_every_family(CaseList& list) {
    for (const Kind& kind : kinds(rich_layer_on_grid(128, 64, 9, 3)))
        for (const char* format : {"bf16", "mxfp4"})
            for (const Numbers& numbers : {bf16, f16_through_bf16})
                list.add(
                    text("families/stage/experts/%s/%s/%s", kind.name, format, numbers.name),
                    format[0] == 'b' && numbers.x == MOE_TYPE_BF16 ? Extent::smoke : Extent::full,
                    [=](Context& context) {
                        with_every_family(context, experts_spec(kind.desc, format, numbers),
                                          check_layouts);
                    });
}

void add_experts(CaseList& list) {
    for (const Kind& kind : kinds(rich_layer(128, 80, 9, 3)))
        for (const char* format : {"bf16", "mxfp4"})
            for (const Numbers& numbers : common_numbers) {
                // mxfp4 needs columns in 32.
                moe_layer_desc desc = kind.desc;
                if (format[0] == 'm') desc.intermediate = 96;
                const bool in_smoke = format[0] == 'b';
                list.add(text("stage/experts/%s/%s/%s", kind.name, format, numbers.name),
                         in_smoke ? Extent::smoke : Extent::full, [=](Context& context) {
                             with_every_kernel(context, experts_spec(desc, format, numbers),
                                               MOE_STAGE_EXPERTS, check_layouts);
                         });
            }
}

// One expert has all rows, which go to rows of the caller: more than a part of a tile that is
// stored at once, of a middle and of a wide tile, and more than an instruction takes.
void add_experts_with_many_rows(CaseList& list) {
    for (const Numbers& numbers : {bf16, f16})
        list.add(text("stage/experts/many_rows/bf16/%s", numbers.name), Extent::smoke,
                 [=](Context& context) {
                     PairSpec spec =
                         experts_spec(rich_layer_on_grid(128, 64, 1, 1), "bf16", numbers);
                     spec.max_tokens = 281;
                     with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                         for (const int32_t T : {90, 281}) check_cells(pair, T, false);
                     });
                 });
}

// Every matrix of the experts with columns in an order, and of the shared expert.
void add_experts_in_any_order(CaseList& list) {
    for (const Kind& kind : kinds(rich_layer_on_grid(128, 64, 9, 3)))
        list.add(text("stage/experts/%s/gptq4_any_order/bf16", kind.name), Extent::smoke,
                 [=](Context& context) {
                     PairSpec spec = experts_spec(kind.desc, "gptq4_any_order", bf16);
                     // Around a latent more values are rounded than the limit is for.
                     if (!kind.desc.latent) spec.layer.dense_format = "gptq4_any_order";
                     with_every_kernel(context, spec, MOE_STAGE_EXPERTS, check_layouts);
                 });
}

void check_finish(const Pair& pair, int64_t n_tokens) {
    const moe_layer_desc& d = pair.desc();
    Finish call;
    call.n_tokens = n_tokens;
    call.x = pair.x(n_tokens);
    const Floats routed = rounded(normal(n_tokens * pair.data->width(), 31), pair.spec.numbers.out);
    const auto both = [&](const char* what) {
        const size_t mark = launch_mark();
        const Floats got = finish(pair.subject, call);
        if (!call.parts || (call.parts & MOE_FINISH_SHARED))
            pair.expect_launched(launches_since(mark), MOE_STAGE_FINISH, n_tokens, false);
        const Floats wanted = finish(pair.reference, call);
        pair.context.measure(text("%s, T %ld", what, static_cast<long>(n_tokens)),
                             worst_row(got, wanted, d.hidden), pair.spec.limit());
        pair.context.expect(rms(wanted) > 0.02, "the reference is near zero");
    };
    call.routed = routed;
    both("all parts");
    call.base = rounded(normal(n_tokens * d.hidden, 37), pair.spec.numbers.out);
    both("all parts, accumulated");
    call.base.clear();
    call.routed.clear();
    call.parts = MOE_FINISH_SHARED | MOE_FINISH_COMBINE;
    both("the shared expert alone");
    call.routed = routed;
    call.base = rounded(normal(n_tokens * d.hidden, 41), pair.spec.numbers.out);
    call.parts = MOE_FINISH_COMBINE | (d.latent ? uint32_t{MOE_FINISH_LATENT} : 0u);
    both("the others, accumulated");
    for (const std::string& name : pair.subject.kernels(n_tokens))
        pair.context.kernels.insert(name);
}

void add_finish(CaseList& list) {
    for (const Kind& kind : kinds(rich_layer(128, 80, 9, 3)))
        for (const Numbers& numbers : common_numbers)
            list.add(text("stage/finish/%s/%s", kind.name, numbers.name), Extent::smoke,
                     [=](Context& context) {
                         PairSpec spec;
                         spec.layer.desc = kind.desc;
                         spec.numbers = numbers;
                         spec.max_tokens = 90;
                         with_every_kernel(context, spec, MOE_STAGE_FINISH, [&](const Pair& pair) {
                             for (const int64_t T : {1, 7, 90}) check_finish(pair, T);
                         });
                     });
}

void add_finish_on_grid(CaseList& list) {
    for (const Kind& kind : kinds(rich_layer_on_grid(128, 64, 9, 3)))
        list.add(text("families/stage/finish/%s", kind.name), Extent::smoke, [=](Context& context) {
            with_every_kernel(context, experts_spec(kind.desc, "bf16", bf16), MOE_STAGE_FINISH,
                              [&](const Pair& pair) {
                                  for (const int64_t T : {1, 7, 30}) check_finish(pair, T);
                              });
        });
}

// Offsets, counts and row ids that are not what they must be: no memory is read by them.
void check_wrong_offsets(Context& context) {
    PairSpec spec;
    spec.layer.desc = plain_layer(64, 48, 8, 2);
    spec.max_tokens = 16;
    const Pair pair(context, spec);
    const Engine engine(pair, 16, 0);
    const auto spoil = [&](const char* what, const std::function<void(Experts&)>& change) {
        Experts call = engine.call(MOE_IN_SORTED, MOE_OUT_ROWS);
        change(call);
        experts(pair.subject, call);
        const auto faults = pair.subject.faults();
        context.expect(faults.faults == MOE_FAULT_OFFSETS_OUT_OF_RANGE,
                       text("%s: faults %#x", what, faults.faults));
    };
    spoil("too far", [](Experts& call) { call.offsets.back() = call.n_rows + 1000; });
    spoil("negative", [](Experts& call) { call.offsets[3] = -5; });
    spoil("descending", [](Experts& call) { std::swap(call.offsets[2], call.offsets[6]); });
    spoil("huge", [](Experts& call) { call.offsets[4] = INT64_MAX; });
    Experts call = engine.call(MOE_IN_BATCHED, MOE_OUT_ROWS);
    call.counts[1] = call.batch_capacity + 1;
    call.counts[2] = -1;
    experts(pair.subject, call);
    context.expect(pair.subject.faults().faults == MOE_FAULT_OFFSETS_OUT_OF_RANGE,
                   "counts: no fault");
}

}  // namespace

void add_stage_cases(CaseList& list) {
    add_experts(list);
    add_experts_on_every_family(list);
    add_experts_in_any_order(list);
    add_experts_with_many_rows(list);
    add_finish(list);
    add_finish_on_grid(list);
    const std::pair<const char*, const char*> grouped[] = {{"chosen", "-*_gemv_*"},
                                                           {"portable", "sm80_*_grouped_gemm_*"}};
    for (const auto& [name, kernels] : grouped)
        list.add(text("stage/experts/row_launches/%s", name), Extent::smoke,
                 [kernels = kernels](Context& context) {
                     PairSpec spec = experts_spec(plain_layer(128, 64, 8, 2), "bf16", bf16);
                     spec.max_tokens = 200;  // one window for the rows of all batches
                     if (context.device.is_cuda())
                         spec.subject = [=](moe_plan_desc& desc) { desc.kernel_filter = kernels; };
                     check_row_launches(Pair(context, spec), 4);
                 });
    for (const char* kernels : {"", "experts:sm80_*"})
        list.add(text("stage/experts/few_row_launches/%s", *kernels ? "portable" : "chosen"),
                 Extent::smoke, [=](Context& context) {
                     PairSpec spec = experts_spec(plain_layer(128, 64, 8, 2), "bf16", bf16);
                     if (*kernels && context.device.is_cuda())
                         spec.subject = [=](moe_plan_desc& desc) { desc.kernel_filter = kernels; };
                     check_few_row_launches(Pair(context, spec));
                 });
    list.add("stage/wrong_offsets", Extent::smoke, check_wrong_offsets);
}

}  // namespace moe_gpu
