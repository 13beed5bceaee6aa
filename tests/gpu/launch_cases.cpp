// How many kernels a forward launches: as few as the stages can be done in. A launch more costs
// microseconds, of which a layer with one token has about ten.
#include "compare.hpp"

namespace moe_gpu {
namespace {

// From given ids and weights, with no other output than the sum; from x, the router's too.
struct LaunchCounts {
    size_t from_ids, from_x;
};

// One token: the GEMV of gate and up, and that of down, which adds up its slots itself. From x two
// more: the logits, and the choice.
constexpr LaunchCounts of_one_token{2, 4};
// Sorted rows: the sort, which takes the ids and weights, too, and arranges x; gate and up; down;
// the sum over the slots. From x also the logits and the choice.
constexpr LaunchCounts of_grouped_gemm{4, 6};

LaunchCounts wanted_counts(const Pair& pair, int64_t n_tokens) {
    const std::string kernel = pair.subject.kernel(MOE_STAGE_EXPERTS, n_tokens);
    const KernelName name(kernel);
    if (name.family == "gemv") return of_one_token;
    if (name.family == "grouped_gemm") return of_grouped_gemm;
    throw Failure("no launches are known of " + kernel);
}

// More slots than one block sorts: a launch to count them and one to give them rows.
constexpr int64_t many_tokens = 4099;
constexpr size_t more_for_many = 1;
constexpr int64_t middle_tokens = 64;

void expect_count(const Pair& pair, Forward call, size_t wanted, const char* what) {
    call.wants_routing = false;
    const size_t mark = launch_mark();
    pair.check(call, what);
    const std::vector<Launch> launches = launches_since(mark);
    std::string list;
    for (const Launch& launch : launches) list += " " + launch.kernel;
    pair.context.expect(launches.size() == wanted, text("T %ld, %s: %zu launches, wanted %zu:%s",
                                                        static_cast<long>(call.n_tokens), what,
                                                        launches.size(), wanted, list.c_str()));
}

void check_counts(const Pair& pair, int64_t n_tokens, const char* family) {
    if (!pair.subject.device.is_cuda()) throw Skip("the CPU launches nothing");
    need_launches();
    const std::string kernel = pair.subject.kernel(MOE_STAGE_EXPERTS, n_tokens);
    if (family)
        pair.context.expect(KernelName(kernel).family == family,
                            kernel + " is chosen, not " + family);
    const LaunchCounts wanted = wanted_counts(pair, n_tokens);
    expect_count(pair, pair.routed_call(n_tokens), wanted.from_ids, "from ids");
    expect_count(pair, pair.call(n_tokens), wanted.from_x, "from x");
}

// From ids: five launches, where all experts have many rows.
void check_many(const Pair& pair) {
    if (!pair.subject.device.is_cuda()) throw Skip("the CPU launches nothing");
    need_launches();
    expect_count(pair, pair.routed_call(many_tokens), of_grouped_gemm.from_ids + more_for_many,
                 "from ids");
}

// Sixteen rows of an expert on average, and more of some: of Hopper's a launch for either width of
// tiles, where weights are dequantized.
void check_middle(const Pair& pair, bool is_16_bit) {
    if (!pair.subject.device.is_cuda()) throw Skip("the CPU launches nothing");
    need_launches();
    const std::string kernel = pair.subject.kernel(MOE_STAGE_EXPERTS, middle_tokens);
    const size_t more = !is_16_bit && kernel.rfind("sm90_", 0) == 0 ? 2 : 0;
    expect_count(pair, pair.routed_call(middle_tokens), of_grouped_gemm.from_ids + more,
                 "from ids");
}

// Alone, and with a shared expert that goes with the others at no launch more.
void add_counts(CaseList& list, const char* name, const moe_layer_desc& desc) {
    for (const char* format : {"bf16", "nvfp4"}) {
        PairSpec spec;
        spec.layer.desc = desc;
        spec.layer.format = spec.layer.dense_format = format;
        spec.max_tokens = 32;
        list.add(text("launches/%s/%s/t1", name, format), Extent::smoke,
                 [=](Context& context) { check_counts(Pair(context, spec), 1, "gemv"); });
        list.add(text("launches/%s/%s/t32", name, format), Extent::smoke,
                 [=](Context& context) { check_counts(Pair(context, spec), 32, nullptr); });
        spec.max_tokens = middle_tokens;
        const bool is_16_bit = format == std::string("bf16");
        list.add(text("launches/%s/%s/middle", name, format), Extent::smoke,
                 [=](Context& context) { check_middle(Pair(context, spec), is_16_bit); });
        spec.max_tokens = many_tokens;
        list.add(text("launches/%s/%s/many", name, format), Extent::full,
                 [=](Context& context) { check_many(Pair(context, spec)); });
        list.add(text("launches/%s/%s/many_portable", name, format), Extent::full,
                 [=](Context& context) {
                     PairSpec portable = spec;
                     portable.subject = [](moe_plan_desc& desc) {
                         desc.kernel_filter = "sm80_*_grouped_gemm_*";
                     };
                     if (!context.device.is_cuda()) throw Skip("the CPU launches nothing");
                     check_many(Pair(context, portable));
                 });
    }
}

// The other cases read these parts from names.
void check_names(Context& context) {
    const auto expect = [&](const char* kernel, const char* weight, const char* group) {
        const KernelName name(kernel);
        context.expect(
            name.weight == weight && name.group() == group,
            text("%s is read as %s of %s", kernel, name.group().c_str(), name.weight.c_str()));
    };
    expect("sm90_nvfp4_bf16_gemv_gate_up", "nvfp4", "sm90 bf16 gemv");
    expect("sm80_kbit4_f32_bf16_gemv_down", "kbit4_f32", "sm80 bf16 gemv");
    expect("sm90_bf16_bf16_grouped_gemm_gate_up", "bf16", "sm90 bf16 grouped_gemm");
    expect("sm80_q4_k+q5_k_f16_grouped_gemm_gate_up", "q4_k+q5_k", "sm80 f16 grouped_gemm");
    expect("sm80_q6_k_f16_grouped_gemm_down", "q6_k", "sm80 f16 grouped_gemm");
    expect("sm80_f32_f32_exact_down", "f32", "sm80 f32 exact");
    context.expect(stands_for("sm90_nvfp4_bf16_gemv", "sm90_nvfp4_bf16_gemv_down"), "a stage");
    context.expect(stands_for("sm90_f16_f16_gemv", "sm90_f16_f16_gemv"), "itself");
    context.expect(!stands_for("sm90_kbit4_bf16_gemv", "sm90_kbit4_bf16_gemv2"), "another");
    context.expect(is_function_of("sm90_f16_bf16_gemv_down",
                                  "void moe::cuda::gemv_down<moe::cuda::GemvF16, moe::P>(int)"),
                   "its own function");
    context.expect(
        is_function_of("sm80_int4_bf16_grouped_gemm_down_wide",
                       "void moe::cuda::sm80_grouped_kernel<(moe::PackedType)35, "
                       "(moe::cuda::Operand)0, (moe::cuda::Sm80Form)1, moe::cuda::Sm80Wide>"
                       "(moe::cuda::Sm80Call)"),
        "the portable function of int4");
    context.expect(!is_function_of("sm80_bf16_bf16_grouped_gemm_down_wide",
                                   "void moe::cuda::grouped_kernel<moe::cuda::GroupedDequant<("
                                   "moe::PackedType)3>, moe::cuda::Wide, false>(int)"),
                   "Hopper's function under a portable name");
    for (const char* other : {"void moe::cuda::gemv_down<moe::cuda::GemvBf16, moe::P>(int)",
                              "void moe::cuda::gemv_down<moe::cuda::G<(moe::PackedType)3, A>>(int)",
                              "void moe::cuda::gemv_up<moe::cuda::GemvF16, moe::P>(int)"})
        context.expect(!is_function_of("sm90_f16_bf16_gemv_down", other), other);
}

}  // namespace

void add_launch_cases(CaseList& list) {
    moe_layer_desc shared = plain_layer(128, 64, 8, 2);
    shared.shared_intermediate = 64;
    shared.shared_activation = shared.activation;
    shared.shared_is_gated = 1;
    list.add("launches/names", Extent::smoke, check_names);
    add_counts(list, "plain", plain_layer(128, 64, 8, 2));
    add_counts(list, "shared_alike", shared);
}

}  // namespace moe_gpu
