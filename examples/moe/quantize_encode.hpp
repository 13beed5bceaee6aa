// quantize_encode.hpp - one matrix in the format of a target, and how far that is from its values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "error_table.hpp"
#include "quantize_target.hpp"

namespace moe::cli {

struct EncodedMatrix {
    std::vector<unsigned char> codes;
    std::vector<unsigned char> scales;
    float global_scale = 0.0F;  // as the file has it
};

// Keeps its buffers: one per thread.
class MatrixEncoder {
  public:
    explicit MatrixEncoder(const QuantizeTarget& target) : target_(target) {}

    void encode(std::span<const float> values, int64_t rows, int64_t columns);
    const EncodedMatrix& encoded() const { return out_; }
    // Of rows of what was encoded last, decoded as a reader will; `values` are what they were. Sets
    // the format and the numbers.
    void measure(int64_t first_row, int64_t rows, int64_t columns, std::span<const float> values,
                 MatrixError& error);

  private:
    const QuantizeTarget& target_;
    EncodedMatrix out_;
    std::vector<float> decoded_;
};

}  // namespace moe::cli
