// The ordered candidate tables: for each stage the kernels that could run it, best first, and why
// each is or is not used. This is the only place that names kernels.
#pragma once

#include <memory_resource>
#include <string_view>
#include <vector>

#include "libmoe/cpu/setup.hpp"
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
inline constexpr Reason weight_type{"weight_type", "it reads f32, f16 and bf16 weights only"};
inline constexpr Reason intermediate_type{
    "intermediate_type",
    "its arithmetic does not match the intermediate type: F64 asks for float64"};
}  // namespace reasons

// The question that candidates answer.
struct Problem {
    const WeightsLayout* layout;
    moe_type intermediate_type;
};

struct Candidate {
    const char* name;
    moe_stage stage;
    cpu::Arithmetic arithmetic;
    bool applicable;
    bool is_chosen;
    const Reason* reason;
};

// All candidates of the CPU with one chosen per stage. filter may be null. Fails with
// MOE_ERROR_INVALID_ARGUMENT for a name that does not exist, MOE_ERROR_UNSUPPORTED when a forced
// one does not apply or nothing is left.
std::pmr::vector<Candidate> choose_candidates(std::pmr::memory_resource& memory,
                                              const Problem& problem, const char* filter);

const char* stage_name(moe_stage stage);
inline constexpr moe_stage all_stages[] = {MOE_STAGE_ROUTE, MOE_STAGE_DISPATCH, MOE_STAGE_EXPERTS,
                                           MOE_STAGE_COMBINE, MOE_STAGE_FINISH};

}  // namespace moe
