// Moved to libmoe/base/iq_grids.hpp; this name goes when its last includer has changed.
#pragma once

#include "libmoe/base/iq_grids.hpp"
