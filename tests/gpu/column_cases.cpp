// Weights with a table of columns (act-order, pre_quant_scale): tables of every expert and of every
// matrix, slices, dense matrices, and the launches that gather by them.
#include "compare.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

constexpr const char* column_formats[] = {"gptq4_any_order", "gptq8_any_order", "int3_any_order",
                                          "nvfp4_pre_quant"};

PairSpec column_spec(const char* format, const Numbers& numbers, Tables tables) {
    PairSpec spec;
    spec.layer.desc = plain_layer(256, 192, 6, 3);
    spec.layer.format = format;
    spec.layer.form = Form::tensor_per_expert;
    spec.layer.tables = tables;
    spec.numbers = numbers;
    spec.max_tokens = 129;
    // Gate and up with tables that differ cannot be packed together.
    if (tables == Tables::of_matrix) spec.both = [](moe_plan_desc& plan) { plan.unfused = 1; };
    return spec;
}

void add_column_tables(CaseList& list) {
    for (const char* format : column_formats)
        for (const Numbers& numbers : {bf16, f16, f32})
            for (const Tables tables : {Tables::of_expert, Tables::of_matrix})
                list.add(text("columns/%s/%s/%s",
                              tables == Tables::of_expert ? "of_expert" : "of_matrix", format,
                              numbers.name),
                         numbers.x == MOE_TYPE_BF16 ? Extent::smoke : Extent::full,
                         [=](Context& context) {
                             with_every_kernel(context, column_spec(format, numbers, tables),
                                               MOE_STAGE_EXPERTS, [](const Pair& pair) {
                                                   for (const int64_t T : {1, 3, 33, 129})
                                                       pair.check(pair.routed_call(T));
                                                   Forward odd = pair.routed_call(33);
                                                   odd.x_place = {259, 1};
                                                   pair.check(odd, "rows that begin anywhere");
                                               });
                         });
}

// Columns that fill no blocks of 64: the padding has no column.
void add_padded_columns(CaseList& list) {
    for (const char* format : column_formats)
        for (const Numbers& numbers : {bf16, f16}) {
            PairSpec spec = column_spec(format, numbers, Tables::of_expert);
            spec.layer.desc = plain_layer(160, 96, 6, 3);
            list.add(text("columns/padded/%s/%s", format, numbers.name), Extent::smoke,
                     [=](Context& context) {
                         with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                             for (const int64_t T : {1, 33}) pair.check(pair.routed_call(T));
                         });
                     });
        }
}

// Rows of many experts, more than one pass of a block and wide tiles.
void add_large_column_tables(CaseList& list) {
    for (const char* format : column_formats) {
        PairSpec spec = column_spec(format, bf16, Tables::of_expert);
        spec.layer.desc = plain_layer(2048, 768, 16, 4);
        spec.max_tokens = 1001;
        list.add(text("columns/large/%s", format), Extent::full, [=](Context& context) {
            with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                for (const int64_t T : {1, 17, 300, 1001}) pair.check(pair.routed_call(T));
            });
        });
    }
}

// Rows of gate and up are cut, and factors of down's columns; an order of down's columns is not.
void add_column_slices(CaseList& list) {
    const std::pair<const char*, const char*> pairs[] = {{"gptq4_any_order", "int4_32"},
                                                         {"nvfp4_pre_quant", "nvfp4_pre_quant"}};
    for (const auto& [format, down] : pairs)
        list.add(text("columns/slice/%s", format), Extent::smoke,
                 [format = format, down = down](Context& context) {
                     PairSpec spec = column_spec(format, bf16, Tables::of_expert);
                     spec.layer.desc = plain_layer(256, 320, 6, 3);
                     spec.layer.down_format = down;
                     auto slice = sized<moe_slice>();
                     slice.has_intermediate_range = 1;
                     slice.intermediate_begin = 64;
                     slice.intermediate_count = 192;
                     spec.both = [&](moe_plan_desc& plan) {
                         plan.partial = 1;
                         plan.slice = &slice;
                     };
                     with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                         for (const int64_t T : {1, 33}) pair.check(pair.routed_call(T));
                     });
                 });
}

