// Whole layers from x to out: every rule of routing, activation and part of a layer, in every type.
#include <string_view>

#include "compare.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

Forward call_of(const Pair& pair, int64_t n_tokens) {
    Forward call = pair.call(n_tokens, 11 + static_cast<uint64_t>(n_tokens));
    call.token_ids = random_token_ids(pair.desc(), n_tokens, 6);
    call.uses_second_bias = random_second_bias(pair.desc(), n_tokens, 6);
    return call;
}

void add(CaseList& list, const char* group, const NamedLayer& layer, const char* format,
         const Numbers& numbers, Extent extent) {
    if (!can_hold(format, layer.desc)) return;
    list.add(text("layer/%s/%s/%s/%s", group, layer.name, format, numbers.name), extent,
             [=](Context& context) {
                 PairSpec spec;
                 spec.layer.desc = layer.desc;
                 spec.layer.format = format;
                 spec.numbers = numbers;
                 spec.max_tokens = 130;
                 with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [&](const Pair& pair) {
                     for (const int64_t T : {1, 6, 130}) pair.check(call_of(pair, T), layer.name);
                 });
             });
}

void add_all(CaseList& list, const char* group, const std::vector<NamedLayer>& layers) {
    for (const NamedLayer& layer : layers) {
        add(list, group, layer, "bf16", bf16, Extent::smoke);
        add(list, group, layer, "f32", f32, Extent::smoke);
        add(list, group, layer, "f16", f16, Extent::full);
        add(list, group, layer, "nvfp4", bf16, Extent::full);
        add(list, group, layer, "mxfp4", f32, Extent::full);
    }
}

// Shared expert and latent projections of their own formats.
void add_dense_formats(CaseList& list) {
    for (const char* format : {"f32", "f16", "bf16", "nvfp4", "mxfp4", "kbit4", "q8_0"})
        for (const Numbers& numbers : {bf16, f32}) {
            moe_layer_desc desc = rich_layer(128, 96, 8, 2);
            desc.latent = 64;
            desc.shared_intermediate = 96;
            list.add(text("layer/dense_format/%s/%s", format, numbers.name), Extent::smoke,
                     [=](Context& context) {
                         PairSpec spec;
                         spec.layer.desc = desc;
                         spec.layer.dense_format = format;
                         spec.numbers = numbers;
                         spec.max_tokens = 90;
                         with_every_kernel(context, spec, MOE_STAGE_FINISH, [&](const Pair& pair) {
                             for (const int64_t T : {1, 4, 90}) pair.check(pair.call(T));
                         });
                     });
        }
}

// A shared expert of another size than the others, so that it runs apart.
void add_shared_expert(LayerSpec& layer, int32_t intermediate) {
    layer.desc.shared_intermediate = intermediate;
    layer.desc.shared_activation = layer.desc.activation;
    layer.desc.shared_is_gated = 1;
}

// One whose rows are tokens, after a latent, whose rows may be slots: with many slots
// a token and a wide shared expert, places by the one would lie beyond the workspace of the other.
void add_shared_beside_latent(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4"})
        list.add(text("layer/shared_beside_latent/%s", format), Extent::smoke,
                 [=](Context& context) {
                     PairSpec spec;
                     spec.layer.desc = plain_layer(128, 64, 16, 8);
                     spec.layer.desc.latent = 64;
                     add_shared_expert(spec.layer, 512);
                     spec.layer.format = spec.layer.dense_format = format;
                     spec.max_tokens = 90;
                     with_every_kernel(context, spec, MOE_STAGE_FINISH, [](const Pair& pair) {
                         for (const int64_t T : {1, 9, 90}) pair.check(pair.routed_call(T));
                     });
                 });
}

// A norm without eps: a token whose slots are all skipped has zeros under it, and gives zeros.
void add_norm_without_eps(CaseList& list) {
    list.add("layer/latent_norm/no_eps", Extent::smoke, [](Context& context) {
        PairSpec spec;
        spec.layer.desc = plain_layer(128, 64, 8, 2);
        spec.layer.desc.latent = 64;
        spec.layer.desc.has_latent_norm = 1;
        spec.max_tokens = 20;
        const Pair pair(context, spec);
        for (const int64_t T : {2, 3, 20}) {
            Forward call = pair.routed_call(T);
            std::fill_n(call.ids.begin(), 2, -1);
            pair.check(call);
        }
    });
}

