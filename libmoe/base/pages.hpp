// Pages of large host memory: their size, and the NUMA node that they lie on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmoe/base/team.hpp"

namespace moe {

// Memory smaller than this stays as the allocator gave it.
constexpr uint64_t large_memory = uint64_t{8} << 20;

// Requests pages of 2 MB, a hint that may have no effect, for memory that nobody has written yet.
void advise_huge_pages(std::byte* memory, uint64_t bytes);

// Does memory lie on more than one node here?
bool has_numa_nodes();

// Writes a zero to each page, 2 MB by 2 MB on whichever thread of the team takes them: a page lies
// on the node of the thread that writes it first, so the memory is spread over the nodes of the
// threads that will read it. The memory is new: what it held is lost.
void spread_pages(Team& team, std::byte* memory, uint64_t bytes);

}  // namespace moe
