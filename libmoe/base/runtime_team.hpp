// The threads of a runtime, whichever they are.
#pragma once

#include "libmoe/base/pool.hpp"
#include "libmoe/base/runtime.hpp"

namespace moe {

// Calls body(team).
template <class Body>
void with_team(const moe_runtime& runtime, Body body) {
    if (runtime.parallel_for) {
        ParallelForTeam team(runtime.n_threads, runtime.parallel_for,
                             runtime.parallel_for_user_data);
        body(team);
    } else if (runtime.n_threads == 1) {
        SerialTeam team;
        body(team);
    } else {
        PoolTeam team(*runtime.pool);
        body(team);
    }
}

}  // namespace moe
