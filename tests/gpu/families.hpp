// Cases on every family of kernels: the plan's candidates, forced one family of one architecture
// after the other.
#pragma once

#include "compare.hpp"

namespace moe_gpu {

// Calls use(pair) once for every family of an architecture that has a candidate for the experts,
// with that candidate forced, and its like for the shared expert where it applies. A case fails
// when a small-batch or grouped family does not apply for a reason that is the layer's own, and
// when a family that is forced does not run. On the CPU the plan's choice runs, once.
void with_every_family(Context& context, const PairSpec& spec,
                       const std::function<void(const Pair&)>& use);
// The same for cases that make their pairs themselves, with what they are given as spec.subject.
using ForcePlan = std::function<void(moe_plan_desc&)>;
void force_every_family(Context& context, const PairSpec& spec,
                        const std::function<void(const ForcePlan&)>& use);

// The layer whose first forward is captured in a process of its own.
PairSpec first_of_process_spec();

}  // namespace moe_gpu
