// Where the lanes of a load or store find their bytes.
#pragma once

#include "tests/emulator/lanes.hpp"

namespace emulator {

struct Places {
    std::byte* at[32];
};

// For the lanes of the mask: address a + immediate in the space of the instruction. Faults where
// the bytes are nobody's, or not aligned to their size.
void find_places(Warp& warp, const Instruction& in, uint32_t bytes, Places& places);
// One address.
std::byte* find_place(Warp& warp, int lane, Space space, uint64_t address, uint32_t bytes);
std::byte* global_place(Warp& warp, int lane, uint64_t address, uint64_t bytes);

// The space that the modifiers name.
Space space_of(const Statement& s);

}  // namespace emulator
