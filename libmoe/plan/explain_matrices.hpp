// The part of an explanation that lists, for a CPU plan, which kernels take each matrix.
#pragma once

#include <string>

#include "libmoe/plan/json_writer.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {

// "q4_0", or "q4_0, q8_0 of 3 experts" where single experts have another format.
std::string format_words(const WeightsLayout& layout, moe_role role);
// The member "matrices" of a stage; of other stages than experts and finish, and of CUDA plans, an
// empty array.
void write_matrices(JsonWriter& json, const moe_plan& plan, moe_stage stage);
// Matrices of one format with the same kernels stand together.
std::string matrices_text(const moe_plan& plan, moe_stage stage);

}  // namespace moe
