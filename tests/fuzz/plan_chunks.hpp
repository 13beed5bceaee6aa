// The input of the target plan, in chunks: what each is.
#pragma once

namespace moe_fuzz {

// Structs start with their struct_size and may be of any length; the bytes that struct_size
// promises are there. Formats follow, the place in the list being the role; an empty one is a NULL
// pointer.
enum PlanChunk { plan_flags, plan_desc, plan_layer, plan_slice, plan_filter, plan_formats };

// Bits of the first byte of plan_flags. Pointers in moe_plan_desc come from these and not from
// bytes.
enum PlanFlag {
    without_layer = 1,
    with_slice = 2,
    with_map = 4,
    with_filter = 8,
    with_tuning = 16,
    with_dead_checkpoint = 32,
    without_formats = 64,
    with_expert_formats = 128  // of every second expert, from the list of the roles
};

}  // namespace moe_fuzz
