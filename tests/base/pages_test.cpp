// Pages of large memory: what the kernel says of them, and that every page has been written.
#include "libmoe/base/pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "libmoe/base/pool.hpp"

namespace moe {
namespace {

constexpr uint64_t size = 24u << 20;

struct Mapping {
    std::byte* memory = static_cast<std::byte*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ~Mapping() { munmap(memory, size); }
};

// The flags of the mapping that holds an address, as /proc/self/smaps has them.
std::string flags_at(const void* address) {
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::istringstream words(line);
        if (line.find('-') < line.find(' ') && words >> std::hex >> begin >> dash >> end)
            inside = reinterpret_cast<uintptr_t>(address) >= begin &&
                     reinterpret_cast<uintptr_t>(address) < end;
        if (inside && line.rfind("VmFlags:", 0) == 0) return line + " ";
    }
    return {};
}

bool is_advised(const void* address) {
    return flags_at(address).find(" hg ") != std::string::npos;
}

TEST(Pages, HugeOnesAreRequestedForLargeMemoryAlone) {
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        GTEST_SKIP() << "this kernel has no transparent huge pages";
    const Mapping large, small;
    ASSERT_FALSE(flags_at(large.memory).empty());
    advise_huge_pages(large.memory + 64, size - 64);
    EXPECT_TRUE(is_advised(large.memory + size / 2));
    EXPECT_FALSE(is_advised(large.memory)) << "a page that is not the memory's alone";
    advise_huge_pages(small.memory, large_memory - 1);
    EXPECT_FALSE(is_advised(small.memory + large_memory / 2));
}

TEST(Pages, EachIsWrittenAndNothingBeyond) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (const int32_t n_threads : {1, 3}) {
        const Mapping mapping;
        madvise(mapping.memory, size, MADV_NOHUGEPAGE);
        const uint64_t bytes = size - 5 * page + 1;
        Pool pool(*std::pmr::new_delete_resource(), n_threads);
        PoolTeam team(pool);
        spread_pages(team, mapping.memory, bytes);
        std::vector<unsigned char> resident(size / page);
        ASSERT_EQ(mincore(mapping.memory, size, resident.data()), 0);
        for (uint64_t i = 0; i < resident.size(); ++i)
            ASSERT_EQ(resident[i] & 1, i * page < bytes) << "page " << i;
    }
}

}  // namespace
}  // namespace moe
