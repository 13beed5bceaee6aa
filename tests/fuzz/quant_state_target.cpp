// The JSON that bitsandbytes writes as a tensor of bytes, in a checkpoint through moe.h: of the up
// matrices of two experts, whose scales have scales, and of one of the shared expert, which is as
// high as the JSON says.
#include "tests/checkpoint/quantised_models.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/model_folder.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/fuzz/use_checkpoint.hpp"

namespace moe_fuzz {
namespace {

using moe::test::Model;
using moe::test::SpelledMatrix;

constexpr std::string_view words[] = {
    "shape",        "blocksize",     "quant_type",   "dtype",  "nested_blocksize",
    "nested_dtype", "nested_offset", "nested_scale", "offset", "nf4",
    "fp4",          "bfloat16",      "float32",      "uint8",  "shape.0"};

constexpr int64_t hidden = 32, width = 16, n_experts = 2;
const std::string block = "model.layers.0.mlp.";

Model model_without_states() {
    Model model;
    model.config =
        R"({"model_type":"deepseek_v3","hidden_size":32,"moe_intermediate_size":16,)"
        R"("n_routed_experts":2,"n_shared_experts":1,"num_experts_per_tok":1,"n_group":1})";
    model.add(block + "gate.weight", "F32", {n_experts, hidden});
    model.add(block + "gate.e_score_correction_bias", "F32", {n_experts});
    for (const char* of : {"experts.0.", "experts.1.", "shared_experts."}) {
        model.add(block + of + "gate_proj.weight", "BF16", {width, hidden});
        model.add(block + of + "up_proj.weight", "BF16", {width, hidden});
        model.add(block + of + "down_proj.weight", "BF16", {hidden, width});
    }
    return model;
}

// Matrices in 4 bits, and their states by name.
struct Fixed {
    Fixed() {
        folder.write(ModelFolder::config, model.config);
        for (const char* expert : {"experts.0.up_proj", "experts.1.up_proj"})
            add(block + expert, true);
        add(block + "shared_experts.gate_proj", false);
    }
    void add(const std::string& stem, bool is_routed) {
        SpelledMatrix{model, stem, width, hidden}.four_bits(is_routed, is_routed, "");
        states.push_back(stem + ".weight.quant_state.bitsandbytes__" + (is_routed ? "nf4" : "fp4"));
    }
    std::string file_with(std::string_view state) {
        for (const std::string& name : states)
            model.tensors[name] = {"U8", {static_cast<int64_t>(state.size())}, std::string(state)};
        return model.file();
    }

    ModelFolder folder;
    Model model = model_without_states();
    std::vector<std::string> states;
};

}  // namespace

void run_quant_state(std::string_view input) {
    static Fixed fixed;
    fixed.folder.write(ModelFolder::tensors, fixed.file_with(input));
    use_checkpoint(fixed.folder.path(), input.size() % 2 ? MOE_IO_READ : MOE_IO_MMAP,
                   ModelFolder::tensors);
}

std::string mutate_quant_state(std::string_view input, Random& random) {
    return mutate_json(input, words, random);
}

}  // namespace moe_fuzz
