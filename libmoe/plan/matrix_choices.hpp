// Which kernels of a CPU plan take a matrix, by its rows of activations, and why not the others.
#pragma once

#include <cstdint>
#include <vector>

#include "libmoe/plan/candidates.hpp"

struct moe_plan;

namespace moe {

// A candidate as it is for one matrix.
struct MatrixKernel {
    cuda::KernelName name;  // <arch>_<weight>_<activation>_<family>
    const Candidate* candidate;
    bool is_taken;
    int64_t first_rows, last_rows;  // where it is taken; last_rows 0: any number
    const Reason* reason;
};

// Candidates in their order, best first.
struct MatrixChoice {
    moe_role role;
    std::vector<MatrixKernel> kernels;
};

// Returns the matrices that the layer has in experts or finish. Made with the C++ runtime's own
// memory.
std::vector<MatrixChoice> matrix_choices(const moe_plan& plan, moe_stage stage);

// The tokens of a call from which on a matrix of the stage has so many rows, if every expert is
// equally likely.
int64_t tokens_for_rows(const Layer& layer, moe_stage stage, int64_t rows);

}  // namespace moe
