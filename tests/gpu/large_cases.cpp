// Offsets beyond 2^31 elements, in weights and in activations, and calls with many tokens.
#include <algorithm>

#include "compare.hpp"

namespace moe_gpu {
namespace {

void need_memory(Context& context, uint64_t bytes) {
    if (!context.device.is_cuda()) return;
    const uint64_t free = context.device.free_bytes();
    if (free < bytes + (uint64_t{1} << 30))
        throw Skip(text("%lu MiB of device memory are free, %lu are needed",
                        static_cast<unsigned long>(free >> 20),
                        static_cast<unsigned long>(bytes >> 20)));
}

// More than 2^31 elements in every stack; the last experts are used. On the host all experts share
// two sets of matrices.
void check_weights(Context& context, const char* format, uint64_t bytes) {
    need_memory(context, bytes);
    PairSpec spec;
    spec.layer.desc = plain_layer(4096, 8192, 72, 2);
    spec.layer.format = format;
    spec.layer.distinct_experts = 2;
    spec.max_tokens = 20;
    with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
        for (const int64_t T : {1, 3, 20}) {
            Forward call = pair.routed_call(T);
            for (size_t i = 0; i < call.ids.size(); ++i)
                call.ids[i] = i % 2 ? 71 - static_cast<int64_t>(i % 4) : 64 + call.ids[i] % 6;
            pair.check(call, pair.spec.layer.format);
        }
    });
}

// T * hidden and T * k * hidden beyond 2^31: the same thousand tokens again and again must give the
// same rows.
void check_activations(Context& context) {
    if (!context.device.is_cuda()) throw Skip("takes 9 GiB of device memory");
    constexpr int64_t H = 8192, block = 1024, T = block * 265;
    constexpr uint64_t bytes = uint64_t{T} * H * 2;
    need_memory(context, 2 * bytes + (uint64_t{12} << 30));
    PairSpec spec;
    spec.layer.desc = plain_layer(H, 64, 8, 2);
    spec.max_tokens = T;
    const Pair pair(context, spec);
    const Side& side = pair.subject;
    PairSpec of_block = spec;
    of_block.max_tokens = block;
    const Pair small(context, of_block, pair.data);
    const Forward call = small.routed_call(block);
    const Result wanted = small.check(call, "a block alone");

    Rows x(context.device, MOE_TYPE_BF16, block, H);
    x.put(call.x);
    Bytes rows(static_cast<size_t>(block * H * 2));
    context.device.download(rows.data(), x.data(), rows.size());
    Buffer all_x(context.device, bytes), all_out(context.device, bytes);
    all_out.poison();
    for (int64_t b = 0; b < T / block; ++b)
        context.device.upload(static_cast<std::byte*>(all_x.data()) + b * block * H * 2,
                              rows.data(), rows.size());
    Ids ids;
    Floats weights;
    for (int64_t b = 0; b < T / block; ++b) {
        ids.insert(ids.end(), call.ids.begin(), call.ids.end());
        weights.insert(weights.end(), call.weights.begin(), call.weights.end());
    }
    Rows all_ids(context.device, MOE_TYPE_I32, T, 2),
        all_weights(context.device, MOE_TYPE_F32, T, 2);
    all_ids.put(ids);
    all_weights.put(weights);
    auto args = sized<moe_forward_args>();
    args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    args.n_tokens = T;
    args.x = all_x.data();
    args.out = all_out.data();
    args.ids = all_ids.data();
    args.weights = all_weights.data();
    args.stream = side.stream();
    must(moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &args), "moe_forward");
    side.synchronize();
    for (const int64_t b : {int64_t{0}, int64_t{131}, int64_t{255}, int64_t{256}, T / block - 1}) {
        context.device.download(
            rows.data(), static_cast<std::byte*>(all_out.data()) + b * block * H * 2, rows.size());
        Floats out(static_cast<size_t>(block * H));
        for (size_t i = 0; i < out.size(); ++i) out[i] = load(MOE_TYPE_BF16, &rows[2 * i]);
        context.measure(text("block %ld", static_cast<long>(b)), worst_row(out, wanted.out, H),
                        rounded_limit);
    }
}

void add_prompts(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4", "fp8_128x128", "kbit4", "q8_0", "mxfp4"})
        list.add(text("large/prompt/%s", format), Extent::large, [=](Context& context) {
            PairSpec spec;
            spec.layer.desc = plain_layer(1024, 384, 32, 4);
            spec.layer.format = format;
            spec.max_tokens = 8192;
            with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                for (const int64_t T : {2049, 8192}) pair.check(pair.routed_call(T));
            });
        });
}

