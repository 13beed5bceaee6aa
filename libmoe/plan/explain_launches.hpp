// The part of an explanation that lists what a CUDA plan launches, by ranges of T.
#pragma once

#include <string>

#include "libmoe/plan/json_writer.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {

// The member "launches": null for a CPU plan.
void write_launches(JsonWriter& json, const moe_plan& plan);
std::string launches_text(const moe_plan& plan);

}  // namespace moe
