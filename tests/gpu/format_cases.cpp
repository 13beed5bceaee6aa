// Every named format in every shape that holds it, and lengths of k that are no powers of two, by
// every kernel that reads them.
#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>

#include "compare.hpp"
#include "families.hpp"

namespace moe_gpu {
namespace {

struct Shape {
    int32_t hidden, intermediate;
};

moe_layer_desc layer_of(const Shape& shape) {
    return plain_layer(shape.hidden, shape.intermediate, 6, 3);
}

PairSpec spec_of(const char* format, const Shape& shape, const Numbers& numbers,
                 int64_t max_tokens) {
    PairSpec spec;
    spec.layer.desc = layer_of(shape);
    spec.layer.format = format;
    spec.numbers = numbers;
    spec.max_tokens = max_tokens;
    return spec;
}

// With ids given: what routing cannot blur.
void check_tokens(Context& context, const PairSpec& spec, const std::vector<int64_t>& tokens) {
    with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [&](const Pair& pair) {
        for (const int64_t T : tokens)
            pair.check(pair.routed_call(T, 7 + static_cast<uint64_t>(T)), pair.spec.layer.format);
    });
}

constexpr Shape shapes[] = {{128, 64},  {256, 192}, {704, 80},  {320, 192},
                            {256, 256}, {512, 768}, {2048, 512}};

// By the kernel that the plan takes and by each: one by one up to 32 tokens, sorted for any.
const std::vector<int64_t> all_widths = {1, 2, 7, 17, 32, 100, 200};

void add_formats(CaseList& list) {
    for (const char* format : packed_formats())
        for (const Shape& shape : shapes)
            for (const Numbers& numbers : {bf16, f16, f32}) {
                if (!can_hold(format, layer_of(shape))) continue;
                const bool is_small = shape.hidden <= 256 && shape.intermediate != 192;
                list.add(text("format/%s/h%d_i%d/%s", format, shape.hidden, shape.intermediate,
                              numbers.name),
                         is_small ? Extent::smoke : Extent::full, [=](Context& context) {
                             check_tokens(context, spec_of(format, shape, numbers, 200),
                                          all_widths);
                         });
            }
}

// Shapes that have whole groups of the format.
std::span<const Shape> shapes_of(const char* format) {
    static constexpr Shape in_most[] = {{128, 64}, {256, 192}, {512, 768}, {2048, 512}};
    static constexpr Shape in_96[] = {{192, 96}, {384, 288}};
    static constexpr Shape in_192[] = {{192, 192}, {1536, 960}};
    static constexpr Shape in_512[] = {{512, 512}, {1536, 1024}};
    const std::string_view name = format;
    if (name == "int4_96") return in_96;
    if (name == "int4_192") return in_192;
    if (name == "int4_512") return in_512;
    return in_most;
}

void add_unnamed(CaseList& list) {
    for (const char* format : unnamed_formats())
        for (const Shape& shape : shapes_of(format))
            for (const Numbers& numbers : {bf16, f16, f32})
                list.add(text("grid/%s/h%d_i%d/%s", format, shape.hidden, shape.intermediate,
                              numbers.name),
                         shape.hidden == 256 || shape.hidden == 192 ? Extent::smoke : Extent::full,
                         [=](Context& context) {
                             check_tokens(context, spec_of(format, shape, numbers, 200),
                                          all_widths);
                         });
}

// Codebooks that come with the tensors: one of all experts, and one of each matrix.
void add_codebooks(CaseList& list) {
    for (const char* format : given_codebooks())
        for (const bool own : {false, true})
            for (const Shape& shape : {Shape{256, 192}, Shape{2048, 512}})
                list.add(text("codebook/%s/%s/h%d_i%d", format, own ? "own" : "one", shape.hidden,
                              shape.intermediate),
                         shape.hidden == 256 ? Extent::smoke : Extent::full, [=](Context& context) {
                             PairSpec spec = spec_of(format, shape, bf16, 200);
                             spec.layer.form = Form::tensor_per_expert;
                             spec.layer.own_codebooks = own;
                             check_tokens(context, spec, all_widths);
                         });
}

// With a format of each kind that has its scales as they came.
std::vector<const char*> with_grids(std::vector<const char*> formats) {
    formats.insert(formats.end(),
                   {"gptq2", "gptq3", "awq", "int4_32", "int8_row", "fp8_row", "mxfp8", "nf4"});
    return formats;
}

// More rows of an expert than any tile has.
void add_many_rows(CaseList& list) {
    for (const char* format : with_grids(packed_formats())) {
        const Shape shape{512, 256};
        if (!can_hold(format, layer_of(shape))) continue;
        list.add(text("rows/%s", format), Extent::full, [=](Context& context) {
            check_tokens(context, spec_of(format, shape, bf16, 1500), {511, 1000, 1500});
        });
    }
}

// One expert has all rows: the numbers of them about which the middle and the widest tiles differ.
void add_tile_rows(CaseList& list) {
    for (const char* format : with_grids(packed_formats()))
        for (const Numbers& numbers : {bf16, f16}) {
            PairSpec spec = spec_of(format, {256, 256}, numbers, 577);
            if (!can_hold(format, spec.layer.desc)) continue;
            spec.layer.desc.n_experts = spec.layer.desc.top_k = 1;
            const std::string_view name = format;
            const bool in_smoke = name == "bf16" || name == "nvfp4" || name == "q4_k";
            list.add(text("tile_rows/%s/%s", format, numbers.name),
                     in_smoke && numbers.x == MOE_TYPE_BF16 ? Extent::smoke : Extent::full,
                     [=](Context& context) {
                         check_tokens(context, spec,
                                      {31, 64, 65, 84, 96, 97, 193, 241, 257, 273, 288, 289, 577});
                     });
        }
}

// Few rows of an expert that are sorted: more tokens than ever go side by side.
void add_few_rows(CaseList& list) {
    for (const char* format : with_grids(packed_formats())) {
        PairSpec spec = spec_of(format, {256, 256}, bf16, 33);
        spec.layer.desc.n_experts = 24;
        list.add(text("few_rows/%s", format), Extent::smoke, [=](Context& context) {
            check_tokens(context, spec, {17, 33});
        });
    }
    // Rows so long that a kernel has them in several parts, of which the last are not whole, if the
    // format allows it; up to sixteen rows of an expert.
    for (const char* format : with_grids(packed_formats())) {
        Shape shape{1344, 192};
        if (!can_hold(format, layer_of(shape))) shape = {1536, 256};
        PairSpec spec = spec_of(format, shape, bf16, 70);
        spec.layer.desc.n_experts = 16;
        const std::string_view name = format;
        const bool is_smoke = name == "bf16" || name == "nvfp4" || name == "awq" ||
                              name == "q4_k" || name == "kbit4" || name == "int8_row";
        list.add(text("few_rows/long/%s", format), is_smoke ? Extent::smoke : Extent::full,
                 [=](Context& context) {
                     check_tokens(context, spec, {17, 70});
                 });
    }
}

// Multiprocessors of the device under test.
int32_t n_sms(Context& context) {
    auto info = sized<moe_device_info>();
    must(moe_device_get_info(context.device.kind(), 0, &info), "moe_device_get_info");
    return info.n_cores;
}

// The portable kernels for middle tiles: as many experts as give every multiprocessor six work
// items of either matrix, with some 30 rows each. Up to 64 rows of an expert, and more; the last
// item and the last stage of 128 columns are not whole where the format allows it.
void check_middle_tiles(Context& context, const char* format, const char* down_format,
                        const Numbers& numbers) {
    if (!context.device.is_cuda()) throw Skip("no multiprocessors");
    Shape shape{320, 192};
    if (!can_hold(format, layer_of(shape))) shape = {256, 256};
    const int32_t items = std::min(shape.hidden + 127, 2 * shape.intermediate + 127) / 128;
    const int32_t n_experts = (6 * n_sms(context) + items - 1) / items;
    constexpr int32_t k = 4;
    const int64_t T = int64_t{30} * n_experts / k;
    PairSpec spec = spec_of(format, shape, numbers, T);
    spec.layer.desc = plain_layer(shape.hidden, shape.intermediate, n_experts, k);
    spec.layer.down_format = down_format;
    spec.subject = [&](moe_plan_desc& plan) {
        plan.kernel_filter = "experts:sm80_*_grouped_gemm_*";
    };
    const Pair pair(context, spec);
    need_launches();
    Forward even = pair.routed_call(T);
    Forward skewed = even;  // every eighth token goes to the first four experts
    for (int64_t t = 0; t < T; t += 8)
        for (int32_t i = 0; i < k; ++i) skewed.ids[static_cast<size_t>(t * k + i)] = i;
    for (const Forward* call : {&even, &skewed}) {
        const size_t mark = launch_mark();
        pair.check(*call, call == &even ? "even" : "skewed");
        int n_middle = 0;
        for (const std::string& name : names_of(launches_since(mark)))
            n_middle += name.ends_with("_middle");
        context.expect(n_middle == 2, text("%d kernels for middle tiles", n_middle));
    }
}

void add_middle_tiles(CaseList& list) {
    for (const char* format : {"nvfp4", "mxfp4", "q4_k", "q6_k", "fp8_128x128", "awq", "int4_row"})
        for (const Numbers& numbers : {bf16, f16}) {
            const bool is_smoke = !std::strcmp(format, "nvfp4") || !std::strcmp(format, "awq");
            list.add(
                text("middle/%s/%s", format, numbers.name), is_smoke ? Extent::smoke : Extent::full,
                [=](Context& context) { check_middle_tiles(context, format, format, numbers); });
        }
    list.add("middle/q4_k_q6_k/bf16", Extent::full,
             [](Context& context) { check_middle_tiles(context, "q4_k", "q6_k", bf16); });
}

// Gate and up of one format, down of another.
void add_mixed(CaseList& list) {
    constexpr const char* pairs[][2] = {
        {"q4_k", "q6_k"},  {"q5_k", "q6_k"},   {"int4_32", "int8_row"}, {"q4_k", "q8_0"},
        {"nvfp4", "bf16"}, {"kbit3", "kbit5"}, {"bf16", "mxfp4"},       {"q4_k", "f16"}};
    for (const auto& [gate, down] : pairs)
        list.add(text("mixed/%s_%s", gate, down), Extent::smoke, [=](Context& context) {
            PairSpec spec = spec_of(gate, {256, 256}, bf16, 90);
            spec.layer.down_format = down;
            check_tokens(context, spec, {1, 5, 40, 90});
        });
}

// Gate of one format, up and down of another: the kernels' own launches for gate and for up. Sizes
// off the grid of 64 where the formats have such.
void add_gate_and_up_apart(CaseList& list) {
    struct Mix {
        const char *gate, *up;
        Shape shape;
    };
    constexpr Mix mixes[] = {{"q5_k", "q4_k", {512, 256}},     {"int4_32", "int8_row", {352, 96}},
                             {"int8_row", "q5_1", {160, 224}}, {"nvfp4", "bf16", {224, 80}},
                             {"bf16", "nvfp4", {224, 80}},     {"kbit3", "kbit5", {320, 192}},
                             {"iq3_s", "q6_k", {256, 256}},    {"fp8_row", "mxfp4", {352, 160}}};
    for (const Mix& mix : mixes)
        for (const Numbers& numbers : {bf16, f16})
            list.add(text("apart/%s_%s/%s", mix.gate, mix.up, numbers.name),
                     numbers.x == MOE_TYPE_BF16 ? Extent::smoke : Extent::full,
                     [=](Context& context) {
                         PairSpec spec = spec_of(mix.up, mix.shape, numbers, 301);
                         spec.layer.gate_format = mix.gate;
                         check_tokens(context, spec, {1, 5, 16, 33, 301});
                     });
}

// The same with biases, weights on the input, other activations and a shared expert whose gate has
// a format of its own.
void add_gate_and_up_apart_kinds(CaseList& list) {
    const auto add = [&](const char* name, const std::function<void(LayerSpec&)>& change) {
        list.add(text("apart/kinds/%s", name), Extent::smoke, [=](Context& context) {
            PairSpec spec = spec_of("int8_row", {352, 96}, bf16, 70);
            spec.layer.gate_format = "int4_32";
            change(spec.layer);
            with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [](const Pair& pair) {
                for (const int64_t T : {1, 7, 70}) pair.check(pair.call(T));
            });
        });
    };
    add("biases", [](LayerSpec& layer) {
        layer.desc.has_gate_bias = layer.desc.has_up_bias = layer.desc.has_down_bias = 1;
    });
    add("gelu", [](LayerSpec& layer) { layer.desc.activation = MOE_ACTIVATION_GELU_TANH; });
    add("weight_on_input", [](LayerSpec& layer) { layer.desc.weight_on = MOE_WEIGHT_ON_INPUT; });
    const auto add_shared = [](LayerSpec& layer) {
        layer.desc.shared_intermediate = 96;
        layer.desc.shared_activation = MOE_ACTIVATION_SILU;
        layer.desc.shared_is_gated = 1;
    };
    add("shared_joins", [=](LayerSpec& layer) {
        add_shared(layer);
        layer.dense_format = layer.format;
        layer.shared_gate_format = layer.gate_format;
    });
    add("shared_apart", [=](LayerSpec& layer) {
        add_shared(layer);
        layer.shared_gate_format = "nvfp4";
    });
}

