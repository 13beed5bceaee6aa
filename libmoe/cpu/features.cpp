// CPU facts from the processor itself, without files.
#include "libmoe/cpu/features.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace moe::cpu {

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

// Sets in ascending order, each with all before it.
bool is_allowed(std::string_view set) {
    const char* most = std::getenv("MOE_CPU_ISA");
    if (!most) return true;
    for (const std::string_view one : {"scalar", "avx2", "avx512", "avx512vnni", "avx512bf16"}) {
        if (one == set) return true;
        if (one == most) return false;
    }
    return true;
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

Text features() {
    Text out{};
    auto add = [&](const char* feature) {
        if (out.text[0]) std::strcat(out.text, " ");
        std::strcat(out.text, feature);
    };
#define MOE_FEATURE(feature) \
    if (__builtin_cpu_supports(feature)) add(feature)
    MOE_FEATURE("avx2");
    MOE_FEATURE("fma");
    if (has_f16c()) add("f16c");
    MOE_FEATURE("avx512f");
    MOE_FEATURE("avx512bw");
    MOE_FEATURE("avx512vl");
    MOE_FEATURE("avx512dq");
    MOE_FEATURE("avx512vnni");
    MOE_FEATURE("avx512vbmi");
    MOE_FEATURE("avx512bf16");
#undef MOE_FEATURE
    return out;
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

Text name() {
    return {"unknown"};
}

Text features() {
    return {""};
}

#endif

}  // namespace moe::cpu
