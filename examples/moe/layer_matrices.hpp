// layer_matrices.hpp - the experts' matrices of one layer as float32, one at a time, however the
// file holds them: stacked or apart, gate and up fused or not, in any format that the library
// reads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "moe_cpp.hpp"

namespace moe::cli {

class LayerMatrices {
  public:
    // The checkpoint must outlive this.
    LayerMatrices(const moe_checkpoint* checkpoint, int32_t layer);

    struct Shape {
        int64_t rows = 0;
        int64_t columns = 0;
    };

    const moe_layer_desc& desc() const { return desc_; }
    // GATE and UP are found in a fused GATE_UP, too.
    bool has(moe_role role) const;
    Shape shape(moe_role role) const;
    std::string format_of(moe_role role) const;
    // [rows, columns] of one expert (0 for roles without experts).
    void values(moe_role role, int32_t expert, std::vector<float>& out) const;

  private:
    struct Entry {
        moe_tensor tensor{};
        moe_format format{};
    };

    const Entry* find(moe_role role, int32_t expert) const;
    const Entry& get(moe_role role, int32_t expert) const;

    int32_t layer_;
    moe_layer_desc desc_ = sized<moe_layer_desc>();
    std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace moe::cli