// float16 operands hold all of float16: kernels that rounded them to bfloat16 would fail. gemv
// rounds codebooks of three bits to bytes, so that they are not here.
void add_f16_operands(CaseList& list) {
    constexpr Numbers close{"f16", MOE_TYPE_F16, MOE_TYPE_F16, MOE_TYPE_F32, 1e-3};
    for (const char* format :
         {"bf16", "nvfp4", "mxfp4", "kbit2", "kbit4", "kbit5", "q8_0", "int4_32"})
        for (const Shape& shape : {Shape{352, 96}, Shape{128, 160}})
            list.add(text("f16_operands/%s/h%d_i%d", format, shape.hidden, shape.intermediate),
                     shape.hidden == 352 ? Extent::smoke : Extent::full, [=](Context& context) {
                         const Pair pair(context, spec_of(format, shape, close, 301));
                         for (const int64_t T : {1, 7, 16, 33, 301})
                             pair.check(pair.routed_call(T));
                     });
}

// Other types of intermediate and output.
void add_types(CaseList& list) {
    for (const char* format : {"bf16", "f16", "nvfp4", "q8_0"})
        for (const Numbers& numbers : {f16_through_bf16, bf16_through_f16, bf16_to_f32})
            list.add(text("types/%s/%s", format, numbers.name), Extent::smoke,
                     [=](Context& context) {
                         check_tokens(context, spec_of(format, {128, 96}, numbers, 70), {1, 9, 70});
                     });
}

