// The fmt library, compiled once (fmt.cpp) and under a namespace of our own, so that a program that
// links libmoe.a may have its own fmt. Header-only use in every file would take most of the build's
// time.
#pragma once

#define FMT_BEGIN_NAMESPACE \
    namespace fmt {         \
    inline namespace libmoe {
#define FMT_END_NAMESPACE \
    }                     \
    }

#include <fmt/core.h>
