// Tells whether the current device runs code that may use programmatic dependent launch (PDL). A
// build may hold code of several architectures, so the attributes of an empty kernel, compiled for
// all of them, tell which one the device takes. Input: the current device. Output: a bool, cached
// for each device.
#include "libmoe/cuda/runtime/early_start.hpp"

#include <atomic>

#include "libmoe/cuda/runtime/check.hpp"

namespace moe::cuda {
namespace {

enum class Answer : int { unknown, no, yes };

constexpr int remembered_devices = 64;
std::atomic<Answer> answers[remembered_devices];

__global__ void probe() {}

Answer query() {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, probe), "early start of kernels");
    return attributes.ptxVersion >= 90 ? Answer::yes : Answer::no;
}

}  // namespace

bool kernels_may_start_early() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    if (device >= remembered_devices) return query() == Answer::yes;
    Answer answer = answers[device].load(std::memory_order_relaxed);
    if (answer == Answer::unknown) {
        answer = query();
        answers[device].store(answer, std::memory_order_relaxed);
    }
    return answer == Answer::yes;
}

}  // namespace moe::cuda
