// Makes the lists. A goal compares a case with others of the same run (bench/goals_table.py), so
// each list has the cases that its own are compared with.
#include "bench/named_lists.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace moe::bench {
namespace {

using Names = std::vector<const char*>;
using Tokens = std::vector<int64_t>;

constexpr int64_t least_skewed = 8;  // with fewer tokens, popular experts seldom coincide
constexpr int64_t prompt = 8192;

const Names real_models = {"qwen3next", "qwen3-30b", "mixtral", "dsv3", "gpt-oss-120b"};
const Names hopper_formats = {"bf16",  "fp8_128x128", "nvfp4", "mxfp4", "kbit2",
                              "kbit3", "kbit4",       "kbit5", "q8_0",  "q4_k"};

const Model& model_of(const char* name) {
    const Model* model = find_model(name);
    if (!model) throw std::runtime_error(std::string("there is no model ") + name);
    return *model;
}

// The cases of a list, in the order in which they are added.
class List {
  public:
    // Adds a case for each number of tokens, like the given one; none where no row of the model is
    // whole blocks of the format.
    void add(const Case& like, const Tokens& tokens) {
        if (!fits(*like.model, like.format)) return;
        for (const int64_t n : tokens) {
            cases.push_back(like);
            cases.back().n_tokens = n;
        }
    }
    void add(const Names& model_names, const Names& formats, Mode mode, const Tokens& tokens,
             double zipf = 0) {
        for (const char* model : model_names)
            for (const char* format : formats)
                add({&model_of(model), format, mode, 0, zipf}, tokens);
    }

