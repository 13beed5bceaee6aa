// The threads of a runtime, whichever they are.
#pragma once

#include <algorithm>

#include "libmoe/base/pool.hpp"
#include "libmoe/base/runtime.hpp"

namespace moe {

// Calls body(team). n_threads is the most that the team may have; 0: as many as the runtime.
template <class Body>
void with_team(const moe_runtime& runtime, int32_t n_threads, Body body) {
    const int32_t size = n_threads ? std::min(n_threads, runtime.n_threads) : runtime.n_threads;
    if (size == 1) {
        SerialTeam team;
        body(team);
    } else if (runtime.parallel_for) {
        ParallelForTeam team(size, runtime.parallel_for, runtime.parallel_for_user_data);
        body(team);
    } else {
        PoolTeam team(*runtime.pool, size);
        body(team);
    }
}

template <class Body>
void with_team(const moe_runtime& runtime, Body body) {
    with_team(runtime, 0, body);
}

}  // namespace moe
