// The rules of a moe_layer_desc that do not need the resolved layer. layer.cpp applies them.
#pragma once

#include "moe/moe.h"

namespace moe {

// Fails with MOE_ERROR_INVALID_ARGUMENT, naming the first wrong field and its value.
void check_layer_rules(const moe_layer_desc& desc);

}  // namespace moe
