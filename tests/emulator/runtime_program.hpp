// Locates the PTX of kernels and maps kernel names to the names in it.
#pragma once

#include <string>

namespace emulator {

// Returns the PTX name of the kernel that is registered as `name`; empty if there is none.
std::string name_in_ptx(const std::string& name);
// Returns a mangled name without the two numbers that nvcc puts into names of internal linkage:
// hashes of the file and its path.
std::string without_hashes(const std::string& name);

}  // namespace emulator