// So many bytes for one token that its kernels have an SM for each block, and teams of warps. The
// intermediate size is one for which teams have unequal numbers of tiles, and experts too.
void add_many_bytes_of(CaseList& list, const char* format, int32_t intermediate, Extent extent) {
    list.add(text("large/many_bytes_of_one/%s", format), extent, [=](Context& context) {
        PairSpec spec;
        spec.layer.desc = plain_layer(2048, intermediate, 4, 4);
        spec.layer.format = format;
        spec.layer.form = Form::tensor_per_expert;
        spec.layer.own_codebooks = true;  // of those that come with a codebook
        spec.max_tokens = 2;
        with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
            for (const int64_t T : {1, 2}) pair.check(pair.routed_call(T));
        });
    });
}

// The same with more tokens than the plan would let go side by side, which share experts.
void add_many_bytes_of_few(CaseList& list, const char* format, Extent extent,
                           const std::vector<int64_t>& tokens) {
    list.add(text("large/many_bytes_of_few/%s", format), extent, [=](Context& context) {
        PairSpec spec;
        spec.layer.desc = plain_layer(2048, 704, 32, 6);
        spec.layer.format = format;
        spec.max_tokens = 16;
        const auto data = std::make_shared<LayerData>(spec.layer);
        const Pair plain(context, spec, data);
        const char* kernel = nullptr;
        must(moe_plan_kernel(plain.subject.plan.get(), MOE_STAGE_EXPERTS, 1, &kernel),
             "moe_plan_kernel");
        spec.loaded = plain.subject.weights;
        spec.subject = [&](moe_plan_desc& desc) { desc.kernel_filter = kernel; };
        const Pair pair(context, spec, data);
        for (const int64_t T : tokens) pair.check(pair.routed_call(T));
    });
}

void add_many_bytes(CaseList& list) {
    add_many_bytes_of(list, "bf16", 1408, Extent::full);
    add_many_bytes_of(list, "fp8_128x128", 2816, Extent::full);
    add_many_bytes_of(list, "q8_0", 2624, Extent::full);
    add_many_bytes_of(list, "nvfp4", 4928, Extent::smoke);
    add_many_bytes_of(list, "mxfp4", 5184, Extent::full);
    add_many_bytes_of(list, "kbit2", 9792, Extent::full);
    add_many_bytes_of(list, "kbit3", 6784, Extent::full);
    add_many_bytes_of(list, "kbit4", 5184, Extent::full);
    add_many_bytes_of(list, "kbit5", 4224, Extent::smoke);
    add_many_bytes_of(list, "kbit2_given", 9792, Extent::full);
    add_many_bytes_of(list, "kbit3_given", 6784, Extent::full);
    add_many_bytes_of(list, "kbit4_given", 5184, Extent::full);
    add_many_bytes_of(list, "q4_k", 5120, Extent::smoke);
    constexpr struct {
        const char* format;
        int32_t intermediate;
    } others_of_ggml[] = {{"q4_0", 4928},    {"q4_1", 4480},   {"q5_0", 4160},     {"q5_1", 3776},
                          {"iq4_nl", 4928},  {"q2_k", 8960},   {"q3_k", 6912},     {"q5_k", 4352},
                          {"q6_k", 3584},    {"iq4_xs", 5632}, {"iq2_xxs", 11264}, {"iq2_xs", 9984},
                          {"iq3_xxs", 7680}, {"iq3_s", 6912}};
    for (const auto& one : others_of_ggml)
        add_many_bytes_of(list, one.format, one.intermediate, Extent::full);
    for (const char* format :
         {"bf16", "fp8_128x128", "mxfp4", "q8_0", "kbit2", "kbit3", "kbit4", "kbit5"})
        add_many_bytes_of_few(list, format, Extent::full, {5, 8, 16});
    // Their codebooks are no bytes, and without a table for all experts many bytes begin later.
    for (const char* format : {"kbit2_given", "kbit3_given"})
        add_many_bytes_of_few(list, format, Extent::full, {10, 16});
    add_many_bytes_of_few(list, "nvfp4", Extent::smoke, {5});
}

}  // namespace

void add_large_cases(CaseList& list) {
    add_prompts(list);
    add_many_bytes(list);
    list.add("large/weights/bf16", Extent::large, [](Context& context) {
        check_weights(context, "bf16", uint64_t{72} * 3 * 4096 * 8192 * 2);
    });
    list.add("large/weights/nvfp4", Extent::large, [](Context& context) {
        check_weights(context, "nvfp4", uint64_t{72} * 3 * 4096 * 8192 * 9 / 16);
    });
    list.add("large/activations", Extent::large, check_activations);
}

}  // namespace moe_gpu
