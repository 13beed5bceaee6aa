// CPU facts from the processor itself, without files.
#include "libmoe/cpu/features.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "libmoe/cpu/tile_permission.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstdio>
#endif

namespace moe::cpu {
namespace {

// MOE_CPU_ISA, of names in ascending order, each of which stands for all before it, too.
[[maybe_unused]] bool is_allowed(std::initializer_list<std::string_view> names,
                                 std::string_view set) {
    const char* most = std::getenv("MOE_CPU_ISA");
    if (!most) return true;
    for (const std::string_view one : names) {
        if (one == set) return true;
        if (one == most) return false;
    }
    return true;
}

[[maybe_unused]] void append(Text& text, const char* feature) {
    if (text.text[0]) std::strcat(text.text, " ");
    std::strcat(text.text, feature);
}

}  // namespace

#if defined(__x86_64__)

Text name() {
    Text out{};
    unsigned words[12]{};
    for (unsigned i = 0; i < 3; ++i)
        if (!__get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                         &words[4 * i + 3]))
            return {"unknown"};
    std::memcpy(out.text, words, sizeof words);
    return out;
}

// clang before 16 has no such word for __builtin_cpu_supports.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

namespace {

bool is_allowed(std::string_view set) {
    return is_allowed({"scalar", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"}, set);
}

// Not a word of __builtin_cpu_supports in every compiler.
bool has_gfni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 8);
}

}  // namespace

bool has_avx2() {
    return is_allowed("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           has_f16c();
}

bool has_avx512() {
    return has_avx2() && is_allowed("avx512") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

bool has_avx512vnni() {
    return has_avx512() && is_allowed("avx512vnni") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512vbmi") && has_gfni();
}

bool has_avx512bf16() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return has_avx512vnni() && is_allowed("avx512bf16") &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

bool has_amx() {
    return has_avx512bf16() && is_allowed("amx") && has_tiles();
}

Text features() {
    Text out{};
#define MOE_FEATURE(feature) \
    if (__builtin_cpu_supports(feature)) append(out, feature)
    MOE_FEATURE("avx2");
    MOE_FEATURE("fma");
    if (has_f16c()) append(out, "f16c");
    MOE_FEATURE("avx512f");
    MOE_FEATURE("avx512bw");
    MOE_FEATURE("avx512vl");
    MOE_FEATURE("avx512dq");
    MOE_FEATURE("avx512vnni");
    MOE_FEATURE("avx512vbmi");
    MOE_FEATURE("avx512bf16");
#undef MOE_FEATURE
    if (has_tiles()) append(out, "amx_tile amx_int8 amx_bf16");
    return out;
}

bool has_neon() {
    return false;
}

bool has_i8mm() {
    return false;
}

#else

bool has_f16c() {
    return false;
}

bool has_avx2() {
    return false;
}

bool has_avx512() {
    return false;
}

bool has_avx512vnni() {
    return false;
}

bool has_avx512bf16() {
    return false;
}

bool has_amx() {
    return false;
}

#if defined(__aarch64__) && defined(__linux__)

// Implementer and part, which are what the processor itself has for a name.
Text name() {
    Text out{"unknown"};
    if (!(getauxval(AT_HWCAP) & HWCAP_CPUID)) return out;
    uint64_t id;
    asm("mrs %0, midr_el1" : "=r"(id));
    std::snprintf(out.text, sizeof out.text, "ARM implementer 0x%02x part 0x%03x",
                  static_cast<unsigned>(id >> 24 & 0xFF), static_cast<unsigned>(id >> 4 & 0xFFF));
    return out;
}

namespace {

bool is_allowed(std::string_view set) {
    return is_allowed({"scalar", "neon", "i8mm"}, set);
}

}  // namespace

bool has_neon() {
    constexpr unsigned long needed = HWCAP_ASIMD | HWCAP_ASIMDDP;
    return is_allowed("neon") && (getauxval(AT_HWCAP) & needed) == needed;
}

bool has_i8mm() {
    return has_neon() && is_allowed("i8mm") && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}

Text features() {
    Text out{};
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    if (hwcap & HWCAP_ASIMD) append(out, "asimd");
    if (hwcap & HWCAP_ASIMDDP) append(out, "asimddp");
    if (hwcap & HWCAP_SVE) append(out, "sve");
    if (hwcap2 & HWCAP2_I8MM) append(out, "i8mm");
    if (hwcap2 & HWCAP2_BF16) append(out, "bf16");
    return out;
}

#else

Text name() {
    return {"unknown"};
}

bool has_neon() {
    return false;
}

bool has_i8mm() {
    return false;
}

Text features() {
    return {""};
}

#endif
#endif

InstructionSets instruction_sets() {
    return {has_avx2(), has_avx512(), has_avx512vnni(), has_avx512bf16(),
            has_amx(),  has_neon(),   has_i8mm(),       may_use_tiles};
}

}  // namespace moe::cpu
