// Names of kernels: <arch>_<weight>_<activation>_<family>_<stage>[_variant], for example
// sm90_q6_k_bf16_gemv_down. The words of a name say where the kernel is: the family is a folder of
// libmoe/cuda, the weight a file of libmoe/cuda/dequant. gemv_gate_up and gemv_down are functions
// of their own; grouped_gemm and exact have one function, whose epilogue is that of the
// stage.
#pragma once

#include <string_view>

#include "libmoe/cuda/kernel_name.hpp"
#include "libmoe/cuda/launch_plan.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {

// The packed type's name; of a grid of scales the name of its codes.
std::string_view weight_name(PackedType type);

struct KernelWords {
    std::string_view architecture;
    std::string_view activation;
    std::string_view family;  // may be empty
};

// weight: as it stands in the name, "q4_k" or "q4_k+q5_k" where gate and up differ.
cuda::KernelName kernel_name(const KernelWords& words, std::string_view weight,
                             std::string_view stage, std::string_view variant = {});

// The weights of the GEMMs of a stage. "any" where the layer has none.
cuda::KernelName weight_of_gate_up(const WeightsLayout& layout, moe_role gate, moe_role up);
cuda::KernelName weight_of(const WeightsLayout& layout, moe_role role);

// Does the name match the glob, where * stands for any characters?
bool matches_glob(std::string_view name, std::string_view glob);

}  // namespace moe
