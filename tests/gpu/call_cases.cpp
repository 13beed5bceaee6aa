// The arguments of moe_forward: ways to route, strides, addresses, types of ids and weights, true
// numbers of tokens on the device, maps, accumulation, small workspaces and odd numbers of tokens.
#include <algorithm>
#include <cmath>

#include "families.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

PairSpec spec_of(const Numbers& numbers, int64_t max_tokens,
                 const moe_layer_desc& desc = rich_layer(128, 80, 10, 3)) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.numbers = numbers;
    spec.max_tokens = max_tokens;
    return spec;
}

using Run = void (*)(const Pair&);

void add(CaseList& list, const char* name, const PairSpec& spec, Run run) {
    list.add(text("call/%s/%s", name, spec.numbers.name), Extent::smoke,
             [=](Context& context) { run(Pair(context, spec)); });
}

// Logits, ids and both, given back, give what the router gave.
void check_routings(const Pair& pair) {
    for (const int64_t T : {1, 70}) {
        Forward call = pair.call(T);
        const Result first = pair.check(call, "compute");
        call.routing = MOE_ROUTING_LOGITS;
        call.logits = first.logits;
        pair.context.expect(pair.check(call, "logits").bits == first.bits, "logits: other bits");
        call.routing = MOE_ROUTING_IDS;
        call.ids.assign(first.ids.begin(), first.ids.end());
        pair.context.expect(pair.check(call, "ids, logits").bits == first.bits, "ids: other bits");
        call.logits.clear();
        pair.context.expect(pair.check(call, "ids, x").bits == first.bits, "ids, x: other bits");
        call.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        call.weights = first.weights;
        pair.context.expect(pair.check(call, "ids and weights").bits == first.bits,
                            "ids and weights: other bits");
        call.wants_routing = false;
        pair.context.expect(pair.check(call, "bare").bits == first.bits,
                            "without optional outputs: other bits");
    }
}

// Another place of x gives the same bits, except where a kernel for few tokens gives way to another
// for it.
void expect_same_bits(const Pair& pair, const Forward& moved, const Result& result,
                      const Result& wanted, const std::string& what) {
    const std::string kernel = pair.subject.kernel(MOE_STAGE_EXPERTS, moved.n_tokens);
    const std::string shared = pair.subject.kernel(MOE_STAGE_FINISH, moved.n_tokens);
    const bool is_small_batch =
        KernelName(kernel).family == "gemv" || KernelName(shared).family == "gemv";
    if (is_small_batch && pair.may_give_way(moved)) return;
    pair.context.expect(result.bits == wanted.bits, what + ": other bits");
}

void check_strides(const Pair& pair) {
    for (const int64_t T : {1, 5, 37, 250}) {
        Forward call = pair.routed_call(T);
        const Result dense = pair.check(call, "dense");
        const int64_t H = pair.desc().hidden;
        for (const int64_t extra : {1, 3, 8, 64}) {
            call.x_place.stride = H + extra;
            call.out_place.stride = H + 2 * extra;
            call.ids_place.stride = pair.desc().top_k + extra;
            call.weights_place.stride = pair.desc().top_k + 1 + extra;
            expect_same_bits(pair, call, pair.check(call, "strided"), dense,
                             text("stride + %ld", static_cast<long>(extra)));
        }
    }
}

// Pointers aligned as their type and no more.
void check_addresses(const Pair& pair) {
    for (const int64_t T : {1, 5, 37}) {
        Forward call = pair.routed_call(T);
        const Result aligned = pair.check(call, "aligned");
        for (const int64_t shift : {1, 2, 5}) {
            for (Place* place :
                 {&call.x_place, &call.out_place, &call.ids_place, &call.weights_place})
                place->shift = shift;
            expect_same_bits(pair, call, pair.check(call, "shifted"), aligned,
                             text("shift %ld", static_cast<long>(shift)));
        }
    }
}

void check_types(const Pair& pair) {
    for (const int64_t T : {3, 33, 250}) {
        Forward call = pair.routed_call(T);
        const Result plain = pair.check(call, "i32");
        call.ids_type = MOE_TYPE_I64;
        pair.context.expect(pair.check(call, "i64").bits == plain.bits, "i64 ids: other bits");
        for (const moe_type type : {MOE_TYPE_BF16, MOE_TYPE_F16}) {
            call.weights_type = type;
            pair.check(call, moe_type_name(type));
        }
    }
}

