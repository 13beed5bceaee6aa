// The plan: every decision about a layer, made once and immutable. Builds and is tested without a
// device.
#pragma once

#include <optional>
#include <string>

#include "libmoe/base/runtime.hpp"
#include "libmoe/cpu/setup.hpp"
#include "libmoe/cuda/backend.hpp"
#include "libmoe/device/device_memory.hpp"
#include "libmoe/plan/candidates.hpp"
#include "libmoe/weights/weights.hpp"

struct moe_plan : moe::Tagged<0x4D4F45706C616E21> {
    // sets: of a CPU plan, the processor's; tests give others, and run nothing.
    moe_plan(moe_runtime* shared_runtime, const moe_plan_desc& desc,
             const moe::cpu::InstructionSets& sets = moe::cpu::instruction_sets());
    moe_plan(const moe_plan&) = delete;
    moe_plan& operator=(const moe_plan&) = delete;

    moe::RuntimeRef runtime;
    moe::cpu::InstructionSets instructions;
    moe::WeightsLayout layout;
    moe_device_kind device = MOE_DEVICE_CPU;
    int32_t device_index = 0;
    const char* device_reason = "";  // static
    moe_type x_type = MOE_TYPE_NONE;
    moe_type router_input_type = MOE_TYPE_NONE;
    moe_type out_type = MOE_TYPE_NONE;
    moe_type intermediate_type = MOE_TYPE_NONE;
    bool partial = false;
    bool batch_invariant = false;
    bool unfused = false;
    bool quantizes_to_int8 = false;  // MOE_ACTIVATION_QUANTIZATION_INT8
    bool quantizes_to_fp8 = false;   // MOE_ACTIVATION_QUANTIZATION_FP8
    int64_t max_tokens = 0;
    uint64_t max_workspace_bytes = 0;             // 0: the plan's own choice
    std::pmr::vector<moe::Candidate> candidates;  // stages in order, best first
    moe::cpu::Setup setup{};                      // of a CPU plan
    moe::cuda::Setup cuda{};                      // of a CUDA plan
    moe::DevicePlacement placement{};             // likewise
    std::array<uint8_t, 16> key{};
    // Microseconds that the experts of max_tokens tokens should take on CUDA; nothing: not
    // measured. explain asks cpu_cost.hpp for those of a CPU plan.
    std::optional<double> predicted_us;

    bool is_cuda() const { return device == MOE_DEVICE_CUDA; }
    // Most kernels read the values of E4M3 x, rounded to bfloat16.
    moe_type type_of_x_values() const {
        return x_type == MOE_TYPE_F8_E4M3 ? MOE_TYPE_BF16 : x_type;
    }
    int64_t chunk_tokens() const { return is_cuda() ? cuda.chunk_tokens : setup.chunk_tokens; }
    // CUDA plans only.
    const moe::cuda::LaunchPlan& launch_plan() const { return launch_; }
    const moe::Candidate& chosen(moe_stage stage, int64_t n_tokens = INT64_MAX) const;
    // The same, or on the CPU what takes an expert with the mean number of rows.
    const moe::Candidate& typical(moe_stage stage, int64_t n_tokens) const;
    moe_workspace_need workspace_need(int64_t n_tokens) const;

  private:
    void go_to_device();

    moe::device::DeviceMemory tables_;  // what cuda.local_of and cuda.constants point to
    moe::cuda::LaunchPlan launch_;      // what cuda.launch points to
};

namespace moe {

// Sentences, or JSON that docs/explain.schema.json describes. Made with the C++ runtime's own
// memory, for the duration of the call.
std::string explain_text(const moe_plan& plan);
std::string explain_json(const moe_plan& plan);

}  // namespace moe
