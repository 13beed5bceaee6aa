// Moved to libmoe/base/iq_columns.hpp; this name goes when its last includer has changed.
#pragma once

#include "libmoe/base/iq_columns.hpp"
