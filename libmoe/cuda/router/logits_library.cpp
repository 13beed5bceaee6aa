// The choice of the library's algorithms when a plan is made, and their use.
//
// The library's float32 sums stay inside the tensor cores for a whole row, and these cut off rather
// than round. Measured against double precision on an H200, the logits of a token are wrong by 2e-6
// of their size at 2048 hidden values and 4e-6 at 7168: errors that choices which hang on more than
// 1e-5 of the logits do not see. The kernels of our own are ten times nearer, and slower.
#include <algorithm>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/device_memory.hpp"
#include "libmoe/cuda/router/logits.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/cublaslt.hpp"

namespace moe::cuda {
namespace {

constexpr uint64_t workspace_bytes = uint64_t{4} << 20;

int64_t tokens_of(size_t i) {
    return least_library_tokens << (2 * i);
}

DenseGemm product_of(moe_type type, int64_t n_experts, int64_t hidden, int64_t n_tokens) {
    DenseGemm product{};
    product.m = n_experts;
    product.n = n_tokens;
    product.k = hidden;
    product.type = type;
    product.out_type = MOE_TYPE_F32;
    product.a_stride = hidden;
    product.b_stride = hidden;
    product.c_stride = n_experts;
    product.workspace_bytes = workspace_bytes;
    return product;
}

// The algorithms' kernels are brought to the device by running them once, so that the first forward
// may be captured.
void try_algorithms(LogitsLibrary& chosen, DenseGemm product, Memory& memory, int32_t device) {
    constexpr uint64_t alignment = 256;
    const auto room = [&](int64_t bytes) {
        return DeviceMemory(memory, MOE_SPACE_DEVICE, static_cast<uint64_t>(bytes), alignment,
                            device, nullptr);
    };
    const DeviceMemory a = room(product.m * product.k * 2), b = room(product.n * product.k * 2),
                       c = room(product.m * product.n * 4), workspace = room(workspace_bytes);
    product.a = a.data();
    product.b = b.data();
    product.c = c.data();
    product.workspace = workspace.data();
    for (LibraryAlgorithm& algorithm : chosen.algorithms)
        algorithm.is_known = chosen.library->run(product, algorithm, nullptr);
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
    if (!may_use_library(setup) || setup.chunk_tokens < least_library_tokens) return;
    LogitsLibrary& chosen = setup.logits_library;
    chosen.library = CublasLt::shared(path, setup.device.index);
    if (!chosen.library) return;
    const int64_t n_experts = setup.layer->n_experts_all();
    const int64_t hidden = setup.layer->hidden;
    for (size_t i = 0; i < chosen.algorithms.size() && tokens_of(i) <= setup.chunk_tokens; ++i)
        chosen.library->find(product_of(setup.router_type, n_experts, hidden, tokens_of(i)),
                             chosen.algorithms[i]);
    try_algorithms(chosen, product_of(setup.router_type, n_experts, hidden, least_library_tokens),
                   memory, setup.device.index);
}

uint64_t library_scratch_bytes(bool may_use, int64_t n_tokens) {
    return may_use && n_tokens >= least_library_tokens ? workspace_bytes : 0;
}

bool run_library_logits(const LogitsLibrary& chosen, const RouterGemm& p, const TokenCount& tokens,
                        std::byte* workspace, cudaStream_t stream) {
    const bool aligned =
        reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.x_stride % 8 == 0 && p.x_stride >= p.hidden;
    if (!chosen.library || tokens.n < least_library_tokens || p.x_type != p.weights_type ||
        !aligned)
        return false;
    size_t i = 0;
    while (i + 1 < chosen.algorithms.size() && tokens_of(i + 1) <= tokens.n &&
           chosen.algorithms[i + 1].is_known)
        ++i;
    DenseGemm product = product_of(p.weights_type, p.n_experts_all, p.hidden, tokens.n);
    product.a = p.weights;
    product.b = p.x;
    product.b_stride = p.x_stride;
    product.c = p.parts;
    product.workspace = workspace;
    return chosen.library->run(product, chosen.algorithms[i], stream);
}

}  // namespace moe::cuda
