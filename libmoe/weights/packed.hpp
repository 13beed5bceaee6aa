// Moved to libmoe/packed/layout.hpp; this name goes when its last includer has changed.
#pragma once

#include "libmoe/packed/layout.hpp"
