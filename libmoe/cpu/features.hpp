// The name of the processor and its instruction sets.
#pragma once

namespace moe::cpu {

struct Text {
    char text[256];
};

// "unknown" where the system does not say.
Text name();
// "avx2 fma f16c avx512f ...", by the names that compilers use; on ARM "asimd asimddp i8mm ...", by
// those of Linux.
Text features();
// Conversion between float32 and float16.
bool has_f16c();
// True where this machine and this build can run the kernels of an instruction set, and the
// environment variable MOE_CPU_ISA does not forbid them: it names the largest set to use, `scalar`,
// `avx2`, `avx512`, `avx512vnni`, `avx512bf16` or `amx`, on ARM `scalar`, `neon` or `i8mm`. Other
// values change nothing.
bool has_avx2();
bool has_avx512();
// AVX-512 with VNNI and VBMI, and GFNI.
bool has_avx512vnni();
// The same with BF16.
bool has_avx512bf16();
// The same with AMX's tiles of bytes and of bfloat16. They also need may_use_tiles
// (tile_permission.hpp).
bool has_amx();
// NEON with dot products of bytes (ARMv8.2 dotprod).
bool has_neon();
// The same with matrix products of bytes (ARMv8.6 I8MM).
bool has_i8mm();

// All of them as a value, which a plan is made for: tests make plans for processors that are not
// there.
struct InstructionSets {
    bool avx2 = false, avx512 = false, avx512vnni = false, avx512bf16 = false, amx = false;
    bool neon = false, i8mm = false;
    // Requests permission for the tiles of AMX; called by a plan that would use them.
    bool (*may_use_tiles)() = nullptr;
};
InstructionSets instruction_sets();

}  // namespace moe::cpu