// The sum runs over hidden in gate and up, over the intermediate in down.
void add_lengths(CaseList& list) {
    constexpr int32_t hiddens[] = {32,  64,  96,  160,  224,  352,  480,
                                   544, 704, 992, 1184, 1504, 1888, 2048};
    constexpr int32_t features[] = {16,  48,  64,  80,   96,   112,  176, 272,
                                    336, 528, 720, 1008, 1360, 1904, 2048};
    for (const char* format :
         {"bf16", "f32", "fp8_128x128", "nvfp4", "mxfp4", "kbit2", "kbit3", "kbit4", "kbit5",
          "q8_0", "q4_0", "q5_1", "iq4_nl", "int4_32", "gptq3", "mxfp8"}) {
        const auto add = [&](const char* which, const Shape& shape) {
            if (!can_hold(format, layer_of(shape))) return;
            // Groups of 32 columns, which moe_format_size does not ask for.
            const bool has_groups =
                !std::strcmp(format, "int4_32") || !std::strcmp(format, "gptq3");
            if (has_groups && (shape.hidden % 32 || shape.intermediate % 32)) return;
            const bool in_smoke = shape.hidden == 352 || shape.intermediate == 176 ||
                                  shape.intermediate == 336 || shape.intermediate == 96;
            list.add(text("length/%s/%s%d", format, which,
                          which[0] == 'h' ? shape.hidden : shape.intermediate),
                     in_smoke ? Extent::smoke : Extent::full, [=](Context& context) {
                         check_tokens(context, spec_of(format, shape, bf16, 90), {1, 5, 40, 90});
                     });
        };
        for (const int32_t hidden : hiddens) add("h", {hidden, 64});
        for (const int32_t n : features) add("i", {128, n});
    }
    for (const int32_t hidden : {256, 768, 1280, 1792})
        for (const int32_t n : {256, 768})
            list.add(text("length/q4_k/h%d_i%d", hidden, n), Extent::full, [=](Context& context) {
                check_tokens(context, spec_of("q4_k", {hidden, n}, bf16, 40), {1, 5, 40});
            });
}

