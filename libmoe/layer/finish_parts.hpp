// The parts of moe_finish, for every device.
#pragma once

#include <cstdint>

#include "moe/moe.h"

namespace moe {

// MOE_FINISH_ALL, spelled out.
inline constexpr uint32_t every_finish_part = MOE_FINISH_DOWN_BIAS | MOE_FINISH_LATENT |
                                              MOE_FINISH_SHARED | MOE_FINISH_COMBINE |
                                              MOE_FINISH_IDENTITY;

}  // namespace moe
