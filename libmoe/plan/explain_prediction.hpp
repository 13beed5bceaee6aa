// The part of an explanation that says what the cost model of a CPU plan predicts.
#pragma once

#include <string>

#include "libmoe/plan/json_writer.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {

// The members "predicted_us", of both devices, and "prediction", null for a CUDA plan.
void write_prediction(JsonWriter& json, const moe_plan& plan);
// A line for each number of tokens and the machine that the rates are of; or why there is none.
std::string cpu_prediction_text(const moe_plan& plan);

}  // namespace moe
