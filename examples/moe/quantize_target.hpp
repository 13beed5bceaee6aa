// quantize_target.hpp - what `moe quantize --to` knows: the format of each target, the tensors that
// a matrix becomes in the names that loaders read, and what config.json says of them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "moe_cpp.hpp"

namespace moe::cli {

// One tensor beside others of the same module. An empty suffix: there is none.
struct TargetPart {
    std::string suffix;  // ".weight_scale"
    std::string dtype;
    std::vector<int64_t> shape;
};

struct TargetParts {
    TargetPart codes;
    TargetPart scales;
    TargetPart global_scale;
    TargetPart shape;  // compressed-tensors' weight_shape, I64 [2]
};

class QuantizeTarget {
  public:
    // UsageFailure lists the targets. group_size is for int4 alone; 0: 32.
    QuantizeTarget(const std::string& name, int32_t group_size);

    const std::string& name() const { return name_; }
    bool is_gguf() const;
    const moe_format& format() const { return format_; }
    // As the file says it: nvfp4 has its global scale as a divisor there.
    moe_format written_format() const;
    // What stands in the file for a global scale.
    float written_global_scale(float global_scale) const;
    // Of a matrix of its own, [rows, columns].
    TargetParts parts(int64_t rows, int64_t columns) const;
    // quantization_config; `left` are the modules that keep their weights. gpt_oss: experts are
    // stacked as blocks and scales.
    nlohmann::ordered_json config(const std::vector<std::string>& left, bool gpt_oss) const;

  private:
    std::string name_;
    moe_format format_;
};

}  // namespace moe::cli
