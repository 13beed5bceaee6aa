// Floating-point modes that a caller may have set, other than the default.
#pragma once

#include <cfenv>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace moe_test {

// Rounds down, and on x86 takes subnormals for zero, until it is destroyed.
class OddFloatMode {
  public:
    OddFloatMode() {
        std::fegetenv(&saved_);
        std::fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    }
    ~OddFloatMode() {
        std::fesetenv(&saved_);
    }
    OddFloatMode(const OddFloatMode&) = delete;
    OddFloatMode& operator=(const OddFloatMode&) = delete;

  private:
    std::fenv_t saved_;
};

// Is this thread in the default mode? By computing, not by asking.
inline bool is_default_mode() {
    volatile float one = 1.0f, little = 1e-20f, tiny = 1.5e-38f, half = 0.5f;
    return one + little == 1.0f && one - little == 1.0f && tiny * half > 0;
}

}  // namespace moe_test
