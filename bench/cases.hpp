// Cases of the benchmark: layers of real models in every format, for small and large numbers of
// tokens, with even and skewed routing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moe/moe.h"

namespace moe::bench {

struct Model {
    std::string name;
    int32_t hidden;
    int32_t intermediate;
    int32_t n_experts;
    int32_t top_k;
    int32_t shared_intermediate;
    bool has_biases = false;  // gpt-oss: biases and its clamped activation
    bool is_sigmoid = false;  // DeepSeek-V3: sigmoid scores, selection bias, groups
};

// Start of a call: at expert ids and weights, or at x (router and shared expert included).
enum class Mode { ids, layer };

struct Case {
    const Model* model;
    std::string format;
    Mode mode;
    int64_t n_tokens;
    double zipf;            // exponent of the expert's popularity; 0: uniform
    bool unfused = false;   // moe_plan_desc.unfused
    std::string kernels{};  // moe_plan_desc.kernel_filter
    bool stages = false;    // each stage is also measured alone; not part of the name

    std::string name() const;
};

const Model* find_model(const std::string& name);
// Tells whether the rows of the model are whole blocks of the format.
bool fits(const Model& model, const std::string& format);
moe_layer_desc layer_of(const Model& model, Mode mode);
// All cases, and the cases of --quick.
std::vector<Case> all_cases();
std::vector<Case> quick_cases();

}  // namespace moe::bench
