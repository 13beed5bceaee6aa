#include "bench/cpu/case_list.hpp"

#include <stdexcept>

namespace moe::bench {
namespace {

constexpr const char* models[] = {"qwen3-30b", "mixtral", "gpt-oss-20b", "dsv3-e32"};
constexpr const char* cpu_formats[] = {
    "bf16",   "f16",    "q8_0",        "q4_k",      "q6_k",  "q5_k",  "q4_0",  "mxfp4", "nvfp4",
    "iq4_xs", "iq2_xs", "fp8_128x128", "int4_g128", "kbit2", "kbit3", "kbit4", "kbit5"};
constexpr int32_t thread_counts[] = {1, 2, 16};

// Appends the cases of a model and format.
void add(std::vector<CpuCase>& cases, const std::string& model, const std::string& format,
         std::initializer_list<int64_t> tokens, const std::vector<int32_t>& threads,
         bool is_int8 = false) {
    const Model found = cpu_model(model);
    if (!fits(found, format)) return;
    for (const int32_t n_threads : threads)
        for (const int64_t n_tokens : tokens)
            cases.push_back({found, format, "", MOE_TYPE_BF16, n_tokens, n_threads, is_int8});
}

}  // namespace

Model cpu_model(const std::string& name) {
    const bool is_gpt_oss = name == "gpt-oss-20b", is_dsv3 = name == "dsv3-e32";
    const Model* found = find_model(is_gpt_oss ? "gpt-oss-120b" : is_dsv3 ? "dsv3" : name);
    if (!found) throw std::runtime_error("no model " + name);
    Model model = *found;
    model.name = name;
    if (is_gpt_oss || is_dsv3) model.n_experts = 32;
    return model;
}

std::vector<CpuCase> cpu_list(const std::string& name, int32_t n_processors) {
    std::vector<int32_t> threads;
    for (const int32_t n : thread_counts)
        if (n <= n_processors) threads.push_back(n);
    std::vector<CpuCase> cases;
    if (name == "full") {
        for (const char* model : models)
            for (const char* format : cpu_formats)
                add(cases, model, format, {1, 4, 16, 64, 512}, threads);
        return cases;
    }
    if (name != "short") throw std::runtime_error("no list " + name);
    threads = {threads.back()};
    for (const char* format : cpu_formats) add(cases, "qwen3-30b", format, {1, 16, 512}, threads);
    for (const char* format : {"q8_0", "q4_k", "q6_k", "mxfp4", "nvfp4"})
        add(cases, "qwen3-30b", format, {1, 16, 512}, threads, true);
    add(cases, "mixtral", "q4_k", {1, 16}, threads);
    add(cases, "gpt-oss-20b", "mxfp4", {1, 16}, threads);
    add(cases, "dsv3-e32", "fp8_128x128", {1, 16}, threads);
    return cases;
}

std::vector<std::string> calibrated_formats() {
    std::vector<std::string> all(std::begin(cpu_formats), std::end(cpu_formats));
    for (const char* other : {"f32", "q2_k", "q3_k", "q4_1", "q5_0", "q5_1", "iq4_nl", "iq2_xxs",
                              "iq3_xxs", "iq3_s", "mxfp4_gguf", "nvfp4_gguf", "mxfp8", "int8_row"})
        all.push_back(other);
    return all;
}

}  // namespace moe::bench