// Gate and up of two kinds, and one matrix of three with a table.
void add_mixed_columns(CaseList& list) {
    const std::pair<const char*, const char*> pairs[] = {
        {"gptq4_any_order", "bf16"}, {"bf16", "gptq4_any_order"}, {"int4_32", "nvfp4_pre_quant"}};
    for (const auto& [format, down] : pairs)
        list.add(text("columns/mixed/%s_%s", format, down), Extent::smoke,
                 [format = format, down = down](Context& context) {
                     PairSpec spec = column_spec(format, bf16, Tables::of_expert);
                     spec.layer.down_format = down;
                     with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                         for (const int64_t T : {1, 65}) pair.check(pair.routed_call(T));
                     });
                 });
}

// The shared expert, which may go with the others or not, and the projections of a latent, around
// which more values are rounded than the limit is for.
void add_dense_columns(CaseList& list) {
    moe_layer_desc alike = plain_layer(256, 128, 6, 3);
    alike.shared_intermediate = 128;
    alike.shared_activation = alike.activation;
    alike.shared_is_gated = 1;
    moe_layer_desc apart = rich_layer_on_grid(256, 128, 6, 3), latent = apart;
    latent.latent = 128;
    for (const NamedLayer& layer :
         {NamedLayer{"alike", alike}, {"apart", apart}, {"latent", latent}})
        for (const char* format : {"gptq4_any_order", "nvfp4_pre_quant"})
            for (const Numbers& numbers : {bf16, f32})
                list.add(text("columns/%s/%s/%s", layer.name, format, numbers.name), Extent::smoke,
                         [=](Context& context) {
                             PairSpec spec = column_spec(format, numbers, Tables::of_expert);
                             spec.layer.desc = layer.desc;
                             spec.layer.dense_format = format;
                             if (layer.desc.latent) spec.layer.format = "bf16";
                             with_every_kernel(context, spec, MOE_STAGE_FINISH,
                                               [](const Pair& pair) {
                                                   for (const int64_t T : {1, 33})
                                                       pair.check(pair.routed_call(T));
                                               });
                         });
}

// x by the tables of gate and up, gate and up, h by that of down, down; between a sort and a sum
// where slots are sorted. The rows of gate and up lie in down's order of columns, which then needs
// no launch.
void check_column_launches(const Pair& pair, bool has_gemv, bool gathers_h) {
    if (!pair.subject.device.is_cuda()) throw Skip("the CPU launches nothing");
    need_launches();
    for (const int64_t T : {1, 33}) {
        const size_t mark = launch_mark();
        Forward call = pair.routed_call(T);
        call.wants_routing = false;
        pair.check(call);
        const std::vector<Launch> launches = launches_since(mark);
        std::vector<std::string> families;
        std::string all;
        for (const Launch& launch : launches) {
            const KernelName name(launch.kernel);
            families.push_back(name.family.empty() ? launch.kernel : name.family);
            all += " " + launch.kernel;
        }
        const bool sorts = !has_gemv || T > 1;
        std::vector<std::string> wanted = {"gather_slots", "gemv", "gather_slots", "gemv"};
        if (sorts) wanted = {"gather_columns", "grouped_gemm", "permute_columns", "grouped_gemm"};
        if (!gathers_h) wanted.erase(wanted.begin() + 2);
        const size_t first = sorts ? 1 : 0;
        const bool has_all = launches.size() == wanted.size() + 2 * first &&
                             std::equal(wanted.begin(), wanted.end(), families.begin() + first);
        pair.context.expect(has_all, text("T %ld:", static_cast<long>(T)) + all);
    }
}

void add_column_launches(CaseList& list) {
    for (const char* format : {"gptq4_any_order", "nvfp4_pre_quant"})
        list.add(text("columns/launches/%s", format), Extent::smoke, [=](Context& context) {
            PairSpec spec = column_spec(format, bf16, Tables::of_expert);
            spec.max_tokens = 40;
            const bool gathers_h = format == std::string("nvfp4_pre_quant");
            check_column_launches(Pair(context, spec), true, gathers_h);
            for (const char* filter : {"sm80_*", "sm80_*_grouped_gemm_*"}) {
                spec.subject = [=](moe_plan_desc& desc) { desc.kernel_filter = filter; };
                check_column_launches(Pair(context, spec), filter == std::string("sm80_*"),
                                      gathers_h);
            }
        });
}

}  // namespace

void add_column_cases(CaseList& list) {
    add_column_tables(list);
    add_padded_columns(list);
    add_large_column_tables(list);
    add_column_slices(list);
    add_mixed_columns(list);
    add_dense_columns(list);
    add_column_launches(list);
}

}  // namespace moe_gpu
