// The CUDA backend in a build without CUDA: every function fails.
#include "libmoe/cuda/backend.hpp"

namespace moe::cuda {
namespace {

[[noreturn]] void fail_absent(const char* what) {
    fail(MOE_ERROR_NOT_BUILT, "{}: the CUDA backend is not built into this library", what);
}

}  // namespace

bool is_built() {
    return false;
}

const char* architectures() {
    return "";
}

int32_t device_count() {
    fail_absent("MOE_DEVICE_CUDA");
}

moe_device_info device_info(int32_t) {
    fail_absent("MOE_DEVICE_CUDA");
}

DeviceFacts device_facts(int32_t) {
    fail_absent("MOE_DEVICE_CUDA");
}

bool find_device(int32_t, DeviceFacts&) {
    return false;
}

NominalRates nominal_rates(const DeviceFacts&) {
    fail_absent("MOE_DEVICE_CUDA");
}

void choose_library(Setup&, const char*, Memory&) {
    fail_absent("moe_plan_create");
}

void prepare(const Setup&, LaunchPlan&) {
    fail_absent("moe_plan_create");
}

uint64_t scratch_bytes(const Setup&, int64_t) {
    fail_absent("moe_plan_workspace_size");
}

void forward(const Call&, const moe_forward_args&) {
    fail_absent("moe_forward");
}

void route(const Call&, const moe_route_args&) {
    fail_absent("moe_route");
}

void dispatch_rows(const Call&, const moe_dispatch_args&) {
    fail_absent("moe_dispatch");
}

void gather(const Call&, const moe_gather_args&) {
    fail_absent("moe_gather");
}

void experts(const Call&, const moe_experts_args&) {
    fail_absent("moe_experts");
}

void combine(const Call&, const moe_combine_args&) {
    fail_absent("moe_combine");
}

void finish(const Call&, const moe_finish_args&) {
    fail_absent("moe_finish");
}

}  // namespace moe::cuda
