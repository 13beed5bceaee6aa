#include "libmoe/cpu/tile_permission.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace moe::cpu {
namespace {

// XCR0: the state components that the system saves.
uint64_t saved_components() {
    uint32_t low = 0, high = 0;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
}

bool request_permission() {
    constexpr long arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18;
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
}

}  // namespace

bool has_tiles() {
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    constexpr unsigned instructions = amx_bf16 | amx_tile | amx_int8;
    constexpr uint64_t tile_components = uint64_t{3} << 17;  // configuration and data
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    if ((saved_components() & tile_components) != tile_components) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & instructions) == instructions;
}

bool may_use_tiles() {
    static const bool is_permitted = has_tiles() && request_permission();
    return is_permitted;
}

}  // namespace moe::cpu

#else

namespace moe::cpu {

bool has_tiles() {
    return false;
}

bool may_use_tiles() {
    return false;
}

}  // namespace moe::cpu
#endif
