// The parts of TritonMoE's test grid with weights: grouped GEMM, expert FFN, end to end, fused gate
// and up, fused forward, in every type of activations; and layers of the models' own sizes.
//
// Its 162 tests, all in float16, and where their grid is here, with a relative error for each token
// in place of absolute ones:
//   router: softmax 24, sigmoid 8, models 10, edges 6   router_cases.cpp, triton/router_*
//   permute 30, unpermute 25, round trip 15, models 4   dispatch_cases.cpp, triton/permute* to
//                                                       triton/round_trip*
//   grouped GEMM 8, expert FFN 8, end to end 6, fused   this file
//   gate and up 6, fused forward 8
//   reference 4                                         the CPU's own tests, tests/forward
#include "compare.hpp"
#include "stages.hpp"

namespace moe_gpu {
namespace {

struct Grid {
    int64_t n_tokens;
    int32_t n_experts, k;
};

PairSpec spec_of(const Grid& grid, const Numbers& numbers, int32_t hidden = 256,
                 int32_t intermediate = 512) {
    PairSpec spec;
    spec.layer.desc = plain_layer(hidden, intermediate, grid.n_experts, grid.k);
    spec.layer.format = numbers.x == MOE_TYPE_F32   ? "f32"
                        : numbers.x == MOE_TYPE_F16 ? "f16"
                                                    : "bf16";
    spec.layer.desc.renormalize = MOE_RENORMALIZE_NONE;
    // Weights of a softmax over many experts are small; a scale brings the output back to one.
    spec.layer.desc.has_routed_scale = 1;
    spec.layer.desc.routed_scale = grid.n_experts > 32 ? 8 : 2;
    spec.numbers = numbers;
    spec.max_tokens = grid.n_tokens;
    return spec;
}

void use_sigmoid(moe_layer_desc& desc) {
    desc.score = MOE_SCORE_SIGMOID;
    desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    desc.renormalize_eps = 1e-6f;
}

Extent extent_of(const Grid& grid) {
    return grid.n_tokens <= 32 && grid.n_experts == 8 ? Extent::smoke : Extent::full;
}

template <class Run>
void add_for_all(CaseList& list, const char* name, std::initializer_list<int64_t> tokens, Run run) {
    for (const auto& [n, k] : {std::pair{8, 2}, std::pair{16, 4}})
        for (const int64_t T : tokens)
            for (const Numbers& numbers : common_numbers) {
                const Grid grid{T, n, k};
                list.add(text("triton/%s/t%ld_e%d_k%d/%s", name, static_cast<long>(T), n, k,
                              numbers.name),
                         extent_of(grid),
                         [=](Context& context) { run(context, grid, spec_of(grid, numbers)); });
            }
}

// Gate and up alone, or the whole FFN, from sorted rows to sorted rows.
void check_rows(const Pair& pair, const Grid& grid, bool stops) {
    const moe_layer_desc& d = pair.desc();
    const std::vector<int32_t> ids = random_ids(grid.n_tokens, grid.k, grid.n_experts, 6);
    const Dispatched order =
        dispatch(pair.subject, {grid.n_tokens, Ids(ids.begin(), ids.end()), 0, {}, grid.n_experts});
    const Floats x = pair.x(grid.n_tokens);
    Experts call;
    call.in = MOE_IN_SORTED;
    call.out = MOE_OUT_ROWS;
    call.stops_before_activation = stops;
    call.n_tokens = grid.n_tokens;
    for (const int32_t slot : order.row_ids) {
        const auto row = x.begin() + slot / grid.k * d.hidden;
        call.x.insert(call.x.end(), row, row + d.hidden);
    }
    call.x_columns = d.hidden;
    call.offsets = order.offsets;
    call.row_ids = order.row_ids;
    call.n_rows = call.out_rows = static_cast<int64_t>(order.row_ids.size());
    call.out_columns = stops ? 2 * d.intermediate : d.hidden;
    const size_t mark = launch_mark();
    const Floats got = experts(pair.subject, call);
    if (!stops) pair.expect_launched(launches_since(mark), MOE_STAGE_EXPERTS, grid.n_tokens, true);
    const Floats wanted = experts(pair.reference, call);
    pair.context.measure("rows", worst_row(got, wanted, call.out_columns), pair.spec.limit());
    pair.context.expect(rms(wanted) > 0.02, "the reference is near zero");
    for (const std::string& name : pair.subject.kernels(grid.n_tokens))
        pair.context.kernels.insert(name);
}

void add_triton_grids(CaseList& list) {
    add_for_all(list, "grouped_gemm", {32, 128, 512},
                [](Context& context, const Grid& grid, const PairSpec& spec) {
                    with_every_kernel(context, spec, MOE_STAGE_EXPERTS,
                                      [&](const Pair& pair) { check_rows(pair, grid, true); });
                });
    add_for_all(list, "expert_ffn", {32, 128, 512},
                [](Context& context, const Grid& grid, const PairSpec& spec) {
                    with_every_kernel(context, spec, MOE_STAGE_EXPERTS,
                                      [&](const Pair& pair) { check_rows(pair, grid, false); });
                });
    add_for_all(list, "end_to_end", {1, 32, 128},
                [](Context& context, const Grid& grid, const PairSpec& spec) {
                    with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [&](const Pair& pair) {
                        pair.check(pair.call(grid.n_tokens));
                    });
                });
    add_for_all(list, "fused_gate_up", {32, 128},
                [](Context& context, const Grid& grid, PairSpec spec) {
                    const Result fused =
                        Pair(context, spec).check(Pair(context, spec).call(grid.n_tokens), "fused");
                    spec.subject = [](moe_plan_desc& desc) { desc.unfused = 1; };
                    const Pair unfused(context, spec);
                    const Result apart = unfused.check(unfused.call(grid.n_tokens), "unfused");
                    context.measure("fused against unfused",
                                    worst_row(fused.out, apart.out, spec.layer.desc.hidden),
                                    2 * spec.limit());
                });
    add_for_all(list, "fused_forward", {1, 32, 128, 512},
                [](Context& context, const Grid& grid, PairSpec spec) {
                    use_sigmoid(spec.layer.desc);
                    const Pair pair(context, spec);
                    pair.check(pair.call(grid.n_tokens));
                });
}

struct TritonModel {
    const char* name;
    int32_t hidden, intermediate, n_experts, k;
};

// Experts share two sets of matrices: on the host a model's layer stays small.
void add_model(CaseList& list, const TritonModel& model, const char* format, bool is_sigmoid) {
    list.add(text("models%s/%s/%s", is_sigmoid ? "_sigmoid" : "", model.name, format),
             Extent::large, [=](Context& context) {
                 PairSpec spec = spec_of({129, model.n_experts, model.k}, bf16, model.hidden,
                                         model.intermediate);
                 spec.layer.format = format;
                 spec.layer.distinct_experts = 2;
                 spec.layer.desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
                 if (is_sigmoid) use_sigmoid(spec.layer.desc);
                 spec.layer.desc.routed_scale = 2;
                 const Pair pair(context, spec);
                 for (const int64_t T : {1, 5, 129}) pair.check(pair.call(T));
             });
}

void add_triton_models(CaseList& list) {
    constexpr TritonModel models[] = {
        {"mixtral_8x7b_ffn512", 4096, 512, 8, 2},  {"qwen2_moe_57b_ffn512", 3584, 512, 64, 4},
        {"deepseek_v3_ffn512", 7168, 512, 256, 8}, {"mixtral_8x7b", 4096, 14336, 8, 2},
        {"qwen2_moe_57b", 3584, 2560, 64, 4},      {"qwen3_next", 2048, 512, 512, 10},
        {"gpt_oss_20b", 2880, 2880, 32, 4},        {"mixtral_8x22b_ffn512", 6144, 512, 8, 2},
    };
    for (const TritonModel& model : models) {
        for (const char* format : {"bf16", "nvfp4"}) add_model(list, model, format, false);
        if (model.intermediate == 512) add_model(list, model, "bf16", true);
    }
}

}  // namespace

void add_triton_cases(CaseList& list) {
    add_triton_grids(list);
    add_triton_models(list);
}

}  // namespace moe_gpu
