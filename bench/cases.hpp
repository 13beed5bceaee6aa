// A case of the benchmark, and the layers of real models that cases are made of.
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

// moe_experts in a layout of its rows (layouts.hpp).
struct Layout {
    const char* name;  // the mode of a case
    moe_in_layout in;
    moe_out_layout out;
    int32_t block_rows = 1;  // every expert's rows begin on a multiple of it
    bool stops = false;      // before the activation
};

struct Case {
    const Model* model;
    std::string format;
    Mode mode;
    int64_t n_tokens;
    double zipf;            // exponent of the expert's popularity; 0: uniform
    bool unfused = false;   // moe_plan_desc.unfused
    std::string kernels{};  // moe_plan_desc.kernel_filter
    bool stages = false;    // each stage is also measured alone; not part of the name
    moe_type x_type = MOE_TYPE_BF16;
    moe_type intermediate_type = MOE_TYPE_BF16;
    bool fp8_activations = false;  // moe_plan_desc.activation_quantization
    // A case from ids calls moe_experts with rows in this layout, whose name is then the mode's;
    // null: moe_forward.
    const Layout* layout = nullptr;

    const char* mode_name() const;
    std::string name() const;
};

const Model* find_model(const std::string& name);
// The cells of the table of layouts in moe.h. Null: no layout has the name.
const Layout* find_layout(const std::string& name);
std::vector<std::string> layout_names();
// Tells whether the rows of the model are whole blocks of the format.
bool fits(const Model& model, const std::string& format);
moe_layer_desc layer_of(const Model& model, Mode mode);
// "bf16" or "f16".
const char* name_of_type(moe_type type);

}  // namespace moe::bench
