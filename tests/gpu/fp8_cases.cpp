// Activations as E4M3 (MOE_ACTIVATION_QUANTIZATION_FP8): against loops that follow the rule of
// moe.h, and against the layer without quantization.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "e4m3_x.hpp"
#include "stages.hpp"

namespace moe_gpu {
namespace {

using Doubles = std::vector<double>;

// The error of all rows together, and that of the worst one.
struct Limits {
    double all, row;
};
// A value of h near the middle between two codes may be rounded to either, because sums of float32
// and of tensor cores differ from these. Some 2 in 100 are, and then differ by an eighth; in a row
// a few values may be most of it.
constexpr Limits by_rule{1.5e-2, 6e-2};
// Codes are off by a 16th at most, x and h alike.
constexpr Limits by_policy{5e-2, 1e-1};
constexpr double least_policy_error = 1e-2;
// Weights of NVFP4 are rounded to E4M3, too, which the rule here leaves out.
constexpr Limits of_nvfp4{7e-2, 1.2e-1};

void measure(Context& context, const std::string& where, const Floats& got, const Floats& wanted,
             int64_t width, const Limits& limits) {
    const auto size = static_cast<int64_t>(wanted.size());
    context.expect(rms(wanted) > 0.02, where + ": what is wanted is near zero");
    context.measure(where + ", all rows", worst_row(got, wanted, size), limits.all);
    context.measure(where + ", worst row", worst_row(got, wanted, width), limits.row);
}

// Every 128 values from the first on share a scale.
void quantize(Doubles& row) {
    for (size_t first = 0; first < row.size(); first += 128) {
        const size_t end = std::min(first + 128, row.size());
        float most = 0x1p-100f;
        for (size_t i = first; i < end; ++i)
            most = std::max(most, std::fabs(static_cast<float>(row[i])));
        const float inverse = 448.0f / most, scale = most * (1.0f / 448.0f);
        for (size_t i = first; i < end; ++i)
            row[i] = rounded_to_e4m3(static_cast<float>(row[i]) * inverse) * scale;
    }
}

void add_case(CaseList& list, const std::string& name, Extent extent,
              const std::function<void(Context&)>& run) {
    list.add(name, extent, [run](Context& context) {
        if (!context.device.is_cuda()) throw Skip("plans of the CPU refuse the policy");
        run(context);
    });
}

struct Features {
    int64_t begin, count;  // of the slice
};

// W v, where W is n_rows rows of an expert's matrix and v.size() columns of it.
Doubles product(const float* matrix, int64_t columns, int64_t first_row, int64_t n_rows,
                int64_t first_column, const Doubles& v) {
    Doubles out(static_cast<size_t>(n_rows));
    for (int64_t r = 0; r < n_rows; ++r) {
        const float* row = matrix + (first_row + r) * columns + first_column;
        double sum = 0;
        for (size_t i = 0; i < v.size(); ++i) sum += static_cast<double>(row[i]) * v[i];
        out[static_cast<size_t>(r)] = sum;
    }
    return out;
}

// down(act(gate x, up x)) of an expert with SiLU, both inputs quantized. weight: on the input.
Doubles expert_row(const Pair& pair, const Features& features, int64_t expert, Doubles x,
                   double weight, bool x_is_quantized) {
    const moe_layer_desc& d = pair.desc();
    const LayerData& data = *pair.data;
    const auto bias = [&](int32_t has, moe_role role, int64_t i) {
        return has ? static_cast<double>(data.decoded(role, expert)[static_cast<size_t>(i)]) : 0;
    };
    if (!x_is_quantized) quantize(x);
    const auto [begin, count] = features;
    const Doubles gate = product(data.decoded(MOE_ROLE_GATE, expert), d.hidden, begin, count, 0, x);
    const Doubles up = product(data.decoded(MOE_ROLE_UP, expert), d.hidden, begin, count, 0, x);
    Doubles h(gate.size());
    for (size_t i = 0; i < h.size(); ++i) {
        const int64_t feature = begin + static_cast<int64_t>(i);
        const double g = gate[i] * weight + bias(d.has_gate_bias, MOE_ROLE_GATE_BIAS, feature);
        const double u = up[i] * weight + bias(d.has_up_bias, MOE_ROLE_UP_BIAS, feature);
        const auto activated = static_cast<float>(g / (1 + std::exp(-g)) * u);
        h[i] = moe::bf16_to_float(moe::float_to_bf16(activated));
    }
    quantize(h);
    Doubles y = product(data.decoded(MOE_ROLE_DOWN, expert), d.intermediate, 0, d.hidden, begin, h);
    for (size_t i = 0; i < y.size(); ++i)
        y[i] += bias(d.has_down_bias, MOE_ROLE_DOWN_BIAS, static_cast<int64_t>(i));
    return y;
}

// The routed sum of every token, by the rule.
Floats by_the_rule(const Pair& pair, const Features& features, const Forward& call) {
    const moe_layer_desc& d = pair.desc();
    Floats out(static_cast<size_t>(call.n_tokens * d.hidden));
    const bool on_input = d.weight_on == MOE_WEIGHT_ON_INPUT;
    in_parallel(call.n_tokens, [&](int64_t t) {
        const auto from = call.x.begin() + t * d.hidden;
        Doubles sum(static_cast<size_t>(d.hidden));
        for (int64_t j = 0; j < d.top_k; ++j) {
            const auto slot = static_cast<size_t>(t * d.top_k + j);
            if (call.ids[slot] < 0) continue;
            const double weight = call.weights[slot];
            const Doubles y =
                expert_row(pair, features, call.ids[slot], Doubles(from, from + d.hidden),
                           on_input ? weight : 1, !call.x_scales.empty());
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += y[i] * (on_input ? 1 : weight);
        }
        std::copy(sum.begin(), sum.end(), out.begin() + t * d.hidden);
    });
    return out;
}

// The kernels of E4M3 are forced; `ask_for_e4m3` as subject leaves the choice to the plan.
PairSpec spec_of(const moe_layer_desc& desc, int64_t max_tokens,
                 const char* format = "fp8_128x128") {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.format = spec.layer.dense_format = format;
    spec.numbers = bf16_to_f32;
    spec.max_tokens = max_tokens;
    spec.subject = [](moe_plan_desc& plan) {
        ask_for_e4m3(plan);
        plan.kernel_filter = "experts:*_fp8_grouped_gemm*";
    };
    return spec;
}

// A slice of a layer of 512 features.
PairSpec sliced(const Features& features) {
    PairSpec spec = spec_of(plain_layer(256, 512, 6, 2), 200);
    moe_slice slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = features.begin;
    slice.intermediate_count = features.count;
    spec.both = [=](moe_plan_desc& plan) {
        plan.partial = 1;
        plan.slice = &slice;
    };
    return spec;
}

void check_rule(const Pair& pair, const Features& features, const std::vector<int64_t>& tokens,
                const Limits& limits = by_rule) {
    for (const int64_t T : tokens) {
        Forward call = pair.routed_call(T, static_cast<uint64_t>(T));
        // Some rows of x are far larger than others, and some columns.
        for (size_t i = 0; i < call.x.size(); ++i)
            if (i % 7 == 3 || i / static_cast<size_t>(pair.desc().hidden) % 5 == 1) call.x[i] *= 16;
        const std::string where = text("T %ld", static_cast<long>(T));
        const Floats got = pair.run(call).out, wanted = by_the_rule(pair, features, call);
        measure(pair.context, where, got, wanted, pair.desc().hidden, limits);
    }
}

struct RuleShape {
    int32_t hidden, intermediate;
};

void add_rule(CaseList& list) {
    for (const auto& [hidden, intermediate] : {RuleShape{256, 128},
                                               {256, 256},
                                               {512, 384},
                                               {192, 320},
                                               {384, 192},
                                               {64, 64},
                                               {128, 720},
                                               {160, 80},
                                               {1024, 96},
                                               {416, 1040}})
        add_case(list, text("fp8/rule/h%d_i%d", hidden, intermediate),
                 intermediate < 500 ? Extent::smoke : Extent::full, [=](Context& context) {
                     const PairSpec spec = spec_of(plain_layer(hidden, intermediate, 6, 2), 700);
                     check_rule(Pair(context, spec), {0, intermediate}, {1, 17, 90, 300, 700});
                 });
    // Weights of mxfp4 are exact in E4M3, but for blocks far below the others; those of nvfp4 are
    // rounded once more.
    struct Other {
        const char* format;
        Limits limits;
        std::vector<RuleShape> shapes;
    };
    const std::vector<RuleShape> any = {{256, 256}, {192, 320}, {1024, 96}}, of_128 = {{256, 384}};
    for (const Other& other : {Other{"fp8_64x128", by_rule, any}, Other{"fp8_row", by_rule, any},
                               Other{"mxfp4", by_rule, any}, Other{"nvfp4", of_nvfp4, any},
                               Other{"int4_row", by_rule, any}, Other{"gptq4", by_rule, of_128},
                               Other{"awq", by_rule, of_128}})
        for (const auto& [hidden, intermediate] : other.shapes)
            add_case(list, text("fp8/rule/%s_h%d_i%d", other.format, hidden, intermediate),
                     Extent::smoke,
                     [=, hidden = hidden, intermediate = intermediate](Context& context) {
                         const auto desc = plain_layer(hidden, intermediate, 6, 2);
                         check_rule(Pair(context, spec_of(desc, 300, other.format)),
                                    {0, intermediate}, {1, 17, 90, 300}, other.limits);
                     });
    // The up half of a fused tensor begins inside of a group of scales.
    for (const int32_t intermediate : {96, 192, 352})
        for (const moe_gate_up_order order : {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST})
            add_case(
                list,
                text("fp8/rule/fused_%s_i%d",
                     order == MOE_GATE_UP_GATE_FIRST ? "gate_first" : "up_first", intermediate),
                Extent::smoke, [=](Context& context) {
                    PairSpec spec = spec_of(plain_layer(256, intermediate, 6, 2), 700);
                    spec.layer.fused = order;
                    check_rule(Pair(context, spec), {0, intermediate}, {90, 700});
                });
    // Down of another type, or with another grid of scales, than gate and up.
    for (const auto& [format, down] : {std::pair{"fp8_128x128", "fp8_64x128"},
                                       {"fp8_64x128", "fp8_128x128"},
                                       {"fp8_128x128", "fp8_row"},
                                       {"fp8_row", "fp8_128x128"},
                                       {"fp8_128x128", "mxfp4"},
                                       {"int4_row", "fp8_128x128"}})
        add_case(list, text("fp8/rule/%s_down_%s", format, down), Extent::smoke,
                 [format = format, down = down](Context& context) {
                     PairSpec spec = spec_of(plain_layer(320, 416, 6, 2), 700, format);
                     spec.layer.down_format = down;
                     check_rule(Pair(context, spec), {0, 416}, {17, 90, 700});
                 });
    moe_layer_desc on_input = plain_layer(256, 256, 6, 2), biased = on_input;
    on_input.weight_on = MOE_WEIGHT_ON_INPUT;
    biased.has_gate_bias = biased.has_up_bias = biased.has_down_bias = 1;
    for (const auto& [name, desc] : {std::pair{"on_input", on_input}, {"biased", biased}})
        add_case(list, text("fp8/rule/%s", name), Extent::smoke, [desc = desc](Context& context) {
            check_rule(Pair(context, spec_of(desc, 200)), {0, 256}, {33, 200});
        });
    add_case(list, "fp8/rule/f16_x", Extent::smoke, [](Context& context) {
        PairSpec spec = spec_of(plain_layer(192, 128, 6, 2), 300);
        spec.numbers = f16_through_bf16;
        check_rule(Pair(context, spec), {0, 128}, {1, 300});
    });
    add_case(list, "fp8/rule/sliced", Extent::smoke, [](Context& context) {
        const Features features{128, 192};
        check_rule(Pair(context, sliced(features)), features, {33, 200});
    });
    // Too wide for rows of x by their index: they are gathered.
    add_case(list, "fp8/rule/gathered", Extent::full, [](Context& context) {
        check_rule(Pair(context, spec_of(plain_layer(128, 4096, 4, 2), 70)), {0, 4096}, {70});
    });
}

// The plan is free to quantize and must not.
void check_as_given(Context& context, PairSpec spec) {
    spec.subject = ask_for_e4m3;
    const Pair pair(context, spec);
    context.expect(pair.subject.kernel(MOE_STAGE_EXPERTS, 200).find("_fp8_") == std::string::npos,
                   "a kernel of E4M3 was chosen");
    pair.check(pair.routed_call(200));
}

// Columns of x in another order are no token blocks of E4M3.
void add_any_order(CaseList& list) {
    add_case(list, "fp8/any_order", Extent::smoke, [](Context& context) {
        check_as_given(context, spec_of(plain_layer(256, 256, 6, 2), 200, "gptq4_any_order"));
    });
}

// A scale of the weights begins inside of 128 columns, so the values are taken as given.
void add_off_grid(CaseList& list) {
    add_case(list, "fp8/off_grid", Extent::smoke, [](Context& context) {
        check_as_given(context, sliced({64, 192}));
    });
}

// Whole layers against the layer without quantization: the error is that of codes, not less and not
// more.
void check_policy(Context& context, const PairSpec& spec, const std::vector<int64_t>& tokens) {
    const Pair pair(context, spec);
    // In a run that forbids them there is no policy to try.
    if (pair.subject.kernel(MOE_STAGE_EXPERTS, tokens.back()).find("_fp8_") == std::string::npos &&
        !context.device.kernels.empty())
        throw Skip("no kernel of E4M3");
    for (const int64_t T : tokens) {
        const Forward call = pair.routed_call(T, static_cast<uint64_t>(T) + 1);
        const Result got = pair.run(call), wanted = pair.reference.forward(call);
        const std::string where = text("T %ld", static_cast<long>(T));
        const auto size = static_cast<int64_t>(wanted.out.size());
        context.expect(worst_row(got.out, wanted.out, size) > least_policy_error,
                       where + ": nothing was quantized");
        measure(context, where, got.out, wanted.out, pair.desc().hidden, by_policy);
    }
}

void add_policy(CaseList& list) {
    moe_layer_desc shared = plain_layer(256, 256, 8, 3);
    shared.shared_intermediate = 384;
    shared.shared_activation = shared.activation;
    shared.shared_is_gated = 1;
    moe_layer_desc gelu = plain_layer(512, 192, 8, 2);
    gelu.activation = MOE_ACTIVATION_GELU_TANH;
    for (const auto& [name, desc] :
         {std::pair{"plain", plain_layer(512, 512, 8, 2)}, {"shared", shared}, {"gelu", gelu}})
        add_case(list, text("fp8/policy/%s", name), Extent::smoke, [desc = desc](Context& context) {
            PairSpec spec = spec_of(desc, 400);
            check_policy(context, spec, {20, 400});
            spec.numbers = bf16;
            spec.subject = [](moe_plan_desc& plan) {
                ask_for_e4m3(plan);
                plan.max_workspace_bytes = 2 << 20;  // several chunks
            };
            check_policy(context, spec, {400});
        });
    // A shared expert that joins, as wide as the routed ones, has more scales than these.
    shared.shared_intermediate = shared.intermediate;
    add_case(list, "fp8/policy/shared_scales", Extent::smoke, [=](Context& context) {
        PairSpec spec = spec_of(shared, 400);
        spec.layer.shared_gate_format = "fp8_32x128";
        spec.subject = ask_for_e4m3;  // a filter of the experts alone would keep it apart
        check_policy(context, spec, {400});
    });
}

// Rows that the caller sorted are quantized one by one, and meet the rule as those by token do.
void add_rows(CaseList& list) {
    add_case(list, "fp8/sorted_rows", Extent::smoke, [](Context& context) {
        constexpr int64_t T = 150;
        const Pair pair(context, spec_of(plain_layer(256, 256, 6, 2), T));
        const moe_layer_desc& d = pair.desc();
        const Forward forward = pair.routed_call(T);
        const Dispatched order = dispatch(pair.subject, {T, forward.ids, 8, {}, d.n_experts});
        Experts call;
        call.in = MOE_IN_SORTED;
        call.out = MOE_OUT_ROWS;
        call.n_tokens = T;
        call.offsets = order.offsets;
        call.row_ids = order.row_ids;
        call.n_rows = call.out_rows = static_cast<int64_t>(order.row_ids.size());
        call.x_columns = call.out_columns = d.hidden;
        for (const int32_t slot : order.row_ids) {
            const auto row = forward.x.begin() + std::max(slot, 0) / d.top_k * d.hidden;
            call.x.insert(call.x.end(), row, row + d.hidden);
        }
        const Floats rows = experts(pair.subject, call);
        Floats sums(static_cast<size_t>(T * d.hidden));
        for (size_t r = 0; r < order.row_ids.size(); ++r) {
            const int32_t slot = order.row_ids[r];
            if (slot < 0) continue;
            for (int64_t i = 0; i < d.hidden; ++i)
                sums[static_cast<size_t>(slot / d.top_k * d.hidden + i)] +=
                    rows[r * static_cast<size_t>(d.hidden) + static_cast<size_t>(i)] *
                    forward.weights[static_cast<size_t>(slot)];
        }
        const Floats wanted = by_the_rule(pair, {0, d.intermediate}, forward);
        measure(context, "rows", sums, wanted, d.hidden, by_rule);
        measure(context, "forward", pair.run(forward).out, wanted, d.hidden, by_rule);
    });
}

// A token's result is the same with other tokens beside it.
void add_batches(CaseList& list) {
    add_case(list, "fp8/batch_invariant", Extent::smoke, [](Context& context) {
        PairSpec spec = spec_of(plain_layer(256, 384, 6, 2), 300);
        const auto subject = spec.subject;
        spec.subject = [=](moe_plan_desc& plan) {
            subject(plan);
            plan.batch_invariant = 1;
        };
        const Pair pair(context, spec);
        const Forward all = pair.routed_call(300);
        const Floats whole = pair.run(all).out;
        for (const int64_t n : {1, 40, 129}) {
            Forward few = all;
            few.n_tokens = n;
            few.x.resize(static_cast<size_t>(n * pair.desc().hidden));
            few.ids.resize(static_cast<size_t>(n * pair.desc().top_k));
            few.weights.resize(few.ids.size());
            const Floats got = pair.run(few).out;
            context.expect(std::equal(got.begin(), got.end(), whole.begin()),
                           text("%ld tokens differ", static_cast<long>(n)));
        }
    });
}

// ---- x as its caller quantized it

void check_twins(const Twins& twins, Forward call, const std::string& where,
                 bool against_reference) {
    const Pair& codes = twins.codes;
    call.x_scales = take_codes(call.x, codes.desc().hidden, true);
    if (call.routing == MOE_ROUTING_COMPUTE) call.router_input = call.x;
    Forward dense = call;
    dense.x_place = {};
    const Result got = codes.run(call), wanted = twins.values.run(dense);
    if (against_reference)
        codes.measure(got, codes.reference.forward(call), call, where + ", reference");
    const auto n_live = static_cast<size_t>(call.n_live());
    const Floats live(got.out.begin(), got.out.begin() + n_live * codes.desc().hidden);
    codes.context.expect(rms(live) > 0.01, where + ": zero");
    codes.context.expect(got.bits == wanted.bits, where + ": other bits than from values");
}

// Kernels that take no codes read their values, kernels of E4M3 the codes themselves.
void check_x_codes(Context& context, const PairSpec& spec, bool quantizes) {
    const Twins twins(context, spec);
    for (const int64_t T : {1, 2, 9, 40, 300}) {
        Forward call = twins.codes.routed_call(T, static_cast<uint64_t>(T));
        const std::string where = text("T %ld", static_cast<long>(T));
        check_twins(twins, call, where, !quantizes);
        if (T != 40) continue;
        check_twins(twins, twins.codes.call(T), "routed by the router's input", !quantizes);
        call.n_tokens_device = 29;
        check_twins(twins, call, "29 true tokens", !quantizes);
        call.n_tokens_device = {};
        call.x_place = {spec.layer.desc.hidden + 5, 3};
        call.x_scales_place.stride = spec.layer.desc.hidden / 128 + 2;
        check_twins(twins, call, "with strides", !quantizes);
    }
}

void add_x_codes(CaseList& list) {
    moe_layer_desc shared = plain_layer(384, 256, 8, 3), identity = plain_layer(256, 192, 8, 3),
                   latent = plain_layer(256, 128, 8, 3);
    for (moe_layer_desc* desc : {&shared, &identity, &latent}) desc->has_router = 1;
    shared.shared_intermediate = 128;
    shared.shared_activation = shared.activation;
    shared.shared_is_gated = 1;
    shared.has_shared_expert_gate = 1;
    identity.n_identity_experts = 2;
    latent.latent = 128;
    for (const auto& [name, desc] :
         {std::pair{"shared", shared}, {"identity", identity}, {"latent", latent}})
        for (const char* format : {"bf16", "nvfp4", "fp8_128x128", "gptq4_any_order"})
            for (const bool quantizes : {false, true})
                add_case(list, text("fp8/x_codes/%s/%s%s", name, format, quantizes ? "/fp8" : ""),
                         Extent::smoke, [=, desc = desc](Context& context) {
                             PairSpec spec = spec_of(desc, 300, format);
                             const bool is_fp8 = std::string_view(format).starts_with("fp8");
                             spec.layer.dense_format = is_fp8 ? format : "bf16";
                             spec.numbers = bf16;
                             spec.subject = nullptr;
                             if (quantizes) spec.subject = ask_for_e4m3;
                             check_x_codes(context, spec, quantizes);
                         });
    for (const bool quantizes : {false, true})
        add_case(list, quantizes ? "fp8/x_codes/chunks/fp8" : "fp8/x_codes/chunks", Extent::smoke,
                 [=](Context& context) {
                     PairSpec spec = spec_of(plain_layer(384, 256, 8, 3), 400);
                     spec.numbers = bf16;
                     spec.subject = [=](moe_plan_desc& plan) {
                         if (quantizes) ask_for_e4m3(plan);
                         plan.max_workspace_bytes = 2 << 20;
                     };
                     const Twins twins(context, spec);
                     context.expect(twins.codes.subject.chunk_tokens() < 400, "one chunk");
                     check_twins(twins, twins.codes.routed_call(400), "several chunks", !quantizes);
                 });
    // Codes that quantization would not find.
    for (const auto& [hidden, intermediate] : {RuleShape{256, 256}, {192, 320}, {1024, 96}})
        add_case(list, text("fp8/x_codes/rule_h%d_i%d", hidden, intermediate), Extent::smoke,
                 [=, hidden = hidden, intermediate = intermediate](Context& context) {
                     PairSpec spec = spec_of(plain_layer(hidden, intermediate, 6, 2), 300);
                     const Pair pair(context, with_codes(spec));
                     for (const int64_t T : {1, 17, 300}) {
                         Forward call = pair.routed_call(T, static_cast<uint64_t>(T));
                         call.x_scales = take_codes(call.x, hidden, false);
                         const Floats wanted = by_the_rule(pair, {0, intermediate}, call);
                         measure(context, text("T %ld", static_cast<long>(T)), pair.run(call).out,
                                 wanted, hidden, by_rule);
                     }
                 });
    add_case(list, "fp8/x_codes/refused", Extent::smoke, [](Context& context) {
        PairSpec spec = spec_of(plain_layer(256, 128, 8, 2), 10, "bf16");
        spec.subject = take_e4m3;
        const Pair pair(context, spec);
        Forward call = pair.routed_call(3);
        call.x_scales = take_codes(call.x, 256, true);
        ForwardBuffers buffers(pair.subject, call, pair.subject.stream());
        moe_forward_args args = buffers.args();
        args.x_scales = nullptr;
        context.expect(moe_forward(pair.subject.plan.get(), pair.subject.weights.get(),
                                   pair.subject.workspace(), &args) == MOE_ERROR_INVALID_ARGUMENT,
                       "E4M3 x without scales is not refused");
    });
}

}  // namespace

void add_fp8_cases(CaseList& list) {
    add_rule(list);
    add_off_grid(list);
    add_any_order(list);
    add_policy(list);
    add_rows(list);
    add_batches(list);
    add_x_codes(list);
}

}  // namespace moe_gpu
