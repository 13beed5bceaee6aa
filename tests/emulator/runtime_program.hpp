// Where the PTX lies, and what kernels are called there.
#pragma once

#include <string>

namespace emulator {

// The name under which the PTX has the kernel that is registered as `name`; empty if it has none.
std::string name_in_ptx(const std::string& name);
// A mangled name without the two numbers that nvcc puts into names of internal linkage: hashes of
// the file and its path.
std::string without_hashes(const std::string& name);

}  // namespace emulator
