// moe_forward and the stages on the CPU, chunk of tokens by chunk. Arguments have been checked and
// their defaults filled in (api/arguments.hpp); nothing here fails, allocates or locks.
#pragma once

#include "libmoe/base/team.hpp"
#include "libmoe/cpu/setup.hpp"

namespace moe::cpu {

struct Call {
    Team& team;
    const Setup& setup;
    const ResidentWeights& weights;
    Faults& faults;
    std::byte* scratch;  // scratch_bytes(setup, n_tokens) at least; moe_experts on rows takes what
                         // there is
    uint64_t scratch_size;
};

void forward(const Call& call, const moe_forward_args& args);
void route(const Call& call, const moe_route_args& args);
void dispatch_rows(const Call& call, const moe_dispatch_args& args);
void gather(const Call& call, const moe_gather_args& args);
void experts(const Call& call, const moe_experts_args& args);
void combine(const Call& call, const moe_combine_args& args);
void finish(const Call& call, const moe_finish_args& args);

}  // namespace moe::cpu
