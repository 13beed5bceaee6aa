// Finds the bytes that the lanes of a load or store access. Input: a warp and an instruction.
// Output: a host pointer for each active lane.
#pragma once

#include "tests/emulator/lanes.hpp"

namespace emulator {

struct LaneAddresses {
    std::byte* at[32];
};

// Computes address a + immediate in the space of the instruction for each active lane. It faults
// where no allocation holds the bytes or the address is not aligned to their size.
void find_addresses(Warp& warp, const Instruction& in, uint32_t bytes, LaneAddresses& addresses);
// Checks one address of one lane.
std::byte* find_address(Warp& warp, int lane, Space space, uint64_t address, uint32_t bytes);
std::byte* global_address(Warp& warp, int lane, uint64_t address, uint64_t bytes);

// Returns the state space that the modifiers name.
Space space_of(const Statement& s);

}  // namespace emulator
