// moe_experts of E4M3 x with scales, in every input layout: against the same values as bfloat16,
// and against moe_forward.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "e4m3_x.hpp"
#include "engine.hpp"

namespace moe_gpu {
namespace {

struct RowLayout {
    const char* name;
    moe_in_layout in;
    int32_t block;  // of sorted rows
};
constexpr RowLayout row_layouts[] = {{"tokens", MOE_IN_TOKENS, 0},
                                     {"packed", MOE_IN_SORTED, 0},
                                     {"blocked", MOE_IN_SORTED, 16},
                                     {"batched", MOE_IN_BATCHED, 0}};

// Every output of an input layout, whole and stopped before the activation.
std::vector<Experts> calls_of_layout(const Engine& engine, moe_in_layout in) {
    std::vector<Experts> calls;
    for (const bool stops : {false, true})
        for (const auto out : {MOE_OUT_REDUCED, MOE_OUT_PER_SLOT, MOE_OUT_ROWS}) {
            if (in == MOE_IN_BATCHED && out != MOE_OUT_ROWS) continue;
            if (stops && out == MOE_OUT_REDUCED) continue;
            calls.push_back(engine.call(in, out, stops));
        }
    return calls;
}

bool have_equal_bits(const Floats& a, const Floats& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

int64_t count_dequantizing(const std::vector<Launch>& launches) {
    return std::count_if(launches.begin(), launches.end(),
                         [](const Launch& one) { return one.kernel == "dequantize_rows"; });
}

// Values are made where no kernel takes codes, and nowhere else. Few rows have kernels of their
// own.
void check_dequantizing(const Pair& pair, const Experts& call, const std::vector<Launch>& launches,
                        const std::string& where) {
    if (!are_launches_recorded() || call.n_tokens < 100) return;
    const std::string kernel = pair.subject.kernel(MOE_STAGE_EXPERTS, call.n_tokens);
    const bool takes_codes =
        kernel.find("_fp8_grouped") != std::string::npos && !call.stops_before_activation;
    pair.context.expect((count_dequantizing(launches) == 0) == takes_codes,
                        where + ": launches of dequantize_rows");
}

// The call reads codes, the twin's their values.
void check_call_of_twins(const Twins& twins, const Experts& call, bool quantizes) {
    const Pair& codes = twins.codes;
    const std::string where =
        text("T %ld, in %d, out %d, stops %d", static_cast<long>(call.n_tokens), call.in, call.out,
             call.stops_before_activation);
    Experts dense = call;
    dense.x_place = {};
    Experts poisoned = call;  // an index that nobody has written is nowhere
    poisoned.poison = 0x7F;
    const size_t mark = launch_mark();
    Floats got = experts(codes.subject, poisoned);
    check_dequantizing(codes, call, launches_since(mark), where);
    codes.context.expect(have_equal_bits(got, experts(twins.values.subject, dense)),
                         where + ": other bits than from values");
    codes.context.expect(!codes.subject.faults().faults, where + ": faults");
    clear_padding(call, got, where.c_str());
    codes.context.expect(rms(got) > 0.01, where + ": zero");
    for (const std::string& name : codes.subject.kernels(call.n_tokens))
        codes.context.kernels.insert(name);
    if (quantizes) return;  // then the values have errors of their own, which fp8/rule measures
    Floats wanted = experts(codes.reference, dense);
    clear_padding(call, wanted, where.c_str());
    codes.context.measure(where, worst_row(got, wanted, call.out_columns), codes.spec.limit());
}

void check_layout_of_twins(const Twins& twins, const RowLayout& layout, int64_t n_tokens,
                           bool quantizes, bool x_is_latent = false) {
    Engine engine(twins.codes, n_tokens, layout.block);
    if (x_is_latent) {
        engine.x = rounded(normal(n_tokens * engine.L, 29), MOE_TYPE_BF16);
        engine.x_is_latent = true;
    }
    const int64_t columns = x_is_latent ? engine.L : engine.H;
    engine.x_scales = take_codes(engine.x, columns, true);
    for (Experts& call : calls_of_layout(engine, layout.in)) {
        check_call_of_twins(twins, call, quantizes);
        call.x_place = {columns + 5, 3};
        call.x_scales_place.stride = columns / 128 + 3;
        check_call_of_twins(twins, call, quantizes);
    }
}

PairSpec codes_spec(const moe_layer_desc& desc, const char* format, int64_t max_tokens,
                    bool quantizes) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.format = format;
    spec.max_tokens = max_tokens;
    if (quantizes) spec.subject = ask_for_e4m3;
    return spec;
}

void add_codes_case(CaseList& list, const std::string& name, Extent extent,
                    const std::function<void(Context&)>& run) {
    list.add("fp8/x_codes/experts/" + name, extent, [run](Context& context) {
        if (!context.device.is_cuda()) throw Skip("plans of the CPU refuse x of E4M3");
        run(context);
    });
}

struct CodesKind {
    const char* name;
    moe_layer_desc desc;
    const char* format;
    bool quantizes;
};

std::vector<CodesKind> codes_kinds() {
    // The last scale is that of 64 columns.
    const moe_layer_desc odd = plain_layer(320, 256, 8, 3);
    moe_layer_desc latent = plain_layer(256, 128, 8, 3), wide = latent, norm = odd, on_input = odd;
    latent.latent = 192;
    wide.latent = 384;
    norm.has_expert_norm = 1;
    norm.expert_norm_eps = 1e-5f;
    on_input.weight_on = MOE_WEIGHT_ON_INPUT;
    return {{"bf16", odd, "bf16", false},
            {"e4m3", odd, "fp8_128x128", false},
            {"e4m3/fp8", odd, "fp8_128x128", true},
            {"any_order", plain_layer(384, 256, 8, 3), "gptq4_any_order", false},
            {"latent", latent, "bf16", false},
            {"wide_latent", wide, "bf16", false},
            {"norm/fp8", norm, "fp8_128x128", true},
            {"on_input/fp8", on_input, "fp8_128x128", true}};
}

void add_codes_layouts(CaseList& list) {
    for (const RowLayout& layout : row_layouts)
        for (const CodesKind& kind : codes_kinds())
            add_codes_case(
                list, text("%s/%s", layout.name, kind.name), Extent::smoke, [=](Context& context) {
                    const Twins twins(context,
                                      codes_spec(kind.desc, kind.format, 131, kind.quantizes));
                    for (const int64_t T : {1, 7, 131}) {
                        check_layout_of_twins(twins, layout, T, kind.quantizes);
                        if (kind.desc.latent)
                            check_layout_of_twins(twins, layout, T, kind.quantizes, true);
                    }
                });
}

// Eight rows, which gemv takes where it has eight SMs for each.
void add_few_batched_rows(CaseList& list) {
    for (const bool quantizes : {false, true})
        add_codes_case(list, quantizes ? "few_batched_rows/fp8" : "few_batched_rows", Extent::smoke,
                       [=](Context& context) {
                           const Twins twins(context, codes_spec(plain_layer(320, 256, 2, 2),
                                                                 "fp8_128x128", 8, quantizes));
                           check_layout_of_twins(twins, row_layouts[3], 1, quantizes);
                       });
}

// The workspace holds the values of fewer rows than the call has.
void add_codes_chunks(CaseList& list) {
    for (const bool quantizes : {false, true})
        add_codes_case(
            list, quantizes ? "chunks/fp8" : "chunks", Extent::smoke, [=](Context& context) {
                PairSpec spec =
                    codes_spec(plain_layer(384, 256, 8, 3), "fp8_128x128", 300, quantizes);
                spec.subject = [=](moe_plan_desc& plan) {
                    if (quantizes) ask_for_e4m3(plan);
                    plan.max_workspace_bytes = 2 << 20;
                };
                const Twins twins(context, spec);
                context.expect(twins.codes.subject.chunk_tokens() < 300, "one chunk");
                for (const RowLayout& layout : row_layouts)
                    check_layout_of_twins(twins, layout, 300, quantizes);
            });
    add_codes_case(list, "many_rows", Extent::full, [](Context& context) {
        constexpr int64_t T = 1500;
        const Twins twins(context, codes_spec(plain_layer(64, 64, 16, 8), "bf16", T, false));
        context.expect(twins.codes.subject.chunk_tokens() == T, "several chunks");
        for (const RowLayout& layout : row_layouts) {
            const size_t mark = launch_mark();
            check_layout_of_twins(twins, layout, T, false);
            context.expect(
                !are_launches_recorded() || count_dequantizing(launches_since(mark)) >= 2,
                "the values of all rows at once");
        }
    });
}

// Codes that quantization would not find, by kernels that take them: the sums are moe_forward's,
// and a slot's row is the same in every layout.
void check_against_forward(Context& context, int32_t hidden, int32_t intermediate) {
    constexpr int64_t T = 131;
    PairSpec spec = codes_spec(plain_layer(hidden, intermediate, 8, 3), "fp8_128x128", T, true);
    spec.numbers = bf16_to_f32;
    spec.subject = [](moe_plan_desc& plan) {
        ask_for_e4m3(plan);
        plan.batch_invariant = 1;
        plan.kernel_filter = "experts:*_fp8_grouped_gemm*";
    };
    const Pair pair(context, with_codes(spec));
    Forward forward = pair.routed_call(T);
    forward.x_scales = take_codes(forward.x, hidden, false);
    const Floats sums = pair.run(forward).out;
    context.expect(rms(sums) > 0.01, "zero");
    for (const RowLayout& layout : row_layouts) {
        Engine engine(pair, T, layout.block);
        engine.ids = forward.ids;
        engine.weights = forward.weights;
        engine.x = forward.x;
        engine.x_scales = forward.x_scales;
        engine.order = dispatch(pair.subject, {T, forward.ids, layout.block, {}, 8});
        if (layout.in != MOE_IN_BATCHED)
            context.expect(
                have_equal_bits(experts(pair.subject, engine.call(layout.in, MOE_OUT_REDUCED)),
                                sums),
                text("%s: other sums", layout.name));
        const Experts call = engine.call(layout.in, MOE_OUT_ROWS);
        const Floats rows = experts(pair.subject, call);
        Floats added(sums.size());
        for (size_t r = 0; r < call.row_ids.size(); ++r)
            for (int64_t i = 0; call.row_ids[r] >= 0 && i < hidden; ++i)
                added[static_cast<size_t>(call.row_ids[r] / 3 * hidden + i)] +=
                    rows[r * static_cast<size_t>(hidden) + static_cast<size_t>(i)] *
                    forward.weights[static_cast<size_t>(call.row_ids[r])];
        context.measure(text("%s, rows", layout.name), worst_row(added, sums, hidden), 1e-6);
    }
}

void expect_status_of_experts(Context& context, const Side& side, const moe_experts_args& args,
                              moe_status wanted, const char* what) {
    const moe_status status =
        moe_experts(side.plan.get(), side.weights.get(), side.workspace(), &args);
    context.expect(status == wanted, text("%s: %s", what, moe_status_name(status)));
}

void check_codes_refused(Context& context) {
    const Twins twins(context, codes_spec(plain_layer(320, 128, 8, 2), "bf16", 10, false));
    Rows x(context.device, MOE_TYPE_BF16, 3, 320), scales(context.device, MOE_TYPE_F32, 3, 3);
    Rows ids(context.device, MOE_TYPE_I32, 3, 2), out(context.device, MOE_TYPE_BF16, 3, 640);
    auto args = sized<moe_experts_args>();
    args.out_layout = MOE_OUT_PER_SLOT;
    args.n_tokens = 3;
    args.x = x.data();
    args.ids = ids.data();
    args.out = out.data();
    const Side &codes = twins.codes.subject, &values = twins.values.subject;
    const moe_status bad = MOE_ERROR_INVALID_ARGUMENT;
    expect_status_of_experts(context, codes, args, bad, "E4M3 x without scales");
    args.x_scales = scales.data();
    expect_status_of_experts(context, values, args, bad, "scales of BF16 x");
    args.x_scale_row_stride = 2;
    expect_status_of_experts(context, codes, args, bad, "a stride of two of three scales");
    args.x_scale_row_stride = 0;
    args.struct_size = offsetof(moe_experts_args, x_scales);
    expect_status_of_experts(context, codes, args, bad, "E4M3 x by a struct without scales");
}

}  // namespace

void add_fp8_expert_cases(CaseList& list) {
    add_codes_layouts(list);
    add_few_batched_rows(list);
    add_codes_chunks(list);
    for (const auto& [hidden, intermediate] : {std::pair{256, 256}, {192, 320}})
        add_codes_case(list, text("as_forward_h%d_i%d", hidden, intermediate), Extent::smoke,
                       [=, hidden = hidden, intermediate = intermediate](Context& context) {
                           check_against_forward(context, hidden, intermediate);
                       });
    add_codes_case(list, "refused", Extent::smoke, check_codes_refused);
}

}  // namespace moe_gpu
