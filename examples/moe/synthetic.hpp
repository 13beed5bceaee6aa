// synthetic.hpp - the tensors of a layer in memory, random, in the formats of a plan.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device.hpp"

namespace moe::cli {

// The experts of a role have equal codes, each in memory of its own: made as fast as one expert,
// and read like any other weights.
class SyntheticLayer {
  public:
    SyntheticLayer(const LayerSource& source, uint64_t seed);
    SyntheticLayer(const SyntheticLayer&) = delete;  // tensors point into it
    SyntheticLayer& operator=(const SyntheticLayer&) = delete;

    // Read where they lie on the CPU: the layer outlives the weights.
    std::shared_ptr<moe_weights> weights(const moe_plan* plan, bool is_packed) const;

  private:
    struct Shape {
        moe_role role;
        int64_t rows;
        int64_t columns;
    };
    static std::vector<Shape> shapes_of(const LayerSource& source);
    void add(const Shape& shape, const moe_format& format, int64_t n_experts, uint64_t seed);
    const unsigned char* copies_of(const std::vector<unsigned char>& one, int64_t n);

    std::deque<moe_format> formats_;
    std::deque<std::vector<unsigned char>> buffers_;
    std::deque<std::vector<float>> global_scales_;
    std::vector<moe_tensor> tensors_;
};

}  // namespace moe::cli
