// Moved to libmoe/packed/grid.hpp; this name goes when its last includer has changed.
#pragma once

#include "libmoe/packed/grid.hpp"
