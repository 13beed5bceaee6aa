// against.hpp - the experts' matrices of one checkpoint compared with those of another.
#pragma once

#include <string>
#include <vector>

#include "error_table.hpp"

namespace moe::cli {

// Of every MoE layer that both have; they may hold them in any two forms. A layer whose sizes
// differ, and checkpoints without a common layer, are failures.
std::vector<MatrixError> errors_against(const moe_checkpoint* checkpoint, const std::string& path,
                                        const std::string& reference_path);

}  // namespace moe::cli
