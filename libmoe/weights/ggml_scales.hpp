// Moved to libmoe/packed/ggml_scales.hpp; this name goes when its last includer has changed.
#pragma once

#include "libmoe/packed/ggml_scales.hpp"