void check_true_tokens(const Pair& pair) {
    constexpr int64_t T = 40;
    for (const int64_t all : {int64_t{1}, int64_t{5}, T})
        pair.check(pair.routed_call(all), "no number on the device");
    for (const bool routed : {false, true})
        for (const int32_t n : {40, 39, 1, 0, 41, 1 << 30, -1, INT32_MIN}) {
            Forward call = routed ? pair.routed_call(T) : pair.call(T);
            // Rows that are not there may hold anything.
            for (int64_t i = std::clamp<int64_t>(n, 0, T) * pair.desc().hidden;
                 i < T * pair.desc().hidden; ++i)
                call.x[static_cast<size_t>(i)] = NAN;
            call.n_tokens_device = n;
            pair.check(call, text("%d true tokens", n));
        }
    Forward one = pair.call(1);
    for (const int32_t n : {0, 1}) {
        one.n_tokens_device = n;
        pair.check(one, text("%d of one", n));
    }
}

void check_router_input(const Pair& pair) {
    const int64_t T = 29, H = pair.desc().hidden;
    for (const int64_t stride : {int64_t{0}, H + 3}) {
        Forward call = pair.call(T);
        call.router_input = rounded(normal(T * H, 91), pair.subject.router_type);
        call.router_place.stride = stride;
        pair.check(call, "router input");
    }
}

// A map on a device can only be looked at by kernels: what is no expert here is as good as -1, and
// reported, by whichever kernel.
void check_wrong_map(const Pair& pair) {
    const int32_t n = pair.desc().n_experts;
    const int32_t wrong[] = {n, -2, INT32_MAX, INT32_MIN};
    for (const int64_t T : {1, 3, 50, 250}) {
        Forward call = pair.routed_call(T);
        for (int32_t e = 0; e < n; ++e) call.expert_map.push_back(e % 2 ? e : -1);
        const Result wanted = pair.check(call, "half of a map");
        if (!pair.subject.device.is_cuda()) continue;  // refuses it
        for (int32_t e = 0; e < n; e += 2)
            call.expert_map[static_cast<size_t>(e)] = wrong[e / 2 % 4];
        const Result got = pair.run(call);
        const auto is_wrong = [](int64_t id) { return id >= 0 && id % 2 == 0; };
        pair.context.expect(got.bits == wanted.bits, "wrong entries of a map: other bits");
        pair.context.expect(
            got.faults.faults == MOE_FAULT_ID_OUT_OF_RANGE &&
                got.faults.n_skipped == std::count_if(call.ids.begin(), call.ids.end(), is_wrong),
            text("%ld tokens: faults %#x, %ld skipped", static_cast<long>(T), got.faults.faults,
                 static_cast<long>(got.faults.n_skipped)));
    }
}

void check_map(const Pair& pair) {
    const int32_t n = pair.desc().n_experts;
    for (const int64_t T : {3, 50})
        for (const bool routed : {false, true}) {
            Forward call = routed ? pair.routed_call(T) : pair.call(T);
            for (int32_t e = 0; e < n; ++e) call.expert_map.push_back(e % 3 == 2 ? -1 : n - 1 - e);
            pair.check(call, "map");
        }
}

void check_accumulate(const Pair& pair) {
    for (const int64_t T : {1, 5, 45}) {
        Forward call = pair.routed_call(T);
        call.base = rounded(normal(T * pair.desc().hidden, 13), pair.spec.numbers.out);
        pair.check(call, "accumulate");
        if (T > 1) {
            std::fill_n(call.ids.begin(), pair.desc().top_k, -1);
            call.n_tokens_device = static_cast<int32_t>(T / 2);
            pair.check(call, "accumulate, fewer tokens");
        }
    }
}

void check_tokens(const Pair& pair) {
    for (const int64_t T : {0, 1, 2, 3, 8, 9, 17, 63, 64, 65, 255, 256, 257, 1000})
        pair.check(pair.call(T));
    for (const int64_t T : {0, 1, 17, 1000}) pair.check(pair.routed_call(T));
}

// The plan works in chunks; a chunk's own order of sums is its own, so only near.
void check_chunks(Context& context, const PairSpec& spec) {
    auto data = std::make_shared<LayerData>(spec.layer);
    const Pair whole(context, spec, data);
    auto need = sized<moe_workspace_need>();
    for (const int64_t tokens : {1, 7, 100}) {
        must(moe_plan_workspace_size(whole.subject.plan.get(), tokens, &need), "size");
        const uint64_t bytes = context.device.is_cuda() ? need.device_bytes : need.host_bytes;
        PairSpec in_chunks = spec;
        in_chunks.subject = [=](moe_plan_desc& desc) {
            if (spec.subject) spec.subject(desc);
            desc.max_workspace_bytes = bytes;
        };
        const Pair small(context, in_chunks, data);
        for (const int64_t T : {1, 8, 101, 300}) {
            small.check(small.call(T), text("chunks of %ld", static_cast<long>(tokens)));
            small.check(small.routed_call(T), text("chunks of %ld", static_cast<long>(tokens)));
        }
        Forward fewer = small.call(300);
        fewer.n_tokens_device = 150;
        small.check(fewer, "true tokens end inside a chunk");
    }
}

