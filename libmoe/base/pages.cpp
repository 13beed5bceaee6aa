// Hints to the kernel; what it refuses changes no result.
#include "libmoe/base/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "libmoe/base/checked.hpp"

namespace moe {
namespace {

constexpr uint64_t huge_page = uint64_t{2} << 20;
constexpr uint64_t small_page = 4096;

}  // namespace

void advise_huge_pages(std::byte* memory, uint64_t bytes) {
    if (bytes < large_memory) return;
    // Whole pages of 2 MB inside the memory: what lies around it is not ours.
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const uint64_t skipped = align_up(begin, huge_page) - begin;
    madvise(memory + skipped, (bytes - skipped) / huge_page * huge_page, MADV_HUGEPAGE);
}

bool has_numa_nodes() {
    return access("/sys/devices/system/node/node1", F_OK) == 0;
}

void spread_pages(Team& team, std::byte* memory, uint64_t bytes) {
    const uint64_t n_pieces = (bytes + huge_page - 1) / huge_page;
    team.for_each(static_cast<int64_t>(n_pieces), [&](int32_t, int64_t i) {
        const uint64_t first = static_cast<uint64_t>(i) * huge_page;
        const uint64_t last = std::min(first + huge_page, bytes);
        for (uint64_t at = first; at < last; at += small_page) memory[at] = std::byte{0};
    });
}

}  // namespace moe
