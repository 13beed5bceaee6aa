// The backend that a context of ggml has: it computes graphs whose operations the device claimed.
#pragma once

#include "interface.hpp"
#include "moe_ggml.h"

namespace moe::ggml {

// Ended by its own call of release.
Backend* start_backend(Device* device);

// 0: as many as the runtime of libmoe has.
void set_n_threads(Backend* backend, int n_threads);
void set_abort_callback(Backend* backend, AbortCallback callback, void* data);

}  // namespace moe::ggml
