// Partial plans: slices of experts and of the intermediate, summed and finished once; per-slot
// output; plans that own some stages only.
#include <algorithm>

#include "compare.hpp"
#include "layer_kinds.hpp"
#include "stages.hpp"

namespace moe_gpu {
namespace {

moe_slice whole() {
    return sized<moe_slice>();
}

moe_slice experts_from(int32_t begin, int32_t count) {
    moe_slice slice = whole();
    slice.has_expert_range = 1;
    slice.expert_begin = begin;
    slice.expert_count = count;
    return slice;
}

moe_slice features_from(int32_t begin, int32_t count) {
    moe_slice slice = whole();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = begin;
    slice.intermediate_count = count;
    return slice;
}

struct Partition {
    const char* name;
    std::vector<moe_slice> slices;
};

std::vector<Partition> partitions(int32_t n_experts, int32_t features) {
    std::vector<moe_slice> quarters;
    for (const int32_t expert : {0, n_experts / 2})
        for (const int32_t feature : {0, features / 2}) {
            quarters.push_back(experts_from(expert, n_experts / 2));
            quarters.back().has_intermediate_range = 1;
            quarters.back().intermediate_begin = feature;
            quarters.back().intermediate_count = features / 2;
        }
    return {
        {"whole", {whole()}},
        {"experts", {experts_from(0, 3), experts_from(3, n_experts - 3)}},
        {"features",
         {features_from(0, features / 4), features_from(features / 4, features / 4),
          features_from(features / 2, features / 2)}},
        {"both", quarters},
    };
}

PairSpec partial_spec(const moe_layer_desc& desc, const char* format, const Numbers& numbers,
                      const moe_slice* slice) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.format = format;
    spec.numbers = numbers;
    spec.max_tokens = 50;
    spec.both = [=](moe_plan_desc& plan) {
        plan.partial = 1;
        plan.slice = slice;
    };
    return spec;
}

// Each slice against the CPU's; their sum, finished, against the CPU's whole layer.
void check_partition(Context& context, const moe_layer_desc& desc, const char* format,
                     const Numbers& numbers, const Partition& partition) {
    PairSpec of_whole;
    of_whole.layer.desc = desc;
    of_whole.layer.format = format;
    of_whole.numbers = numbers;
    of_whole.max_tokens = 50;
    auto data = std::make_shared<LayerData>(of_whole.layer);
    const Pair layer(context, of_whole, data);
    for (const int64_t T : {1, 50}) {
        Floats sum;
        Forward call = layer.routed_call(T);
        for (const moe_slice& slice : partition.slices) {
            const Pair part(context, partial_spec(desc, format, numbers, &slice), data);
            call.base = sum;
            // A token may have no expert in the slice; alone it would be refused as zero.
            if (sum.empty()) call.base.assign(static_cast<size_t>(T * part.data->width()), 0.0f);
            sum = part.check(call, partition.name).out;
            if (&slice != &partition.slices.back()) continue;
            Finish last{0, T, sum, call.x, call.weights, {}, call.ids};
            const Floats got = finish(part.subject, last);
            call.base.clear();
            const Result wanted = layer.reference.forward(call);
            // The sum was rounded once per slice.
            context.measure(text("%s finished, T %ld", partition.name, static_cast<long>(T)),
                            worst_row(got, wanted.out, desc.hidden), 2 * numbers.limit);
        }
    }
}

void add_partitions(CaseList& list) {
    moe_layer_desc rich = rich_layer(128, 64, 8, 3);
    moe_layer_desc latent = rich, identity = rich, on_input = rich;
    latent.latent = 64;
    identity.n_identity_experts = 4;
    on_input.weight_on = MOE_WEIGHT_ON_INPUT;
    const NamedLayer layers[] = {
        {"rich", rich}, {"latent", latent}, {"identity", identity}, {"on_input", on_input}};
    for (const NamedLayer& layer : layers)
        for (const Partition& partition : partitions(8, 64))
            for (const Numbers& numbers : {bf16, f32})
                for (const char* format : {"bf16", "nvfp4"})
                    list.add(
                        text("slice/%s/%s/%s/%s", partition.name, layer.name, format, numbers.name),
                        format[0] == 'b' ? Extent::smoke : Extent::full, [=](Context& context) {
                            check_partition(context, layer.desc, format, numbers, partition);
                        });
}

void add_grids(CaseList& list) {
    // Cuts that are legal and fall inside a scale group.
    const std::pair<const char*, moe_slice> cuts[] = {
        {"fp8_128x128", features_from(64, 192)}, {"fp8_128x128", features_from(128, 128)},
        {"nvfp4", features_from(48, 112)},       {"mxfp4", features_from(32, 96)},
        {"kbit4", features_from(64, 32)},        {"q8_0", features_from(32, 128)},
        {"bf16", features_from(16, 48)}};
    for (const auto& [format, slice] : cuts)
        list.add(
            text("slice/cut/%s_%d_%d", format, slice.intermediate_begin, slice.intermediate_count),
            Extent::smoke, [format = format, slice = slice](Context& context) {
                const moe_layer_desc desc = plain_layer(256, 320, 6, 3);
                with_every_kernel(context, partial_spec(desc, format, bf16, &slice),
                                  MOE_STAGE_EXPERTS, [](const Pair& pair) {
                                      for (const int64_t T : {1, 50})
                                          pair.check(pair.routed_call(T));
                                  });
            });
}

void check_map(Context& context, const Numbers& numbers) {
    const std::vector<int32_t> map{-1, 2, 0, -1, 1, -1, 3, -1};
    moe_slice slice = whole();
    slice.expert_to_local = map.data();
    slice.n_expert_to_local = 8;
    const Pair pair(context, partial_spec(rich_layer(128, 64, 8, 3), "bf16", numbers, &slice));
    for (const int64_t T : {1, 50}) {
        Forward call = pair.routed_call(T);
        call.base = rounded(normal(T * 128, 3), numbers.out);
        pair.check(call, "map of experts");
        // Of the slice's four, two stay and change places.
        call.expert_map = {0, -1, 2, -1, -1, -1, -1, -1};
        pair.check(call, "map of the call");
        const Dispatched got = dispatch(pair.subject, {T, call.ids, 4, {}, 4});
        context.expect(got == dispatch(pair.reference, {T, call.ids, 4, {}, 4}), "rows differ");
    }
}

// Every expert is local under another number, and the map is its own inverse.
void check_permuted(Context& context, const Numbers& numbers) {
    const std::vector<int32_t> map{7, 6, 5, 4, 3, 2, 1, 0};
    moe_slice slice = whole();
    slice.expert_to_local = map.data();
    slice.n_expert_to_local = 8;
    const Pair pair(context, partial_spec(rich_layer(128, 64, 8, 3), "bf16", numbers, &slice));
    for (const int64_t T : {1, 2, 50}) pair.check(pair.routed_call(T));
}

void check_per_slot(Context& context, const Numbers& numbers, int32_t latent) {
    moe_layer_desc desc = rich_layer(128, 64, 8, 3);
    desc.latent = latent;
    const moe_slice slice = whole();
    const Pair pair(context, partial_spec(desc, "bf16", numbers, &slice));
    for (const int64_t T : {1, 50}) {
        Forward call = pair.routed_call(T);
        call.out_layout = MOE_OUT_PER_SLOT;
        const Result dense = pair.check(call, "per slot");
        call.out_place.stride = 3 * pair.data->width() + 5;
        context.expect(pair.check(call, "per slot, strided").bits == dense.bits,
                       "per slot, strided: other bits");
    }
}

// A plan for experts alone has the weights of nothing else.
void check_stages(Context& context) {
    PairSpec spec;
    spec.layer.desc = rich_layer(128, 64, 8, 3);
    spec.max_tokens = 30;
    spec.both = [](moe_plan_desc& desc) {
        desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
        desc.partial = 1;
    };
    const Pair pair(context, spec);
    pair.check(pair.routed_call(30), "without route and finish");
    auto report = sized<moe_memory_report>();
    must(moe_weights_memory(pair.subject.weights.get(), &report), "moe_weights_memory");
    context.expect(!report.role_bytes[MOE_ROLE_ROUTER] && !report.role_bytes[MOE_ROLE_SHARED_UP],
                   "weights of other stages are loaded");
}

}  // namespace

void add_slice_cases(CaseList& list) {
    add_partitions(list);
    add_grids(list);
    for (const Numbers& numbers : common_numbers) {
        list.add(text("slice/map/%s", numbers.name), Extent::smoke,
                 [=](Context& context) { check_map(context, numbers); });
        list.add(text("slice/permuted/%s", numbers.name), Extent::smoke,
                 [=](Context& context) { check_permuted(context, numbers); });
        for (const int32_t latent : {0, 64})
            list.add(text("slice/per_slot/l%d/%s", latent, numbers.name), Extent::smoke,
                     [=](Context& context) { check_per_slot(context, numbers, latent); });
    }
    list.add("slice/stages", Extent::smoke, check_stages);
}

}  // namespace moe_gpu
