// Moved to libmoe/base/element.hpp; this name goes when its last includer has changed.
#pragma once

#include "libmoe/base/element.hpp"
