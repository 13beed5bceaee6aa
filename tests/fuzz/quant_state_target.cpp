// The JSON that bitsandbytes writes as a tensor of bytes, in a checkpoint: of the up matrices of
// two experts, whose scales have scales, and of one of the shared expert, which is as high as the
// JSON says. The other tensors and the configuration are read once; what the layer's reader accepts
// then goes through moe.h, from a file.
#include <optional>

#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/layer_places.hpp"
#include "tests/checkpoint/quantised_models.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/model_folder.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/fuzz/use_checkpoint.hpp"

namespace moe_fuzz {
namespace {

using moe::test::Model;
using moe::test::SpelledMatrix;

constexpr std::string_view quant_state_words[] = {
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
struct Unquantized {
    Unquantized() {
        for (const char* expert : {"experts.0.up_proj", "experts.1.up_proj"})
            add(block + expert, true);
        add(block + "shared_experts.gate_proj", false);
    }
    void add(const std::string& stem, bool is_routed) {
        SpelledMatrix{model, stem, width, hidden}.four_bits(is_routed, is_routed, "");
        states.push_back(stem + ".weight.quant_state.bitsandbytes__" + (is_routed ? "nf4" : "fp4"));
    }
    void write(const ModelFolder& folder, std::string_view state) {
        for (const std::string& name : states)
            model.tensors[name] = {"U8", {static_cast<int64_t>(state.size())}, std::string(state)};
        folder.write(ModelFolder::config, model.config);
        folder.write(ModelFolder::tensors, model.file());
    }

    Model model = model_without_states();
    std::vector<std::string> states;
};

// The same checkpoint, open, with the states in a second file.
class Open {
  public:
    Open(Unquantized& fixed, moe_io io) : io_(io) {
        fixed.write(folder_, " ");
        files_.emplace(memory_, folder_.path(), io);
        places_ = moe::find_layers(memory_, files_->index, files_->files, {});
        files_->files.reserve(2);
    }

    // Whether the reader takes the state for what it is.
    bool describes(std::string_view state) {
        place(state);
        auto describe = [&] {
            const moe::FusedOverride override;
            moe::LayerData data(memory_);
            moe::LayerBuilder builder(*files_, override, places_[0].prefix, 0, data);
            moe::build_deepseek_v3(builder);
            builder.finish();
        };
        return survives(describe, ModelFolder::tensors);
    }

  private:
    void place(std::string_view state) {
        if (files_->files.size() == 2) files_->files.pop_back();
        states_.write(ModelFolder::tensors, state);
        files_->files.emplace_back(memory_, states_.path() + "/" + ModelFolder::tensors, io_);
        // The index is finished, but names stay, and with them their order.
        for (moe::TensorEntry& entry : files_->index.entries_from(0)) {
            if (entry.name.find("quant_state") == entry.name.npos) continue;
            entry.file = 1;
            entry.offset = 0;
            entry.bytes = state.size();
            entry.shape[0] = static_cast<int64_t>(state.size());
        }
    }

    std::pmr::memory_resource& memory_ = *std::pmr::new_delete_resource();
    moe_io io_;
    ModelFolder folder_, states_;
    std::optional<moe::CheckpointFiles> files_;
    std::pmr::vector<moe::LayerPlace> places_;
};

}  // namespace

void run_quant_state(std::string_view input) {
    static Unquantized fixed;
    static const ModelFolder folder;
    static Open mapped(fixed, MOE_IO_MMAP), read(fixed, MOE_IO_READ);
    const bool is_read = input.size() % 2;
    if (!(is_read ? read : mapped).describes(input)) return;
    fixed.write(folder, input);
    use_checkpoint(folder.path(), is_read ? MOE_IO_READ : MOE_IO_MMAP, ModelFolder::tensors);
}

std::string mutate_quant_state(std::string_view input, Random& random) {
    return mutate_json(input, quant_state_words, random);
}

}  // namespace moe_fuzz
