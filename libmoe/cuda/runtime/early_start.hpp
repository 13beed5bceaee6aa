// Programmatic dependent launch, seen from the host: kernels that begin with the wait of
// device/dependent_launch.cuh may be launched while the one before them runs.
#pragma once

#include <cuda_runtime_api.h>

namespace moe::cuda {

// On the current device: is the code that it runs of sm_90 at least? Older code does not wait.
// Asks the device once.
bool kernels_may_start_early();

inline cudaLaunchAttribute early_start() {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return attribute;
}

}  // namespace moe::cuda