    std::vector<Case> cases;
};

// Every model in the formats that Hopper's own kernels have had from the beginning.
List hopper() {
    List list;
    for (const char* model : real_models)
        for (const char* format : hopper_formats)
            for (const int64_t n : {1, 2, 4, 8, 16, 32, 512, 8192}) {
                list.add({model}, {format}, Mode::ids, {n});
                list.add({model}, {format}, Mode::layer, {n});
                // A skewed case starts at ids: a layer with a router would not choose the skewed
                // experts, but it does choose even ones.
                if (n >= least_skewed) list.add({model}, {format}, Mode::ids, {n}, 1.2);
            }
    return list;
}

// Every packed format, and mixes: of gate and up with down, and of gate with up. A case of the
// latter is compared with two in which gate and up have one of its formats.
List formats() {
    const Tokens tokens = {1, 8, 16, 32, 64, 128, 512, 8192};
    const Names all = {
        "bf16",     "f16",       "fp8_tensor", "fp8_row", "fp8_128x128", "mxfp8",    "nvfp4",
        "mxfp4",    "nf4",       "bnb_fp4",    "q8_0",    "q6_k",        "q5_k",     "q4_k",
        "q3_k",     "q2_k",      "q5_1",       "q5_0",    "q4_1",        "q4_0",     "iq4_nl",
        "iq4_xs",   "iq3_s",     "iq3_xxs",    "iq2_xs",  "iq2_xxs",     "awq",      "awq_g64",
        "gptq4",    "gptq4_g32", "gptq4_row",  "gptq8",   "int4_g32",    "int4_g64", "int4_g128",
        "int4_row", "int8_g32",  "int8_g128",  "int8_row"};
    const Names with_column_tables = {"gptq4_any_order", "nvfp4_pre_quant"};
    const Names mixes = {"q4_k+q6_k",          "q4_k+q5_k",         "q5_k+q6_k",      "q3_k+q4_k",
                         "q2_k+q3_k",          "q4_k+q8_0",         "iq3_xxs+iq4_xs", "nvfp4+bf16",
                         "int4_g128+int8_row", "int8_row+int4_g128"};
    const Names of_gate_and_up = {"q4_k+q5_k+q4_k", "q5_k+q4_k", "q4_k+q6_k+q6_k",
                                  "int4_g128+int8_row+int4_g128"};
    List list;
    for (const Names& names : {all, with_column_tables, mixes, of_gate_and_up})
        list.add({"qwen3-30b"}, names, Mode::ids, tokens);
    list.add({"mixtral"},
             {"bf16", "fp8_row", "mxfp8", "nf4", "q6_k", "q5_k", "q4_k", "q4_0", "iq4_xs",
              "iq3_xxs", "iq2_xs", "awq", "gptq4", "int4_g32", "int8_row", "q4_k+q6_k", "q4_k+q5_k",
              "int4_g128+int8_row"},
             Mode::ids, tokens);
    return list;
}

// Sizes off the grid of 64 beside the next one on it; and two models that no other list has.
List shapes() {
    const Tokens tokens = {1, 8, 32, 512, prompt};
    List list;
    Names models = {"qwen3-30b",      "qwen3-30b-i96",  "qwen3-30b-i128", "qwen3-30b-i192",
                    "qwen3-30b-i352", "qwen3-30b-i384", "qwen3-30b-h2016"};
    list.add(models, {"q8_0", "q4_0", "int4_g32"}, Mode::ids, tokens);
    models.insert(models.end(), {"qwen3-30b-i176", "qwen3-30b-i720"});  // in groups of 16 alone
    list.add(models, {"bf16", "nvfp4"}, Mode::ids, tokens);
    list.add({"qwen3next", "qwen3next-s480"}, {"bf16", "nvfp4"}, Mode::layer, tokens);
    list.add({"mixtral-8x22b", "qwen2-57b"},
             {"bf16", "fp8_128x128", "nvfp4", "mxfp4", "q4_k", "q4_k+q6_k", "awq"}, Mode::ids,
             tokens);
    list.add({"mixtral-8x22b", "qwen2-57b"}, {"bf16", "nvfp4"}, Mode::layer, tokens);
    return list;
}

// Models that nothing was tuned or fitted for, and numbers of tokens that no other list has.
List untuned() {
    List list;
    for (const char* model :
         {"granite-3b-a800m", "lfm2-8b", "olmoe", "deepseek-v2-lite", "ernie-4.5-21b",
          "phi-3.5-moe", "glm-4.5-air", "llama-4-scout", "dbrx", "arctic", "kimi-k2"})
        list.add({model}, {"bf16", "fp8_128x128", "q4_k", "awq"}, Mode::ids,
                 {1, 6, 20, 40, 100, 250, 600, 2000});
    return list;
}

void add_fp16(List& list, const char* model, const Names& formats, const Tokens& tokens) {
    for (const char* format : formats) {
        Case one{&model_of(model), format, Mode::ids, 0, 0};
        list.add(one, tokens);
        one.x_type = MOE_TYPE_F16;
        list.add(one, tokens);
        one.intermediate_type = MOE_TYPE_F16;
        list.add(one, tokens);
    }
}

// x in float16, with bfloat16 and with float16 behind the activation, beside x in bfloat16.
List fp16() {
    List list;
    add_fp16(list, "qwen3-30b",
             {"bf16", "f16", "fp8_128x128", "nvfp4", "mxfp4", "kbit4", "q8_0", "q4_k", "q4_k+q6_k",
              "awq"},
             {1, 8, 16, 32, 128, 512, 2048, prompt});
    add_fp16(list, "mixtral", {"bf16", "f16", "nvfp4", "q4_k", "awq"}, {1, 8, 32, 512, prompt});
    return list;
}

// More numbers of tokens of the list hopper, and skews.
List tokens() {
    const Tokens tokens = {64, 128, 256, 1024, 2048, 4096};
    List list;
    list.add(real_models, hopper_formats, Mode::ids, tokens);
    for (const double zipf : {1.2, 2.0})
        list.add(real_models, {"bf16", "nvfp4"}, Mode::ids, tokens, zipf);
    return list;
}

// Activations as E4M3 beside activations as given, and prompts in bf16. Plans take the kernels of
// E4M3 for weights of four bits where they are forced.
List fp8() {
    const Names models = {"qwen3-30b", "mixtral", "qwen3next", "dsv3", "qwen2-57b"};
    List list;
    const auto add = [&](const char* model, const char* format, const Tokens& tokens,
                         const char* kernels) {
        Case given{&model_of(model), format, Mode::ids, 0, 0}, quantized = given;
        quantized.fp8_activations = true;
        quantized.kernels = kernels;
        for (Case* one : {&given, &quantized})
            for (const int64_t n : tokens) {
                one->stages = n == prompt;
                list.add(*one, {n});
            }
    };
    for (const char* model : models) {
        const bool has_all = model == models[0] || model == models[1];
        add(model, "fp8_128x128",
            has_all ? Tokens{16, 32, 64, 128, 256, 512, 1024, 2048, 4096, prompt}
                    : Tokens{64, 512, 2048, prompt},
            "");
        list.add({model}, {"bf16"}, Mode::ids, {2048, prompt});
    }
    for (const char* model : {"qwen3-30b", "mixtral"})
        for (const char* format : {"nvfp4", "mxfp4", "awq"})
            add(model, format, {64, 512, 2048, prompt}, "experts:*_fp8_grouped_gemm*");
    return list;
}

// Hopper's kernels are forbidden rather than others forced: a forced gemv kernel would take every
// batch that it can.
void add_portable(List& list, const char* model, const Names& formats, const Tokens& tokens) {
    for (const char* format : formats)
        for (const int64_t n : tokens) {
            Case one{&model_of(model), format, Mode::ids, 0, 0};
            one.stages = n == prompt;
            list.add(one, {n});
            one.kernels = "-experts:sm90_*";
            list.add(one, {n});
        }
}

// The portable kernels beside Hopper's own.
List portable() {
    List list;
    for (const char* model : {"qwen3-30b", "mixtral"})
        add_portable(
            list, model,
            {"bf16", "f16", "fp8_128x128", "q8_0", "nvfp4", "mxfp4", "q4_k", "q4_k+q6_k", "awq"},
            {1, 2, 8, 16, 32, 64, 128, 512, 2048, prompt});
    return list;
}

// moe_experts in every layout, beside moe_forward from ids.
List layouts() {
    const Tokens tokens = {1, 8, 32, 128, 512, 2048, prompt};
    List list;
    for (const char* format : {"bf16", "nvfp4", "q4_k"}) {
        Case one{&model_of("qwen3-30b"), format, Mode::ids, 0, 0};
        list.add(one, tokens);
        for (const std::string& name : layout_names()) {
            one.layout = find_layout(name);
            list.add(one, tokens);
        }
    }
    return list;
}

// gemv forced and forbidden: what the plan's cost model is fitted to, with study-small_batch.json
// (fit_costs.py). The other formats have it from 8 tokens on.
List gemv() {
    List list;
    const auto add = [&](const Names& models, const Names& formats, const Tokens& tokens) {
        for (const char* model : models)
            for (const char* format : formats)
                for (const char* kernels : {"experts:*_gemv_*", "-experts:*_gemv_*"}) {
                    Case one{&model_of(model), format, Mode::ids, 0, 0};
                    one.kernels = kernels;
                    list.add(one, tokens);
                }
    };
    add({"qwen3-30b", "qwen3next", "dsv3"}, hopper_formats, {24, 32});
    add({"qwen3-30b"},
        {"q2_k", "q3_k", "q5_k", "q6_k", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "iq4_xs",
         "iq3_s", "iq3_xxs", "iq2_xs", "iq2_xxs", "awq", "int8_row", "fp8_row", "nf4"},
        {8, 16, 32});
    add({"qwen3next"}, {"q6_k", "q5_k", "q4_0", "iq4_xs", "awq", "int8_row", "fp8_row"}, {32});
    return list;
}

// The most telling cases of the other lists.
List short_list() {
    const auto ids = Mode::ids, layer = Mode::layer;
    List list;
    list.add({"qwen3next"}, {"nvfp4"}, ids, {1, 2, 8, 32, 512, prompt});
    list.add({"qwen3next"}, {"nvfp4"}, ids, {8, 512}, 1.2);
    list.add({"qwen3next"}, {"nvfp4"}, layer, {1, 8});
    list.add({"qwen3next"}, {"bf16"}, ids, {1, 8, prompt});
    list.add({"qwen3next"}, {"kbit2"}, ids, {1, 32});
    list.add({"qwen3-30b"}, {"bf16"}, layer, {1, 32, 512, prompt});
    list.add({"qwen3-30b"}, {"nvfp4"}, layer, {1, prompt});
    list.add({"mixtral"}, {"bf16", "nvfp4"}, layer, {1, 8, 512, prompt});
    list.add({"mixtral"}, {"kbit3", "fp8_128x128"}, ids, {1, prompt});
    list.add({"dsv3"}, {"nvfp4"}, ids, {1, 8, 512});
    list.add({"dsv3"}, {"fp8_128x128"}, layer, {1, 32});
    list.add({"gpt-oss-120b"}, {"mxfp4"}, layer, {1, 8, prompt});
    list.add({"mixtral-8x22b", "qwen2-57b"}, {"nvfp4"}, ids, {1, 512});
    list.add({"qwen3-30b"},
             {"fp8_row", "mxfp8", "nf4", "q6_k", "q4_0", "iq4_xs", "iq2_xs", "gptq4", "int8_row",
              "q4_k+q6_k+q6_k"},
             ids, {1, 32, prompt});
    list.add({"qwen3-30b-i96", "qwen3-30b-i128", "qwen3-30b-i720"}, {"bf16", "nvfp4"}, ids,
             {1, 512});
    add_fp16(list, "qwen3-30b", {"f16"}, {1, 512});
    add_portable(list, "qwen3-30b", {"bf16", "nvfp4", "q4_k", "q4_k+q6_k", "awq"},
                 {1, 8, 32, 512, prompt});
    return list;
}

struct Named {
    const char* name;
    List (*make)();
};
constexpr Named lists[] = {{"hopper", hopper},   {"formats", formats}, {"shapes", shapes},
                           {"fp16", fp16},       {"tokens", tokens},   {"portable", portable},
                           {"layouts", layouts}, {"fp8", fp8},         {"gemv", gemv},
                           {"untuned", untuned}, {"short", short_list}};

}  // namespace

std::vector<std::string> list_names() {
    std::vector<std::string> names;
    for (const Named& one : lists) names.push_back(one.name);
    return names;
}

std::vector<Case> named_list(const std::string& name) {
    for (const Named& one : lists)
        if (name == one.name) return one.make().cases;
    throw std::runtime_error("there is no list " + name);
}

}  // namespace moe::bench
