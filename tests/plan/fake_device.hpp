// CUDA plans of devices that are not there: a plan of the CPU whose device is replaced and whose
// choices are made again. Nothing is run.
#pragma once

#include <gtest/gtest.h>

#include "libmoe/plan/cuda_choices.hpp"
#include "libmoe/plan/launch_plan.hpp"
#include "tests/support/matrices.hpp"

namespace moe::test {

struct FakeDevice {
    const char* name;
    cuda::DeviceFacts facts;
    cuda::NominalRates rates;
};

inline FakeDevice fake_device(const char* name, int32_t major, int32_t minor, int32_t n_sms,
                              int32_t shared_bytes) {
    FakeDevice device{name, {}, {0, 0}};
    device.facts.major = major;
    device.facts.minor = minor;
    device.facts.n_sms = n_sms;
    device.facts.shared_bytes = shared_bytes;
    return device;
}

inline FakeDevice h200() {
    FakeDevice device = fake_device("H200", 9, 0, 132, 232448);
    device.rates = {4.9e6, 1.07e9};
    return device;
}
inline FakeDevice sm80() {
    return fake_device("sm80", 8, 0, 108, 166912);
}
inline FakeDevice sm86() {
    return fake_device("sm86", 8, 6, 84, 101376);
}

// A layer whose matrices have one format but for those of `others`; the router is bf16.
struct FakeLayer {
    moe_layer_desc desc;
    const char* format;
    int64_t max_tokens = 512;
    moe_type x_type = MOE_TYPE_BF16;
    std::map<moe_role, const char*> others{};
    std::map<moe_role, moe_format> unnamed{};  // formats without a name, before all
    bool batch_invariant = false;
    bool unfused = false;
    moe_type intermediate_type = MOE_TYPE_NONE;  // NONE: the plan's default
    bool quantizes_to_fp8 = false;
};

inline moe_test::Plan cpu_plan(const FakeLayer& layer) {
    std::array<moe_format, MOE_ROLE_COUNT> formats{};
    std::array<const moe_format*, MOE_ROLE_COUNT> pointers{};
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const auto other = layer.others.find(role);
        const char* name = other != layer.others.end() ? other->second
                           : role == MOE_ROLE_ROUTER   ? "bf16"
                                                       : layer.format;
        const auto given = layer.unnamed.find(role);
        formats[i] = given != layer.unnamed.end() ? given->second : format_named(name).format;
        formats[i].struct_size = sizeof formats[i];
        pointers[i] = &formats[i];
    }
    auto desc = moe_test::sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &layer.desc;
    desc.x_type = layer.x_type;
    desc.formats = pointers.data();
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = layer.max_tokens;
    desc.batch_invariant = layer.batch_invariant;
    desc.unfused = layer.unfused;
    desc.intermediate_type = layer.intermediate_type;
    moe_plan* plan = nullptr;
    EXPECT_MOE_OK(moe_plan_create(nullptr, &desc, &plan));
    return moe_test::Plan(plan);
}

// Makes the choices of a CPU plan again, for the device. Throws what choose_candidates throws.
inline moe_test::Plan moved_to(const FakeDevice& device, moe_test::Plan plan,
                               const char* filter = nullptr) {
    plan->device = plan->layout.device = MOE_DEVICE_CUDA;
    plan->device_reason = "of a test";
    plan->layout.residency = MOE_RESIDENCY_PACKED;
    plan->layout.keeps_tables_apart = plan->unfused;
    plan->cuda.device = device.facts;
    choose_cuda_kernels(*plan, device.rates, filter);
    plan->cuda.chunk_tokens = plan->max_tokens;
    make_launch_plan(*plan, const_cast<cuda::LaunchPlan&>(plan->launch_plan()));
    return plan;
}

inline moe_test::Plan cuda_plan(const FakeDevice& device, const FakeLayer& layer,
                                const char* filter = nullptr) {
    moe_test::Plan plan = cpu_plan(layer);
    plan->quantizes_to_fp8 = layer.quantizes_to_fp8;  // which a CPU plan refuses
    return moved_to(device, std::move(plan), filter);
}

inline std::string chosen_kernel(const moe_test::Plan& plan, moe_stage stage,
                                 int64_t n_tokens = INT64_MAX) {
    return plan->chosen(stage, n_tokens).name();
}

// Status and sentence that refuse the filter; MOE_OK and "" where it is accepted.
inline std::pair<moe_status, std::string> refusal(const FakeDevice& device, const FakeLayer& layer,
                                                  const char* filter) {
    try {
        cuda_plan(device, layer, filter);
    } catch (const Error& error) {
        return {error.status(), error.what()};
    }
    return {MOE_OK, ""};
}

}  // namespace moe::test
