// Router GEMM by cuBLASLt: algorithms are chosen when a plan is made and run on the caller's
// stream.
//
// Inputs: x [T, hidden] and weights [E, hidden], both BF16 or both F16, rows aligned to 16 bytes, E
// a multiple of 8. Output: one part [T][E] of float32.
//   1. choose_library queries the heuristic for an algorithm at 256, 1024, 4096, ... tokens
//   2. it runs each algorithm once, which loads its kernels
//   3. run_library_logits takes the largest known token count that does not exceed the call's
//
// cuBLASLt keeps the float32 accumulator in the tensor cores for a whole row, and these truncate.
// Measured on an H200 against float64, the logits of a token are wrong by 2e-6 of their size at
// hidden 2048 and by 4e-6 at hidden 7168. A choice that hangs on more than 1e-5 of the logits does
// not see such errors. Our own kernels are ten times more accurate, and slower.
#include <algorithm>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/device_memory.hpp"
#include "libmoe/cuda/router/logits.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/cublaslt.hpp"
#include "libmoe/cuda/runtime/launch_hook.hpp"

namespace moe::cuda {
namespace {

constexpr uint64_t workspace_bytes = uint64_t{4} << 20;

int64_t tokens_of(size_t i) {
    return min_library_tokens << (2 * i);
}

DenseGemm gemm_of(moe_type type, int64_t n_experts, int64_t hidden, int64_t n_tokens) {
    DenseGemm gemm{};
    gemm.m = n_experts;
    gemm.n = n_tokens;
    gemm.k = hidden;
    gemm.type = type;
    gemm.out_type = MOE_TYPE_F32;
    gemm.a_stride = hidden;
    gemm.b_stride = hidden;
    gemm.c_stride = n_experts;
    gemm.workspace_bytes = workspace_bytes;
    return gemm;
}

// Running each algorithm once loads its kernels, so that the first forward may be captured.
void load_algorithms(LogitsLibrary& chosen, DenseGemm gemm, Memory& memory, int32_t device) {
    constexpr uint64_t alignment = 256;
    const auto allocated = [&](int64_t bytes) {
        return DeviceMemory(memory, MOE_SPACE_DEVICE, static_cast<uint64_t>(bytes), alignment,
                            device, nullptr);
    };
    const DeviceMemory a = allocated(gemm.m * gemm.k * 2), b = allocated(gemm.n * gemm.k * 2),
                       c = allocated(gemm.m * gemm.n * 4), workspace = allocated(workspace_bytes);
    gemm.a = a.data();
    gemm.b = b.data();
    gemm.c = c.data();
    gemm.workspace = workspace.data();
    for (LibraryAlgorithm& algorithm : chosen.algorithms)
        algorithm.is_known = chosen.library->run(gemm, algorithm, nullptr);
    synchronize(nullptr);
}

}  // namespace

bool may_use_library(const Setup& setup) {
    const moe_type type = setup.router_type;
    const Layer& layer = *setup.layer;
    return !setup.batch_invariant && !layer.routing.has_router_norm &&
           (type == MOE_TYPE_BF16 || type == MOE_TYPE_F16) &&
           (setup.x_type == type || setup.router_input_type == type) &&
           layer.n_experts_all() % 8 == 0;
}

void choose_library(Setup& setup, const char* path, Memory& memory) {
    if (!may_use_library(setup) || setup.chunk_tokens < min_library_tokens) return;
    LogitsLibrary& chosen = setup.logits_library;
    chosen.library = CublasLt::shared(path, setup.device.index);
    if (!chosen.library) return;
    const int64_t n_experts = setup.layer->n_experts_all();
    const int64_t hidden = setup.layer->hidden;
    for (size_t i = 0; i < chosen.algorithms.size() && tokens_of(i) <= setup.chunk_tokens; ++i)
        chosen.library->find(gemm_of(setup.router_type, n_experts, hidden, tokens_of(i)),
                             chosen.algorithms[i]);
    load_algorithms(chosen, gemm_of(setup.router_type, n_experts, hidden, min_library_tokens),
                    memory, setup.device.index);
}

uint64_t library_scratch_bytes(bool may_use, int64_t n_tokens) {
    return may_use && n_tokens >= min_library_tokens ? workspace_bytes : 0;
}

bool run_library_logits(const LogitsLibrary& chosen, const RouterGemm& p, const TokenCount& tokens,
                        std::byte* workspace, cudaStream_t stream) {
    const bool aligned =
        reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.x_stride % 8 == 0 && p.x_stride >= p.hidden;
    if (!chosen.library || tokens.n < min_library_tokens || p.x_type != p.weights_type || !aligned)
        return false;
    size_t i = 0;
    while (i + 1 < chosen.algorithms.size() && tokens_of(i + 1) <= tokens.n &&
           chosen.algorithms[i + 1].is_known)
        ++i;
    DenseGemm gemm = gemm_of(p.weights_type, p.n_experts_all, p.hidden, tokens.n);
    gemm.a = p.weights;
    gemm.b = p.x;
    gemm.b_stride = p.x_stride;
    gemm.c = p.parts;
    gemm.workspace = workspace;
    report_launch("cublaslt_gemm", nullptr);
    return chosen.library->run(gemm, chosen.algorithms[i], stream);
}

}  // namespace moe::cuda