// Sums whose last block of 64 columns is not full, on every family. The shared expert has another
// width than the others.
void add_lengths_on_every_family(CaseList& list) {
    constexpr Shape shapes[] = {{128, 96}, {352, 224}, {128, 736}};
    for (const char* format : {"bf16", "fp8_128x128", "nvfp4", "kbit3", "q5_1", "int4_32"})
        for (const Shape& shape : shapes)
            list.add(text("families/length/%s/h%d_i%d", format, shape.hidden, shape.intermediate),
                     shape.intermediate == 96 ? Extent::smoke : Extent::full,
                     [=](Context& context) {
                         PairSpec spec = spec_of(format, shape, bf16, 90);
                         spec.layer.desc.shared_intermediate = shape.intermediate + 32;
                         spec.layer.desc.shared_activation = spec.layer.desc.activation;
                         with_every_family(context, spec, [](const Pair& pair) {
                             for (const int64_t T : {1, 5, 40, 90}) pair.check(pair.call(T));
                         });
                     });
}

}  // namespace

void add_format_cases(CaseList& list) {
    add_formats(list);
    add_unnamed(list);
    add_codebooks(list);
    add_many_rows(list);
    add_tile_rows(list);
    add_few_rows(list);
    add_middle_tiles(list);
    add_mixed(list);
    add_gate_and_up_apart(list);
    add_gate_and_up_apart_kinds(list);
    add_f16_operands(list);
    add_types(list);
    add_lengths(list);
    add_lengths_on_every_family(list);
}

}  // namespace moe_gpu
