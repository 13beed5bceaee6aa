// The floating-point mode of a thread while it computes: results may not depend on what a caller
// has set, for it holds on the caller's thread and not on those beside it.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace moe {

// Rounding to nearest, subnormals kept, no traps; at the end what was set before.
class DefaultFloatMode {
  public:
    DefaultFloatMode(const DefaultFloatMode&) = delete;
    DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

#if defined(__x86_64__)
    DefaultFloatMode() : saved_(_mm_getcsr()) {
        _mm_setcsr(0x1F80);
    }
    ~DefaultFloatMode() {
        _mm_setcsr(saved_);
    }

  private:
    unsigned int saved_;
#else
    DefaultFloatMode() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatMode() {
        std::fesetenv(&saved_);
    }

  private:
    std::fenv_t saved_;
#endif
};

}  // namespace moe
