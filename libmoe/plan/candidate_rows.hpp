// A row of the candidate tables (candidates.hpp), and the checks that rows of both devices share.
#pragma once

#include <algorithm>
#include <span>

#include "libmoe/plan/candidates.hpp"

namespace moe {

using Check = const Reason* (*)(const Problem&);  // null: applies

struct Row {
    const char* cpu_name = nullptr;  // of a CPU row; the words make the names of all others
    moe_stage stage;
    Check check;
    cpu::Arithmetic arithmetic = cpu::Arithmetic::ref_f32;
    cuda::Family family = cuda::Family::exact;
    Tokens tokens = Tokens::any;
    KernelWords words{};
};

inline const Reason* in_f32(const Problem& problem) {
    return problem.intermediate_type == MOE_TYPE_F64 ? &reasons::intermediate_type : nullptr;
}

// Does what holds of a format hold of every matrix that the layout needs?
template <class Holds>
bool all_matrices(const Problem& problem, std::span<const moe_role> roles, Holds holds) {
    return std::all_of(roles.begin(), roles.end(), [&](moe_role role) {
        bool all = true;
        if (problem.layout->needs(role))
            problem.layout->for_each_format(
                role, [&](const moe_format& format) { all = all && holds(format); });
        return all;
    });
}

}  // namespace moe
