// What operator new of operator_new.hpp has done, and whether it shall fail. May be included
// wherever the program has that one.
#pragma once

#include <atomic>
#include <cstdint>

namespace moe_test {

inline std::atomic<int64_t> n_operator_new{0};
inline std::atomic<int64_t> n_operator_new_live{0};  // taken and not given back
// The n-th request from now on fails, once; 1 is the next. 0: none. Below 0: it has failed, -1 by
// an exception, -2 by a null pointer on request (std::nothrow).
inline std::atomic<int64_t> refuse_operator_new{0};

inline bool refuses_operator_new() {
    if (refuse_operator_new <= 0 || refuse_operator_new.fetch_sub(1) != 1) return false;
    refuse_operator_new = -1;
    return true;
}

}  // namespace moe_test
