// The vectorised dot products, one file per instruction set; each is compiled with its own flags
// and called only where the machine has them. Nothing inline is shared with these files: a shared
// inline function could be kept in its AVX form for everybody.
#pragma once

#include "libmoe/cpu/gemv/gemv.hpp"
#include "libmoe/cpu/rows.hpp"

#if defined(__x86_64__)
#define MOE_X86 1

namespace moe::cpu {

void dot_rows_avx2(WeightRow weight, int64_t columns, const InputRows<float>& rows, int64_t n,
                   float* out);
void dot_rows_avx512(WeightRow weight, int64_t columns, const InputRows<float>& rows, int64_t n,
                     float* out);

// The gemv kernels of an instruction family.
extern const GemvFamily gemv_avx2;
extern const GemvFamily gemv_avx512vnni;
// The same with gemm kernels of AMX.
extern const GemvFamily gemv_amx;

}  // namespace moe::cpu

#elif defined(__aarch64__) && defined(__linux__)
#define MOE_AARCH64 1

namespace moe::cpu {

extern const GemvFamily gemv_neon;
extern const GemvFamily gemv_i8mm;

}  // namespace moe::cpu

#endif
