// A build may hold code of several architectures. Which of them a device takes is seen from an
// empty kernel, compiled for the same ones as all others.
#include "libmoe/cuda/runtime/early_start.hpp"

#include <atomic>

#include "libmoe/cuda/runtime/check.hpp"

namespace moe::cuda {
namespace {

enum class Answer : int { unknown, no, yes };

constexpr int remembered_devices = 64;
std::atomic<Answer> answers[remembered_devices];

__global__ void probe() {}

Answer ask() {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, probe), "early start of kernels");
    return attributes.ptxVersion >= 90 ? Answer::yes : Answer::no;
}

}  // namespace

bool kernels_may_start_early() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    if (device >= remembered_devices) return ask() == Answer::yes;
    Answer answer = answers[device].load(std::memory_order_relaxed);
    if (answer == Answer::unknown) {
        answer = ask();
        answers[device].store(answer, std::memory_order_relaxed);
    }
    return answer == Answer::yes;
}

}  // namespace moe::cuda
