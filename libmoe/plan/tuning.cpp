// The table: a row that was measured, and rows that were derived from it and never run.
#include "libmoe/plan/tuning.hpp"

#include <initializer_list>

namespace moe {
namespace {

using cuda::Architecture;

// Bytes of shared memory on sm_90: of an SM, and what the system takes of it for every block.
constexpr int32_t sm90_smem = 233472;
constexpr int32_t smem_per_block = 1024;
constexpr int32_t sm90_max_smem = sm90_smem - smem_per_block;

constexpr GroupedTuning sm90_grouped{4096,
                                     int64_t{1} << 22,
                                     {.max_portable_narrow = 26,
                                      .max_portable_middle = 48,
                                      .least_middle_items_of_sm = 6,
                                      .max_all_narrow = 10,
                                      .min_all_wide = 256,
                                      .min_middle = 42,
                                      .max_middle = 90,
                                      .max_fp8_narrow = 40}};
static_assert(sm90_grouped.tiles.max_middle > 2 * sm90_grouped.tiles.min_middle);
constexpr RouterTuning usual_router{32, 4, 64};

constexpr GemvTuning sm90_gemv{32768,
                               true,
                               true,
                               true,
                               sm90_smem - 2 * smem_per_block,
                               int64_t{64} << 20,
                               int64_t{26} << 20,
                               16,
                               int64_t{16} << 20,
                               8,
                               {8, 4608, 115840, 132224},
                               {12, 4608, 58368, 99200},
                               {8, 9216, 116736, sm90_max_smem},
                               {16, 4608, 116736, sm90_max_smem}};

// One thread block per SM and no clusters, whatever the number of bytes.
constexpr GemvTuning one_block_per_sm{32768,
                                      false,
                                      false,
                                      false,
                                      0,
                                      int64_t{64} << 20,
                                      int64_t{26} << 20,
                                      16,
                                      int64_t{16} << 20,
                                      8,
                                      {8, 4608, 0, 0},
                                      {12, 4608, 0, 0},
                                      {8, 9216, 0, 0},
                                      {16, 4608, 0, 0}};

constexpr Tuning table[] = {
    {Architecture::sm80, "not run", one_block_per_sm, sm90_grouped, usual_router},
    {Architecture::sm86, "not run", one_block_per_sm, sm90_grouped, usual_router},
    {Architecture::sm89, "not run", one_block_per_sm, sm90_grouped, usual_router},
    {Architecture::sm90, "NVIDIA H200", sm90_gemv, sm90_grouped, usual_router},
    {Architecture::sm100, "not run", one_block_per_sm, sm90_grouped, usual_router},
    {Architecture::sm120, "not run", one_block_per_sm, sm90_grouped, usual_router},
};

// A block takes more than half of what an SM can give to one: no architecture has twice as much.
void derive(SmemLimits& limits, int32_t max_smem) {
    if (limits.max_bytes > 0) return;
    limits.min_bytes = max_smem / 2 + smem_per_block;
    limits.max_bytes = max_smem;
}

}  // namespace

Tuning tuning_of(const cuda::DeviceFacts& device) {
    Tuning tuning = table[0];
    for (const Tuning& row : table)
        if (row.architecture == device.architecture()) tuning = row;
    GemvTuning& gemv = tuning.gemv;
    for (SmemLimits* limits :
         {&gemv.gate_up_small, &gemv.down_small, &gemv.gate_up_large, &gemv.down_large})
        derive(*limits, device.shared_bytes);
    return tuning;
}

}  // namespace moe
