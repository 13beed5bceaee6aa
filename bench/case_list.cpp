// Reads cases from a file. It checks every field before its use, because a wrong name would
// otherwise be measured as something else.
#include "bench/case_list.hpp"

#include <cmath>

#include "bench/json_fields.hpp"

namespace moe::bench {
namespace {

Model model_of(const Fields& fields) {
    constexpr int64_t widest = 1 << 20, most_experts = 4096;
    fields.allow({"name", "hidden", "intermediate", "n_experts", "top_k", "shared_intermediate"});
    Model model{};
    model.name = fields.word("name", ".-");
    const auto size = [&](const char* name, int64_t least, int64_t most) {
        return static_cast<int32_t>(fields.integer(name, least, most));
    };
    model.hidden = size("hidden", 1, widest);
    model.intermediate = size("intermediate", 1, widest);
    model.n_experts = size("n_experts", 1, most_experts);
    model.top_k = size("top_k", 1, model.n_experts);
    if (fields.has("shared_intermediate"))
        model.shared_intermediate = size("shared_intermediate", 0, widest);
    return model;
}

// The value is a multiple of 0.1, because the name of a case has one decimal.
double zipf_of(const Fields& fields) {
    if (!fields.has("zipf")) return 0;
    const Json& value = fields.at("zipf");
    const double tenths = value.is_number() ? value.get<double>() * 10 : -1;
    if (tenths < 0 || tenths > 100 || std::abs(tenths - std::round(tenths)) > 1e-9)
        fields.fail("zipf is " + value.dump() + ", not a multiple of 0.1 in 0 .. 10");
    return std::round(tenths) / 10;
}

moe_type type_of(const Fields& fields, const char* name) {
    if (!fields.has(name)) return MOE_TYPE_BF16;
    const std::string type = fields.word(name, "");
    if (type == "bf16") return MOE_TYPE_BF16;
    if (type == "f16") return MOE_TYPE_F16;
    fields.fail(std::string(name) + " is " + type + ", neither bf16 nor f16");
}

const Model* known_model(const CaseList& list, const std::string& name) {
    for (const Model& model : list.models)
        if (model.name == name) return &model;
    return find_model(name);
}

Case case_of(const Fields& fields, const CaseList& list) {
    fields.allow({"model", "format", "mode", "n_tokens", "zipf", "unfused", "x_type",
                  "intermediate_type", "activation_quantization", "kernels", "stages"});
    Case one{};
    const std::string model = fields.word("model", ".-");
    one.model = known_model(list, model);
    if (!one.model) fields.fail("model is " + model + ", which is not known");
    one.format = fields.word("format", "_+");
    const std::string mode = fields.word("mode", "_");
    one.layout = find_layout(mode);
    if (mode != "ids" && mode != "layer" && !one.layout)
        fields.fail("mode is " + mode + ", neither ids nor layer nor a layout");
    one.mode = mode == "layer" ? Mode::layer : Mode::ids;
    one.n_tokens = fields.integer("n_tokens", 1, 1 << 20);
    one.zipf = zipf_of(fields);
    one.unfused = fields.flag("unfused");
    one.x_type = type_of(fields, "x_type");
    one.intermediate_type = type_of(fields, "intermediate_type");
    one.stages = fields.flag("stages");
    if (fields.has("activation_quantization")) {
        const std::string type = fields.word("activation_quantization", "");
        one.fp8_activations = type == "fp8";
        if (type != "fp8" && type != "none")
            fields.fail("activation_quantization is " + type + ", neither none nor fp8");
    }
    if (fields.has("kernels")) one.kernels = fields.word("kernels", "_,:*+-");
    return one;
}

}  // namespace

CaseList parse_cases(const std::string& text) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) throw std::runtime_error("the list of cases is no JSON");
    const Fields all(json, "the list of cases");
    all.allow({"models", "cases"});
    CaseList list;
    if (all.has("models"))
        for (const Json& one : all.list("models")) {
            const Fields fields(one, "model " + std::to_string(list.models.size() + 1));
            Model model = model_of(fields);
            if (known_model(list, model.name)) fields.fail("name is " + model.name + " again");
            list.models.push_back(std::move(model));
        }
    for (const Json& one : all.list("cases"))
        list.cases.push_back(case_of({one, "case " + std::to_string(list.cases.size() + 1)}, list));
    return list;
}

CaseList read_cases(const std::string& path) {
    return parse_cases(text_of_file(path));
}

}  // namespace moe::bench
