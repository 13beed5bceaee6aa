// The ordered candidate tables: for each stage the kernels that could run it, best first, and why
// each is or is not used. This is the only place that names kernels.
#pragma once

#include <memory_resource>
#include <string_view>
#include <vector>

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/setup.hpp"
#include "libmoe/cuda/setup.hpp"
#include "libmoe/plan/kernel_names.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {

// The fixed list of reasons. Codes are part of the interface: docs/explain.schema.json lists them.
struct Reason {
    const char* code;
    const char* sentence;
};

namespace reasons {
inline constexpr Reason chosen{"chosen", "the first of the list that applies"};
inline constexpr Reason forced{"forced", "forced by kernel_filter"};
inline constexpr Reason slower{"slower", "applies, but one before it is expected to be faster"};
inline constexpr Reason forbidden{"forbidden", "forbidden by kernel_filter"};
inline constexpr Reason not_forced{"not_forced", "applies, but kernel_filter forces another"};
inline constexpr Reason isa{"isa", "this machine or build lacks its instruction set"};
inline constexpr Reason weight_type{"weight_type", "it does not read weights of these formats"};
inline constexpr Reason intermediate_type{
    "intermediate_type",
    "its arithmetic does not match the intermediate type: F64 asks for float64, F32 for float32, "
    "F16 for float16"};
inline constexpr Reason column_table{"column_table",
                                     "gate and up are two launches, and act_order or "
                                     "pre_quant_scale gives one of them a row of x for "
                                     "each slot"};
inline constexpr Reason scale_grid{"scale_grid",
                                   "it multiplies sums over 128 columns by one scale, and the "
                                   "weights have others inside of them"};
inline constexpr Reason x_type{"x_type", "its arithmetic is narrower than x"};
inline constexpr Reason architecture{"architecture", "it is made for another architecture"};
inline constexpr Reason size{"size", "the layer is too large for its blocks, or not of whole ones"};
inline constexpr Reason latent{"latent", "it does not make the rows of a latent"};
inline constexpr Reason expert_norm{"expert_norm",
                                    "an expert norm wants rows with an expert each, and the device "
                                    "has too few multiprocessors for those of a token"};
inline constexpr Reason unneeded{"unneeded", "the layer has nothing for it"};
inline constexpr Reason many_rows{"many_rows",
                                  "taken beside the one above for matrices with many rows"};
// Reasons of a kernel for one matrix of the CPU.
inline constexpr Reason decoded{"decoded",
                                "taken, but no kernel reads the format: plain loops decode a row, "
                                "which is multiplied as float32"};
inline constexpr Reason no_panels{"no_panels", "it has no panels of this matrix"};
inline constexpr Reason no_tiles{
    "no_tiles", "its tiles do not suit the panels of this format, which AVX-512 multiplies"};
inline constexpr Reason workspace{"workspace", "max_workspace_bytes has no room for its panels"};
inline constexpr Reason few_tokens{"few_tokens", "calls have too few tokens for it"};
inline constexpr Reason unfused{"unfused", "the plan asks for every stage apart"};
inline constexpr Reason batch_invariant{
    "batch_invariant",
    "it accumulates in another order than the kernels of other numbers of tokens"};
}  // namespace reasons

// Up to how many tokens the kernels of small_batch tokens can run, and are worth running; 0: none.
struct GemvRange {
    int32_t can = 0;
    int32_t worth = 0;
    bool lacks_rows = false;  // sums could be made, but only rows are wanted
};

// The question that candidates answer.
struct Problem {
    const WeightsLayout* layout;
    moe_type x_type;
    moe_type intermediate_type;
    bool unfused;
    const cuda::Setup* cuda;  // device facts and fused flags; null: a CPU plan
    GemvRange gemv_experts;
    GemvRange gemv_finish;
    int64_t max_tokens = 1;
    bool has_room_for_panels = true;  // in the workspace
    bool batch_invariant = false;
    bool quantizes_to_int8 = false;  // the policy of the plan
    bool quantizes_to_fp8 = false;   // likewise
    cpu::InstructionSets instructions = cpu::instruction_sets();
};

// Are rows before a matrix of this role float32 results, which nothing rounded to the type of x?
// All matrices before the activation are told the same, since they read rows of one form.
inline bool reads_computed_rows(const Layer& layer, moe_role role) {
    return layer.latent && role != MOE_ROLE_DOWN && role != MOE_ROLE_SHARED_DOWN;
}

// The form of a format that kernels of the CPU read in weights of this layout.
inline cpu::GemvFormat gemv_format_in(const WeightsLayout& layout, const moe_format& format) {
    return cpu::gemv_format_of(format, layout.is_interleaved());
}

// A candidate for small batches is chosen beside one for any number of tokens, and so is one of the
// CPU for many rows of a matrix.
enum class Tokens : uint8_t { any, small_batch, many_rows };

struct Candidate {
    KernelWords words;         // of which its names are made
    cuda::KernelName gate_up;  // the candidate's name; of experts and finish, its first GEMM
    cuda::KernelName down;     // the second GEMM, empty for the other stages
    moe_stage stage;
    Tokens tokens;
    int32_t most_tokens;      // of a small batch: up to which it is used, or where forced, can be
    cpu::PanelRows min_rows;  // of many rows: from which on it takes those of a matrix
    cpu::Arithmetic arithmetic;  // of CPU candidates
    cuda::Family family;         // of CUDA candidates
    bool applicable;
    bool is_chosen;  // or used beside the chosen one: for small batches, for many rows
    const Reason* reason;

    const char* name() const { return gate_up.c_str(); }
};

// All candidates of the problem's device; one is chosen per stage for any number of tokens, and
// where a better one for small_batch applies, that one too. filter may be null. Fails with
// MOE_ERROR_INVALID_ARGUMENT for a name that does not exist, MOE_ERROR_UNSUPPORTED when a forced
// one does not apply or nothing is left.
std::pmr::vector<Candidate> choose_candidates(std::pmr::memory_resource& memory,
                                              const Problem& problem, const char* filter);

const char* stage_name(moe_stage stage);
inline constexpr moe_stage all_stages[] = {MOE_STAGE_ROUTE, MOE_STAGE_DISPATCH, MOE_STAGE_EXPERTS,
                                           MOE_STAGE_COMBINE, MOE_STAGE_FINISH};

}  // namespace moe
