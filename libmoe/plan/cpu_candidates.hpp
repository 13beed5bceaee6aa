// The candidates of the CPU: their table, and what a kernel of a family is for one matrix.
#pragma once

#include <span>

#include "libmoe/plan/candidate_rows.hpp"

namespace moe {

// Best first within a stage.
std::span<const Row> cpu_rows();

// The names of a row of gemv or gemm kernels: of both GEMMs of its stage.
void name_cpu_kernels(const Row& row, const Problem& problem, Candidate& candidate);
// The name for one matrix, <arch>_<weight>_<activation>_<family>.
cuda::KernelName cpu_kernel_of_matrix(const Candidate& candidate, const Problem& problem,
                                      moe_role role);

// The rows from which on the gemm kernels of a family take the matrices of a stage, those before
// the activation and down; 0: one of them has no panels.
cpu::PanelRows panel_rows_of(const Problem& problem, cpu::Arithmetic arithmetic, moe_stage stage);

// How the kernels of a family read a matrix.
struct MatrixKernels {
    bool is_decoded;  // a row at a time, by the format's own decoder
    bool has_panels;
    bool has_tiles;  // AMX multiplies its panels
};
MatrixKernels kernels_of_matrix(const Problem& problem, cpu::Arithmetic arithmetic, moe_role role);

// The form in which kernels of a family take the rows before a matrix.
cpu::Quantization rows_before(const Problem& problem, cpu::Arithmetic arithmetic, moe_role role,
                              bool for_panels);
// Before a matrix of the role in a format that single experts have.
cpu::Quantization rows_before(const Problem& problem, cpu::Arithmetic arithmetic, moe_role role,
                              const moe_format& format, bool for_panels);

}  // namespace moe