// With batch_invariant a token alone has the bits that it has among others.
PairSpec invariant(PairSpec spec) {
    spec.subject = [](moe_plan_desc& desc) { desc.batch_invariant = 1; };
    return spec;
}

void check_invariant(const Pair& pair) {
    Context& context = pair.context;
    const auto H = static_cast<size_t>(pair.desc().hidden);
    // Few rows of an expert, some on both sides of the kernels' bounds, many.
    for (const int64_t T : {40, 150, 600}) {
        const Forward all = pair.call(T);
        const Result together = pair.check(all, "together");
        for (const size_t t : {0u, 7u, 39u}) {
            Forward one = all;
            one.n_tokens = 1;
            one.x.assign(all.x.begin() + static_cast<ptrdiff_t>(t * H),
                         all.x.begin() + static_cast<ptrdiff_t>((t + 1) * H));
            const Result alone = pair.check(one, "alone");
            const Floats same(together.out.begin() + static_cast<ptrdiff_t>(t * H),
                              together.out.begin() + static_cast<ptrdiff_t>((t + 1) * H));
            context.expect(alone.out == same,
                           text("token %zu of %ld has other bits alone", t, static_cast<long>(T)));
        }
    }
}

// Numbers of slots and experts around those at which the sort is done otherwise.
void check_sorts(Context& context, int32_t n_experts) {
    PairSpec spec;
    spec.layer.desc = plain_layer(64, 64, n_experts, 8);
    spec.numbers = bf16;
    spec.max_tokens = 1100;
    const Pair pair(context, spec);
    for (const int64_t T : {31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025})
        pair.check(pair.routed_call(T), text("%ld tokens", static_cast<long>(T)));
}

void check_repeats(const Pair& pair) {
    for (const int64_t T : {1, 64, 300}) {
        const Result first = pair.check(pair.call(T));
        for (int i = 0; i < 5; ++i)
            pair.context.expect(pair.run(pair.call(T)).bits == first.bits,
                                "the same call gives other bits");
    }
}

// A workspace as large as one token needs, at the size that moe_plan_workspace_size says.
void check_small_workspace(const Pair& pair) {
    const Side& side = pair.subject;
    for (const int64_t T : {1, 3, 20}) {
        const Forward call = pair.call(T);
        const Result wanted = pair.check(call);
        Side::Space space(side.device, pair.context.runtime, side.plan.get(), T);
        ForwardBuffers buffers(side, call, side.stream());
        space.memory.poison();
        must(moe_forward(side.plan.get(), side.weights.get(), space.workspace.get(),
                         &buffers.args()),
             "moe_forward");
        side.synchronize();
        pair.context.expect(buffers.get(call).bits == wanted.bits,
                            text("workspace of %ld tokens: other bits", static_cast<long>(T)));
    }
}

// What is not finite in a token's x makes none of its outputs finite, and changes no other token's,
// whatever x becomes on its way to a product.
void check_not_finite(const Pair& pair) {
    const auto width = static_cast<size_t>(pair.subject.out_columns());
    for (const int64_t T : {1, 2, 40})
        for (const float value : {NAN, INFINITY}) {
            Forward call = pair.routed_call(T);
            const Result plain = pair.run(call);
            call.x[static_cast<size_t>(pair.desc().hidden) - 3] = value;
            const Result got = pair.run(call);
            const std::string what =
                text("%f in one of %ld tokens", double{value}, static_cast<long>(T));
            const auto is_finite = [](float v) { return std::isfinite(v); };
            pair.context.expect(std::none_of(got.out.begin(), got.out.begin() + width, is_finite),
                                what + ": finite");
            pair.context.expect(std::equal(got.out.begin() + width, got.out.end(),
                                           plain.out.begin() + width, plain.out.end()),
                                what + ": the others differ");
        }
}

void add_not_finite(CaseList& list) {
    for (const char* format : {"bf16", "fp8_128x128", "nvfp4", "kbit3", "kbit5", "q8_0", "q4_k",
                               "awq", "fp8_row", "nf4"}) {
        PairSpec spec = spec_of(bf16, 40, plain_layer(512, 256, 8, 3));
        spec.layer.format = format;
        list.add(text("call/not_finite/%s", format), Extent::smoke,
                 [=](Context& context) { check_not_finite(Pair(context, spec)); });
    }
}

