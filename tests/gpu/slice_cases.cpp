// Partial plans: slices of experts and of the intermediate, summed and finished once; per-slot
// output; plans that own some stages only.
#include <algorithm>
#include <tuple>

#include "families.hpp"
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
                     const Numbers& numbers, const Partition& partition,
                     const ForcePlan& force = nullptr) {
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
            PairSpec of_part = partial_spec(desc, format, numbers, &slice);
            of_part.subject = force;
            const Pair part(context, of_part, data);
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

constexpr int32_t half_of_experts[] = {-1, 2, 0, -1, 1, -1, 3, -1};
constexpr int32_t reversed_experts[] = {7, 6, 5, 4, 3, 2, 1, 0};

moe_slice mapped(const int32_t (&map)[8]) {
    moe_slice slice = whole();
    slice.expert_to_local = map;
    slice.n_expert_to_local = 8;
    return slice;
}

void check_slice_map(const Pair& pair) {
    Context& context = pair.context;
    for (const int64_t T : {1, 5, 50}) {
        Forward call = pair.routed_call(T);
        call.base = rounded(normal(T * 128, 3), pair.spec.numbers.out);
        pair.check(call, "map of experts");
        // Of the slice's four, two stay and change places.
        call.expert_map = {0, -1, 2, -1, -1, -1, -1, -1};
        pair.check(call, "map of the call");
        const Dispatched got = dispatch(pair.subject, {T, call.ids, 4, {}, 4});
        context.expect(got == dispatch(pair.reference, {T, call.ids, 4, {}, 4}), "rows differ");
    }
}

// Every expert is local under another number, and the map is its own inverse.
void check_permuted(const Pair& pair) {
    for (const int64_t T : {1, 2, 50}) pair.check(pair.routed_call(T));
}

void check_per_slot(const Pair& pair) {
    Context& context = pair.context;
    for (const int64_t T : {1, 50}) {
        Forward call = pair.routed_call(T);
        // Output by slot has no kernel for few tokens.
        pair.check(call, "by token");
        call.out_layout = MOE_OUT_PER_SLOT;
        const Result dense = pair.check(call, "per slot");
        call.out_place.stride = 3 * pair.data->width() + 5;
        context.expect(pair.check(call, "per slot, strided").bits == dense.bits,
                       "per slot, strided: other bits");
    }
}

PairSpec experts_alone(const moe_layer_desc& desc) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.max_tokens = 30;
    spec.both = [](moe_plan_desc& plan) {
        plan.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
        plan.partial = 1;
    };
    return spec;
}

// A plan for experts alone has the weights of nothing else.
void check_stages(const Pair& pair) {
    Context& context = pair.context;
    for (const int64_t T : {2, 30}) pair.check(pair.routed_call(T), "without route and finish");
    auto report = sized<moe_memory_report>();
    must(moe_weights_memory(pair.subject.weights.get(), &report), "moe_weights_memory");
    context.expect(!report.role_bytes[MOE_ROLE_ROUTER] && !report.role_bytes[MOE_ROLE_SHARED_UP],
                   "weights of other stages are loaded");
}

// Layers off the grid of 64 by the plan's choice, and on it on every family.
void add_maps(CaseList& list) {
    static const moe_slice of_half = mapped(half_of_experts), reversed = mapped(reversed_experts),
                           all = whole();
    const std::tuple<const char*, const moe_slice*, void (*)(const Pair&)> kinds[] = {
        {"map", &of_half, check_slice_map},
        {"permuted", &reversed, check_permuted},
        {"per_slot/l0", &all, check_per_slot},
    };
    for (const auto& [name, slice, run] : kinds) {
        for (const Numbers& numbers : common_numbers)
            list.add(text("slice/%s/%s", name, numbers.name), Extent::smoke,
                     [=, slice = slice, run = run](Context& context) {
                         run(Pair(context,
                                  partial_spec(rich_layer(128, 64, 8, 3), "bf16", numbers, slice)));
                     });
        for (const char* format : {"bf16", "nvfp4"})
            list.add(text("families/slice/%s/%s", name, format),
                     format[0] == 'b' ? Extent::smoke : Extent::full,
                     [=, slice = slice, run = run](Context& context) {
                         with_every_family(
                             context,
                             partial_spec(rich_layer_on_grid(128, 64, 8, 3), format, bf16, slice),
                             run);
                     });
    }
    moe_layer_desc latent = rich_layer(128, 64, 8, 3);
    latent.latent = 64;
    for (const Numbers& numbers : common_numbers)
        list.add(text("slice/per_slot/l64/%s", numbers.name), Extent::smoke, [=](Context& context) {
            check_per_slot(Pair(context, partial_spec(latent, "bf16", numbers, &all)));
        });
}

void add_partitions_on_every_family(CaseList& list) {
    const moe_layer_desc desc = rich_layer_on_grid(128, 256, 8, 3);
    for (const Partition& partition : partitions(8, 256))
        for (const char* format : {"bf16", "nvfp4"})
            list.add(text("families/slice/%s/%s", partition.name, format),
                     format[0] == 'b' ? Extent::smoke : Extent::full, [=](Context& context) {
                         force_every_family(
                             context, partial_spec(desc, format, bf16, &partition.slices[0]),
                             [&](const ForcePlan& force) {
                                 check_partition(context, desc, format, bf16, partition, force);
                             });
                     });
}

}  // namespace

void add_slice_cases(CaseList& list) {
    add_partitions(list);
    add_partitions_on_every_family(list);
    add_grids(list);
    add_maps(list);
    list.add("slice/stages", Extent::smoke, [](Context& context) {
        check_stages(Pair(context, experts_alone(rich_layer(128, 64, 8, 3))));
    });
    list.add("families/slice/stages", Extent::smoke, [](Context& context) {
        with_every_family(context, experts_alone(rich_layer_on_grid(128, 64, 8, 3)), check_stages);
    });
}

}  // namespace moe_gpu
