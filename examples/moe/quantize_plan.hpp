// quantize_plan.hpp - which tensors of a safetensors checkpoint are copied, which are experts'
// matrices, and what stands in their place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quantize_target.hpp"
#include "recipe.hpp"
#include "safetensors_source.hpp"

namespace moe::cli {

struct ExpertMatrix {
    std::string name;  // of the module
    int32_t layer = 0;
    moe_role role = MOE_ROLE_NONE;
    int32_t expert = 0;
    int64_t rows = 0;
    int64_t columns = 0;
    Place codes;
    Place scales;
    Place global_scale;
    Place shape;
};

struct CopiedTensor {
    size_t tensor = 0;  // of the source
    size_t piece = 0;
};

struct QuantizePlan {
    std::vector<Piece> pieces;  // piece.file: that of the source until it is laid out
    std::vector<CopiedTensor> copied;
    std::vector<ExpertMatrix> matrices;  // by layer, then expert: gate, up, down
    std::vector<std::string> left;       // modules that keep their weights
    bool is_gpt_oss = false;
};

// Every matrix is checked against the format here, before a byte is written.
QuantizePlan quantize_plan(const SafetensorsSource& source, const moe_checkpoint* checkpoint,
                           const QuantizeTarget& target);

}  // namespace moe::cli