// A layer on the grid of 64, so that the kernels of Hopper run, whatever a tile's format is
// dequantized by. Rows have several groups and superblocks, whose scales may be units of the sums.
void add_invariant_formats(CaseList& list) {
    for (const char* format :
         {"bf16", "fp8_128x128", "nvfp4", "mxfp4", "kbit2", "kbit3", "kbit4", "kbit5", "q8_0",
          "q4_k", "q6_k", "iq4_xs", "awq", "int4_32", "int8_row", "fp8_row", "nf4"}) {
        PairSpec spec = invariant(spec_of(bf16, 600, rich_layer_on_grid(768, 512, 10, 3)));
        spec.layer.format = format;
        list.add(text("call/batch_invariant/%s/%s", format, bf16.name), Extent::smoke,
                 [=](Context& context) { check_invariant(Pair(context, spec)); });
    }
}

// ---- on every family of kernels

struct FamilyCase {
    const char* name;
    int64_t max_tokens;
    Run run;
};
constexpr FamilyCase on_every_family[] = {
    {"routings", 70, check_routings},
    {"strides", 250, check_strides},
    {"addresses", 37, check_addresses},
    {"types", 250, check_types},
    {"true_tokens", 40, check_true_tokens},
    {"map", 50, check_map},
    {"wrong_map", 250, check_wrong_map},
    {"accumulate", 45, check_accumulate},
    {"tokens", 1000, check_tokens},
    {"repeats", 300, check_repeats},
    {"small_workspace", 300, check_small_workspace},
};

void add_on_every_family(CaseList& list, const char* format, const Numbers& numbers) {
    const bool in_smoke = numbers.x == MOE_TYPE_BF16 && format[0] == 'b';
    const Extent extent = in_smoke ? Extent::smoke : Extent::full;
    const auto spec_for = [=](int64_t max_tokens) {
        PairSpec spec = spec_of(numbers, max_tokens, rich_layer_on_grid(128, 64, 10, 3));
        spec.layer.format = format;
        return spec;
    };
    const auto name_of = [=](const char* name) {
        return text("families/call/%s/%s/%s", name, format, numbers.name);
    };
    for (const FamilyCase& one : on_every_family)
        list.add(name_of(one.name), extent,
                 [=, run = one.run, spec = spec_for(one.max_tokens)](Context& context) {
                     with_every_family(context, spec, run);
                 });
    list.add(name_of("batch_invariant"), extent,
             [=, spec = invariant(spec_for(600))](Context& context) {
                 with_every_family(context, spec, check_invariant);
             });
    list.add(name_of("chunks"), extent, [=, spec = spec_for(300)](Context& context) {
        force_every_family(context, spec, [&](const ForcePlan& force) {
            PairSpec forced = spec;
            forced.subject = force;
            check_chunks(context, forced);
        });
    });
}

}  // namespace

void add_call_cases(CaseList& list) {
    add_not_finite(list);
    for (const int32_t n_experts : {64, 512, 513})
        list.add(text("call/sorts/%d", n_experts), Extent::smoke,
                 [=](Context& context) { check_sorts(context, n_experts); });
    for (const Numbers& numbers : common_numbers) {
        add(list, "routings", spec_of(numbers, 70), check_routings);
        add(list, "strides", spec_of(numbers, 250), check_strides);
        add(list, "addresses", spec_of(numbers, 37), check_addresses);
        add(list, "types", spec_of(numbers, 250), check_types);
        add(list, "true_tokens", spec_of(numbers, 40), check_true_tokens);
        add(list, "map", spec_of(numbers, 50), check_map);
        // Of sizes that the kernels of few tokens read.
        add(list, "wrong_map", spec_of(numbers, 250, plain_layer(256, 128, 10, 3)), check_wrong_map);
        add(list, "accumulate", spec_of(numbers, 45), check_accumulate);
        add(list, "tokens", spec_of(numbers, 1000), check_tokens);
        add(list, "repeats", spec_of(numbers, 300), check_repeats);
        add(list, "small_workspace", spec_of(numbers, 300), check_small_workspace);
        list.add(text("call/chunks/%s", numbers.name), Extent::smoke,
                 [=](Context& context) { check_chunks(context, spec_of(numbers, 300)); });
        list.add(text("call/batch_invariant/%s", numbers.name), Extent::smoke,
                 [=](Context& context) {
                     check_invariant(Pair(context, invariant(spec_of(numbers, 600))));
                 });
        for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
            PairSpec spec = spec_of(numbers, 29);
            spec.both = [=](moe_plan_desc& desc) { desc.router_input_type = type; };
            list.add(text("call/router_input/%s/%s", moe_type_name(type), numbers.name),
                     Extent::smoke,
                     [=](Context& context) { check_router_input(Pair(context, spec)); });
        }
    }
    add_invariant_formats(list);
    for (const char* format : {"bf16", "nvfp4"})
        for (const Numbers& numbers : {bf16, f16_through_bf16})
            add_on_every_family(list, format, numbers);
}

}  // namespace moe_gpu
