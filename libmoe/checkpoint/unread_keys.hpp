// Keys of config.json that say something of a layer's experts or routing and that the family has
// not read. Left out silently, one of them would make a layer that runs and is wrong.
#pragma once

#include <cstdint>
#include <string_view>

#include "libmoe/checkpoint/settings.hpp"
#include "moe/moe.h"

namespace moe {

// After the layer of this number has been read: a key that has not been, and whose value neither
// agrees with a description nor is known to change nothing, is MOE_ERROR_UNSUPPORTED. as_read: the
// description before the caller's overrides. desc: the one with them, which may say what such a key
// says.
void refuse_unread_keys(const Settings& settings, std::string_view family, int32_t layer,
                        const moe_layer_desc& as_read, const moe_layer_desc& desc);

}  // namespace moe
