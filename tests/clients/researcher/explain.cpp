// moe_plan_explain of several plans as files, for validate_explain.py to hold against
// docs/explain.schema.json.
#include "researcher/researcher.hpp"
#include "support/layer_tensors.hpp"

namespace clients {
namespace {

std::string explain(const moe_plan* plan, moe_explain_form form) {
    uint64_t size = 0, again = 0;
    CHECK_OK(moe_plan_explain(plan, form, nullptr, 0, &size));
    CHECK(size > 1, "an explanation of %llu bytes", static_cast<unsigned long long>(size));
    std::vector<char> buffer(size + 1, 'x');
    CHECK_REFUSED(moe_plan_explain(plan, form, buffer.data(), size - 1, &again),
                  MOE_ERROR_BUFFER_TOO_SMALL, "");
    CHECK(buffer[0] == 'x', "a buffer that is too small was written to");
    CHECK_OK(moe_plan_explain(plan, form, buffer.data(), size, nullptr));
    CHECK(buffer[size - 1] == '\0' && buffer[size] == 'x', "the final NUL is not where size says");
    return buffer.data();
}

void write_file(const std::string& path, const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    CHECK(file && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
              std::fclose(file) == 0,
          "%s cannot be written", path.c_str());
}

}  // namespace

void explanations(const std::string& folder) {
    LayerWeights layer = random_weights(plain_layer(64, 48, 8, 2), 71);
    const LayerTensors tensors(layer, "f32", Form::stacked);
    auto slice = sized<moe_slice>();
    slice.has_expert_range = slice.has_intermediate_range = 1;
    slice.expert_begin = 2;
    slice.expert_count = 3;
    slice.intermediate_begin = 16;
    slice.intermediate_count = 32;

    moe_plan_desc plans[3];
    for (moe_plan_desc& desc : plans) desc = tensors.plan_desc(layer.desc, 64);
    plans[1].slice = &slice;
    plans[1].partial = 1;
    plans[1].stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
    plans[2].intermediate_type = MOE_TYPE_F64;
    plans[2].x_type = MOE_TYPE_BF16;
    plans[2].unfused = 1;
    for (int i = 0; i < 3; ++i) {
        const Plan plan = make_plan(nullptr, plans[i]);
        const char* kernel = nullptr;
        CHECK_OK(moe_plan_kernel(plan.get(), MOE_STAGE_EXPERTS, 1, &kernel));
        const std::string text = explain(plan.get(), MOE_EXPLAIN_TEXT);
        const std::string json = explain(plan.get(), MOE_EXPLAIN_JSON);
        CHECK(text.find(kernel) != text.npos && json.find(kernel) != json.npos,
              "explanations without the kernel %s", kernel);
        CHECK(json.find("libmoe.explain.1") != json.npos, "the document does not name its schema");
        write_file(folder + "/explain-" + std::to_string(i) + ".json", json);
    }
    std::printf("explanations of 3 plans written to %s\n", folder.c_str());
}

}  // namespace clients
