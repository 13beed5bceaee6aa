// CPU plans for processors that need not be there. Nothing is run.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/plan/plan.hpp"
#include "tests/support/matrices.hpp"

// Builds for other processors have no kernels of these.
#define SKIP_WITHOUT_X86()                             \
    if (!cpu::gemv_family(cpu::Arithmetic::gemv_avx2)) \
    GTEST_SKIP() << "a build without kernels of x86"

namespace moe::test {

struct Processor {
    const char* name;
    cpu::InstructionSets sets;
    int32_t n_threads;
};

inline bool may_use_no_tiles() {
    return false;
}
inline bool may_use_all_tiles() {
    return true;
}

// The threads are those that the rates of the cost model were measured on.
inline constexpr Processor with_avx2{"AVX2", {.avx2 = true, .may_use_tiles = may_use_no_tiles}, 2};
inline constexpr Processor with_avx512{"AVX-512",
                                       {.avx2 = true,
                                        .avx512 = true,
                                        .avx512vnni = true,
                                        .avx512bf16 = true,
                                        .may_use_tiles = may_use_no_tiles},
                                       2};
inline constexpr Processor with_amx{"AMX",
                                    {.avx2 = true,
                                     .avx512 = true,
                                     .avx512vnni = true,
                                     .avx512bf16 = true,
                                     .amx = true,
                                     .may_use_tiles = may_use_all_tiles},
                                    16};

// A layer whose gate and up have one format and down another; x is bf16.
struct CpuQuestion {
    moe_layer_desc layer;
    moe_format gate_up, down;
    int64_t max_tokens = 512;
    moe_residency residency = MOE_RESIDENCY_SOURCE;
    bool is_int8 = false;
};

inline moe_format sized_format(moe_format format) {
    format.struct_size = sizeof format;
    return format;
}

inline std::unique_ptr<moe_plan> plan_on(const Processor& processor, const CpuQuestion& question) {
    auto runtime_desc = moe_test::sized<moe_runtime_desc>();
    runtime_desc.n_threads = processor.n_threads;
    moe_runtime* runtime = nullptr;
    EXPECT_MOE_OK(moe_runtime_create(&runtime_desc, &runtime));
    const moe_test::Runtime owner(runtime);
    const moe_format gate_up = sized_format(question.gate_up), down = sized_format(question.down),
                     router = sized_format(format_named("bf16").format);
    const moe_format* formats[MOE_ROLE_COUNT];
    std::fill(std::begin(formats), std::end(formats), &gate_up);
    formats[MOE_ROLE_DOWN] = formats[MOE_ROLE_SHARED_DOWN] = &down;
    formats[MOE_ROLE_ROUTER] = &router;
    auto desc = moe_test::sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &question.layer;
    desc.x_type = MOE_TYPE_BF16;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = question.max_tokens;
    desc.residency = question.residency;
    if (question.is_int8) desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_INT8;
    return std::make_unique<moe_plan>(runtime, desc, processor.sets);
}

}  // namespace moe::test