// By every kernel.
void add_shared_apart(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4", "kbit4", "q8_0"})
        list.add(text("layer/shared_apart/%s", format), Extent::smoke, [=](Context& context) {
            PairSpec spec;
            spec.layer.desc = plain_layer(256, 128, 16, 2);
            add_shared_expert(spec.layer, 192);
            spec.layer.format = spec.layer.dense_format = format;
            spec.max_tokens = 90;
            with_every_kernel(context, spec, MOE_STAGE_FINISH, [](const Pair& pair) {
                for (const int64_t T : {1, 2, 4, 90}) pair.check(pair.routed_call(T));
            });
        });
}

// A plan that ran the shared expert apart would give the same sums.
void expect_joined(Context& context, const Pair& pair) {
    if (context.device.kind() != MOE_DEVICE_CUDA) return;
    context.expect(!pair.subject.is_shared_apart(), "the shared expert runs apart");
}

// The shared expert as one more slot: few tokens side by side, a small sort, a large one and one in
// runs; the true number of tokens on the device; a plan of small chunks.
void check_shared_alike(Context& context, const PairSpec& spec) {
    const Pair pair(context, spec);
    expect_joined(context, pair);
    for (const int64_t T : {1, 2, 3, 4, 5, 33, 300, 1100}) pair.check(pair.call(T));
    for (const int64_t T : {1, 3, 9}) {
        Forward given = pair.routed_call(T);
        given.wants_routing = false;
        pair.check(given, "given ids and weights");
    }
    Forward fewer = pair.call(70);
    fewer.n_tokens_device = 41;
    pair.check(fewer, "41 of 70 tokens");
    fewer = pair.call(900);
    fewer.n_tokens_device = 600;
    pair.check(fewer, "600 of 900 tokens");
    PairSpec chunks = spec;
    chunks.subject = [](moe_plan_desc& desc) { desc.max_workspace_bytes = 2 << 20; };
    const Pair small(context, chunks);
    small.check(small.call(1100), "in chunks");
}

// One format that is read as it is, one with scales, one with codebooks: the cases are long.
bool in_smoke(std::string_view format) {
    return format == "bf16" || format == "nvfp4" || format == "kbit3";
}

void add_shared_alike(CaseList& list) {
    for (const char* format : {"f32", "f16", "bf16", "fp8_128x128", "nvfp4", "mxfp4", "kbit2",
                               "kbit3", "kbit4", "kbit5", "q8_0", "q4_k"})
        for (const Numbers& numbers : {bf16, f16, f32}) {
            moe_layer_desc desc = plain_layer(256, 256, 128, 4);
            desc.shared_intermediate = 256;
            desc.shared_activation = desc.activation;
            desc.shared_is_gated = 1;
            desc.has_shared_expert_gate = 1;
            list.add(text("layer/shared_alike/%s/%s", format, numbers.name),
                     numbers.x == MOE_TYPE_BF16 && in_smoke(format) ? Extent::smoke : Extent::full,
                     [=](Context& context) {
                         PairSpec spec;
                         spec.layer.desc = desc;
                         spec.layer.format = format;
                         spec.layer.dense_format = format;
                         spec.numbers = numbers;
                         spec.max_tokens = 1100;
                         check_shared_alike(context, spec);
                     });
        }
}

// One expert has all rows: more than a part of a tile that is stored at once, of a middle and of a
// wide tile, and more than an instruction takes.
void add_rows_of_one_expert(CaseList& list) {
    for (NamedLayer layer : activation_layers()) {
        layer.desc.n_experts = layer.desc.top_k = 1;
        for (const Numbers& numbers : {bf16, f16})
            list.add(text("layer/many_rows/%s/%s", layer.name, numbers.name),
                     numbers.x == MOE_TYPE_BF16 ? Extent::smoke : Extent::full,
                     [=](Context& context) {
                         PairSpec spec;
                         spec.layer.desc = layer.desc;
                         spec.numbers = numbers;
                         spec.max_tokens = 281;
                         with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [&](const Pair& pair) {
                             for (const int64_t T : {90, 101, 281})
                                 pair.check(call_of(pair, T), layer.name);
                         });
                     });
    }
}

}  // namespace

void add_layer_cases(CaseList& list) {
    add_all(list, "routing", routing_layers());
    add_all(list, "experts", expert_layers());
    add_rows_of_one_expert(list);
    add_dense_formats(list);
    add_shared_apart(list);
    add_shared_beside_latent(list);
    add_norm_without_eps(list);
    add_shared_alike(list);
}

}  // namespace moe_gpu
