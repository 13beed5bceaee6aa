// Programmatic dependent launch (PDL) on the host side. A kernel that begins with the wait of
// device/dependent_launch.cuh may be launched while the preceding kernel in the stream still runs.
#pragma once

#include <cuda_runtime_api.h>

namespace moe::cuda {

// Tells whether the current device runs code of sm_90 or newer; older code does not wait. It
// queries the device once.
bool kernels_may_start_early();

inline cudaLaunchAttribute early_start() {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return attribute;
}

}  // namespace moe::cuda
