// The kernels that the library launches, as a library that is built with MOE_LAUNCH_HOOK says while
// it launches them. Without the hook nothing is recorded, and a report counts no checks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cases.hpp"

namespace moe_gpu {

struct Launch {
    std::string kernel;    // as moe_plan_kernel names it; "cublaslt_gemm" for the library's GEMM
    const void* function;  // of the host; null for the library's GEMM
};

// The library has the hook, and it is set. The first call sets it.
bool are_launches_recorded();
// Throws Skip where they are not.
void need_launches();

// Launches of all threads since the mark, in their order. A case begins with none.
size_t launch_mark();
std::vector<Launch> launches_since(size_t mark);
void forget_launches();
std::set<std::string> names_of(const std::vector<Launch>& launches);

// Does `launched` stand for the kernel `named`? A name of a stage stands for the kernels whose
// names continue it: `..._gemv` for `..._gemv_gate_up` and `..._gemv_down`.
bool stands_for(const std::string& named, const std::string& launched);

// A kernel's name taken apart: <arch>_<weight>_<activation>_<family>_<stage>.
struct KernelName {
    explicit KernelName(const std::string& name);
    std::string arch, weight, activation, family;  // empty where the name does not say it
    // Architecture, activation and family: what a filter chooses.
    std::string group() const { return arch + " " + activation + " " + family; }
};

// Is a function, by its demangled name, what a kernel of this name runs: the function of its
// family, with its packed type among the template arguments where it has types there? True of
// kernels of no family.
bool is_function_of(const std::string& kernel, const std::string& demangled);
// The functions of all launches against the names that the CUDA runtime has for them.
void check_functions(Context& context, const std::vector<Launch>& launches);

}  // namespace moe_gpu
