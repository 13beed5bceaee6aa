// Every kernel that a plan may launch is loaded when the plan is made, so that the first forward of
// a process can be captured.
#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/dispatch/caller_rows.hpp"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/gemm_families.hpp"
#include "libmoe/cuda/router/router.hpp"

namespace moe::cuda {
namespace {

bool uses(const Setup& setup, Family family) {
    return setup.experts.usual == family || setup.finish.usual == family;
}

}  // namespace

void prepare(const Setup& setup) {
    prepare_router(setup.device);
    prepare_dispatch();
    prepare_caller_rows();
    prepare_combine();
    prepare_activate();
    // Rows that stop before the activation are generic work whatever the family.
    prepare_generic();
    if (uses(setup, Family::exact)) prepare_exact();
    if (uses(setup, Family::grouped)) prepare_grouped();
    for (const Families& families : {setup.experts, setup.finish})
        if (families.gemv_tokens) prepare_gemv(setup.device, families.gemv_is_portable);
}

}  // namespace moe::cuda
