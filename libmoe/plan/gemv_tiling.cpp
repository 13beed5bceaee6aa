// Launch configurations of the gemv kernels: gemv_tiling.hpp.
#include "libmoe/plan/gemv_tiling.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "libmoe/base/reciprocal.hpp"
#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/kernel_types.hpp"

namespace moe {
namespace {

using cuda::CodebookMode;
using cuda::DeviceFacts;
using cuda::GemvTiling;
using cuda::max_gemv_slots;
using cuda::max_split_k_groups;
using cuda::tables_bytes;

constexpr int32_t max_stages = 32;  // a lane of the warp for each

constexpr int32_t divide_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}
constexpr int32_t align_to(int32_t bytes, int32_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}
constexpr int32_t align_128(int32_t bytes) {
    return align_to(bytes, 128);
}

int32_t min_split_blocks_of(PackedType type) {
    return has_superblock(type) ? 4 : 1;
}
// The records of a grid come on top (staged_grid_bytes).
int32_t min_split_bytes_of(PackedType type) {
    return min_split_blocks_of(type) * block_bytes(type, 4);
}
int32_t splits_of(const PackedMatrix& matrix) {
    return matrix.k / (64 * min_split_blocks_of(matrix.type));
}

// The bits by which addresses of k_blocks differ in their lines; k_blocks begin at multiples of
// `every` splits of a tile. Kernels find where a tile begins from the number of its work item,
// which counts on from slot to slot, so that the tiles of a slot must end with a line.
uint8_t line_mask_of(const PackedMatrix& matrix, int32_t every, const GemvTuning& tuning) {
    constexpr uint32_t line = 128, vector = 16;
    if (!tuning.copies_in_lines || !cuda::gemv_copies_in_lines(matrix.type)) return 0;
    const auto tile = static_cast<uint32_t>(matrix.tile_stride());
    if (tile * static_cast<uint32_t>(matrix.n_tiles) % line != 0) return 0;
    auto begins = static_cast<uint32_t>(every * min_split_bytes_of(matrix.type));
    if (is_grid(matrix.type)) {
        const auto front = static_cast<uint32_t>(grid_front_bytes(matrix.type));
        const int32_t unit = grid_unit_blocks(matrix.type);
        begins = every % unit == 0 ? begins + static_cast<uint32_t>(every / unit) * front
                                   : begins | front;
    }
    const uint32_t bits = (tile | begins | line) & ~(vector - 1);
    const uint32_t power_of_two = bits & (0u - bits);  // the largest that divides all
    return static_cast<uint8_t>(line - power_of_two);
}

// Sizes the pipeline's stages for k_block_splits splits of codes and scales.
void lay_out_stage(GemvTiling& tiling, const PackedMatrix& matrix, int32_t every,
                   const GemvTuning& tuning) {
    const PackedType type = matrix.type;
    tiling.line_mask = line_mask_of(matrix, every, tuning);
    const int32_t alignment = tiling.line_mask == 0 ? 16 : 128;
    const int32_t copied = is_grid(type) ? cuda::staged_grid_bytes(type, tiling.k_block_splits)
                                         : tiling.k_block_splits * min_split_bytes_of(type);
    tiling.stage_bytes = align_to(
        align_to(copied + tiling.line_mask, 16) + cuda::staged_record_bytes(type), alignment);
}

bool has_whole_splits(const PackedMatrix& matrix) {
    return matrix.k > 0 && matrix.k % (64 * min_split_blocks_of(matrix.type)) == 0;
}

// The mode that a type has where the codebooks of all experts are one, or each is its own.
CodebookMode mode_of(PackedType type, bool shares_codebook) {
    if (!has_codebook(type)) return CodebookMode::none;
    if (!shares_codebook) return CodebookMode::per_expert;
    return code_bits(type) <= 3 ? CodebookMode::shared_bytes : CodebookMode::shared_lanes;
}

// Hands out shared memory in order.
struct SmemPlan {
    int32_t used = 0;

    int32_t take(int32_t bytes) {
        const int32_t at = used;
        used = align_128(used + bytes);
        return at;
    }
};

bool is_large(const GemvProblem& problem, const GemvTuning& tuning) {
    int64_t bytes = 0;
    for (const PackedMatrix* matrix : {&problem.gate_up, &problem.up, &problem.down})
        if (matrix->type != PackedType::none) bytes += matrix->tile_stride() * matrix->n_tiles;
    const bool shares = has_codebook(problem.gate_up.type) && problem.gate_up_shares_codebook;
    const int64_t large =
        problem.n_tokens > 1 && shares ? tuning.large_bytes_shared_codebook : tuning.large_bytes;
    return problem.n_tokens * problem.n_slots * bytes >= large;
}

bool is_pair(const GemvProblem& problem) {
    return problem.up.type != PackedType::none;
}

// The problem as the kernels of gate and up have it.
GemvProblem problem_of_gate_up(GemvProblem problem) {
    if (!problem.gathers_x) return problem;
    problem.n_tokens *= problem.n_slots;
    problem.n_slots = 1;
    return problem;
}

// The problem with up in the place of the gate.
GemvProblem problem_of_up(GemvProblem problem) {
    std::swap(problem.gate_up, problem.up);
    return problem;
}

// Operands of x or h have 16 bits each, or twice 16.
int32_t parts_of(bool is_f16, PackedType type) {
    return is_f16 && cuda::gemv_has_bf16_operands(type) ? 2 : 1;
}

// Dequantizing narrow codes takes as long as reading them, so more warps pay for their
// accumulators.
SmemLimits gate_up_smem_limits(const GemvProblem& problem, const GemvTuning& tuning) {
    if (!is_large(problem, tuning)) {
        SmemLimits limits = tuning.gate_up_small;
        if (is_pair(problem) && tuning.shared_sm_bytes > 0) {
            limits.min_bytes /= 2;
            limits.max_bytes /= 2;
        }
        return limits;
    }
    SmemLimits limits = tuning.gate_up_large;
    if (code_bits(problem.gate_up.type) <= 5) limits.max_warps = tuning.narrow_warps;
    return limits;
}

// The pipeline gets the rest of the budget, for at most n_items stages.
void lay_out_pipeline(GemvTiling& tiling, SmemPlan plan, int32_t n_items,
                      const SmemLimits& limits) {
    const int32_t max_n = std::clamp(n_items, 1, max_stages);
    tiling.shared.barriers = plan.take(8 * tiling.n_warps * max_n);
    tiling.n_stages = std::clamp(
        (limits.max_bytes - plan.used) / (tiling.n_warps * tiling.stage_bytes), 1, max_n);
    tiling.shared.pipeline = plan.take(tiling.n_warps * tiling.n_stages * tiling.stage_bytes);
    tiling.shared.total = std::max(plan.used, limits.min_bytes);
}

// The kernels divide by reciprocals, which is exact below 2^31.
bool can_divide(const PackedMatrix& matrix, int32_t n_slots) {
    return int64_t{n_slots} * matrix.n_tiles * matrix.n_tiles < INT64_C(1) << 31;
}

// SMs for each token.
int32_t sms_of_token(const DeviceFacts& device, const GemvProblem& problem) {
    return std::max(1, device.n_sms / problem.n_tokens);
}

// Work items of the split-k group that has most of them.
int32_t work_items_of_group(const GemvProblem& problem, const GemvTiling& tiling) {
    return divide_up(problem.n_slots * problem.gate_up.n_tiles, tiling.n_blocks * tiling.n_groups);
}

void divide_warps(GemvTiling& tiling, int32_t n_warps, int32_t n_groups) {
    tiling.n_warps = n_warps;
    tiling.n_groups = n_groups;
    tiling.group_warps = n_warps / n_groups;
    tiling.warp_reciprocal = reciprocal_of(n_warps);
    tiling.group_reciprocal = reciprocal_of(tiling.group_warps);
    tiling.block_reciprocal = reciprocal_of(tiling.n_blocks * n_groups);
}

// Relative time of a warp: its pairs of 64-k blocks, and a constant for each work item. More groups
// give a warp longer parts of k, so it pays the constant less often, but divide the items less
// evenly.
double cost_of_split_k(const GemvProblem& problem, const GemvTiling& tiling) {
    constexpr double of_work_item = 0.55;
    const int32_t min_split = min_split_blocks_of(problem.gate_up.type);
    const int32_t blocks = min_split * divide_up(splits_of(problem.gate_up), tiling.group_warps);
    return work_items_of_group(problem, tiling) * (divide_up(blocks, 2) + of_work_item);
}

// In a large call: the number of groups whose busiest one has the least to do.
void choose_split_k_groups(const GemvProblem& problem, GemvTiling& tiling) {
    GemvTiling best = tiling;
    for (int32_t n_groups = 2; n_groups <= max_split_k_groups; n_groups *= 2) {
        if (tiling.n_warps % n_groups != 0) break;
        GemvTiling other = tiling;
        divide_warps(other, tiling.n_warps, n_groups);
        if (cost_of_split_k(problem, other) < cost_of_split_k(problem, best)) best = other;
    }
    tiling = best;
}

// gate_up with stages of at most k_block_bytes.
GemvTiling lay_out_gate_up(const GemvProblem& problem, GemvTiling tiling, int32_t k_block_bytes,
                           const GemvTuning& tuning, const SmemLimits& limits) {
    const PackedMatrix& matrix = problem.gate_up;
    const int32_t min_split_bytes = min_split_bytes_of(matrix.type);
    const int32_t part = divide_up(splits_of(matrix), tiling.group_warps);
    const int32_t fits = std::max(1, k_block_bytes / min_split_bytes);
    tiling.k_block_splits = divide_up(part, divide_up(part, fits));
    if (tiling.k_block_splits < std::min(part, fits))
        tiling.k_block_splits += tiling.k_block_splits & 1;
    tiling.n_k_blocks = divide_up(part, tiling.k_block_splits);
    tiling.k_block_reciprocal = reciprocal_of(tiling.n_k_blocks);
    const bool slices_are_alike = splits_of(matrix) % tiling.group_warps == 0;
    lay_out_stage(tiling, matrix, slices_are_alike ? std::gcd(part, tiling.k_block_splits) : 1,
                  tuning);

    const int32_t work_items = work_items_of_group(problem, tiling);
    const int32_t group = 2 * tiling.group_warps;
    const int32_t slots =
        std::min(problem.n_slots, (work_items * tiling.n_groups - 1) / matrix.n_tiles + 2);
    tiling.accum_bytes_of_group =
        64 * tiling.group_warps * (work_items > group ? 2 * group : work_items);
    SmemPlan plan;
    tiling.shared.zeros = plan.take(128);
    const int32_t parts = parts_of(problem.has_f16_x, matrix.type);
    tiling.low_part = parts > 1 ? 2 * matrix.k : 0;
    tiling.shared.x = plan.take(2 * matrix.k * parts);
    tiling.shared.accum = plan.take(tiling.n_groups * tiling.accum_bytes_of_group);
    tiling.shared.slots = plan.take(4 * max_gemv_slots * tiling.n_warps);
    tiling.shared.codebooks =
        plan.take(tables_bytes(matrix.type, tiling.codebook_mode, slots, tuning.copies_tables));
    tiling.shared.terms = plan.take(12 * 32 * tiling.n_warps);
    tiling.shared.largest = plan.take(tiling.n_groups > 1 ? 4 * tiling.n_warps : 0);
    lay_out_pipeline(tiling, plan, work_items * tiling.n_k_blocks, limits);
    tiling.is_resident = tiling.n_k_blocks == 1 && tiling.n_stages >= work_items;
    return tiling;
}

}  // namespace

GemvTiling tile_gate_up(const DeviceFacts& device, const GemvProblem& of_call,
                        const GemvTuning& tuning) {
    const GemvProblem problem = problem_of_gate_up(of_call);
    const PackedMatrix& matrix = problem.gate_up;
    const SmemLimits limits = gate_up_smem_limits(problem, tuning);
    GemvTiling tiling;
    tiling.codebook_mode = mode_of(matrix.type, problem.gate_up_shares_codebook);
    tiling.n_blocks = std::min(sms_of_token(device, problem), problem.n_slots * matrix.n_tiles);
    tiling.tile_reciprocal = reciprocal_of(matrix.n_tiles);
    divide_warps(tiling, std::min(limits.max_warps, splits_of(matrix)), 1);
    if (is_large(problem, tuning)) choose_split_k_groups(problem, tiling);
    int32_t bytes = limits.k_block_bytes;
    GemvTiling whole = lay_out_gate_up(problem, tiling, bytes, tuning, limits);
    while (whole.shared.total > device.shared_bytes && tiling.n_warps > 4) {
        divide_warps(tiling, tiling.n_warps / 2, 1);
        whole = lay_out_gate_up(problem, tiling, bytes, tuning, limits);
    }
    const bool single = problem.n_slots * matrix.n_tiles <= tiling.n_blocks;
    while (whole.n_stages == 1 && whole.k_block_splits > 1 && !(single && whole.n_k_blocks == 1))
        whole = lay_out_gate_up(problem, tiling, bytes /= 2, tuning, limits);
    return whole;
}

GemvTiling tile_up(const DeviceFacts& device, const GemvProblem& problem,
                   const GemvTuning& tuning) {
    return tile_gate_up(device, problem_of_up(problem), tuning);
}

namespace {

int32_t tiles_of_block(const GemvProblem& problem, const GemvTiling& tiling) {
    return divide_up(problem.down.n_tiles, tiling.n_blocks / tiling.cluster);
}

// down with a given division of its tiles, and its shared memory laid out.
GemvTiling lay_out_down(const GemvProblem& problem, GemvTiling tiling, const GemvTuning& tuning,
                        const SmemLimits& limits) {
    const PackedMatrix& matrix = problem.down;
    const int32_t slice_k = 64 * min_split_blocks_of(matrix.type) * tiling.k_block_splits;
    const int32_t n_slices = divide_up(problem.n_slots * tiling.n_k_blocks, tiling.cluster);
    const int32_t parts = parts_of(problem.has_f16_h, matrix.type);
    const int32_t fits = std::max(1, tuning.h_bytes / (2 * slice_k * parts));
    tiling.pass_slices =
        n_slices <= fits ? n_slices : std::max(1, fits / tiling.n_warps) * tiling.n_warps;
    tiling.k_block_reciprocal = reciprocal_of(tiling.n_k_blocks);
    lay_out_stage(tiling, matrix, tiling.k_block_splits, tuning);
    const int32_t n_tiles = tiles_of_block(problem, tiling);
    SmemPlan plan;
    tiling.shared.zeros = plan.take(128);
    const int32_t operand_bytes = 2 * slice_k * std::min(tiling.pass_slices, n_slices);
    tiling.low_part = parts > 1 ? operand_bytes : 0;
    tiling.shared.x = plan.take(operand_bytes * parts);
    tiling.shared.accum = plan.take(64 * tiling.n_warps * n_tiles);
    tiling.shared.slots = plan.take(4 * max_gemv_slots * tiling.n_warps);
    tiling.shared.factors = plan.take(8 * max_gemv_slots);
    tiling.shared.biases = plan.take(64 * n_tiles);
    tiling.shared.partial = plan.take(tiling.cluster > 1 ? 64 * n_tiles : 0);
    tiling.shared.codebooks = plan.take(
        tables_bytes(matrix.type, tiling.codebook_mode, problem.n_slots, tuning.copies_tables));
    tiling.shared.slice_scales = plan.take(4 * std::min(tiling.pass_slices, n_slices));
    tiling.shared.gate = plan.take(problem.has_shared_gate ? 4 * tiling.n_warps : 0);
    lay_out_pipeline(tiling, plan, n_tiles * divide_up(n_slices, tiling.n_warps), limits);
    return tiling;
}

// Relative time of a tile: the k_blocks of a warp one after another. About twelve warps run at full
// speed; a pipeline with one stage waits while the warp computes.
double cost_of_tile(const GemvProblem& problem, const GemvTiling& tiling) {
    const int32_t n_slices = divide_up(problem.n_slots * tiling.n_k_blocks, tiling.cluster);
    const int32_t rounds = divide_up(n_slices, tiling.n_warps);
    const double crowd = std::max(1.0, tiling.n_warps / 12.0);
    const bool stalls = tiling.n_stages == 1 && rounds * tiles_of_block(problem, tiling) > 1;
    return rounds * (tiling.k_block_splits + 1.0) * crowd * (stalls ? 1.5 : 1.0);
}

// Thread blocks alone or in clusters of two, whichever leaves fewer of them idle.
void choose_cluster(const DeviceFacts& device, const GemvProblem& problem, const GemvTuning& tuning,
                    GemvTiling& tiling) {
    const int32_t tiles = problem.down.n_tiles;
    const int32_t n_sms = sms_of_token(device, problem);
    const int32_t pairs = std::clamp(n_sms / 2, 1, tiles);
    const int32_t alone = std::min(n_sms, tiles);
    const double time_alone = divide_up(tiles, alone);
    const double time_paired = divide_up(tiles, pairs) * 0.5;
    const bool paired = tuning.has_clusters && time_paired * 1.04 < time_alone;
    tiling.cluster = paired ? 2 : 1;
    tiling.n_blocks = paired ? 2 * pairs : alone;
    tiling.block_reciprocal = reciprocal_of(tiling.n_blocks / tiling.cluster);
}

// In a small call down gets whatever a block of gate_up leaves of an SM.
SmemLimits down_smem_limits(const DeviceFacts& device, const GemvProblem& problem,
                            const GemvTuning& tuning) {
    if (is_large(problem, tuning)) return tuning.down_large;
    SmemLimits limits = tuning.down_small;
    if (tuning.shared_sm_bytes == 0) return limits;
    // Where gate and up are a pair, down begins beside up once the gate's block has left.
    const int32_t of_gate_up = is_pair(problem)
                                   ? tile_up(device, problem, tuning).shared.total
                                   : tile_gate_up(device, problem, tuning).shared.total;
    limits.max_bytes = std::max(limits.max_bytes, tuning.shared_sm_bytes - of_gate_up);
    return limits;
}

}  // namespace

GemvTiling tile_down(const DeviceFacts& device, const GemvProblem& problem,
                     const GemvTuning& tuning) {
    const int32_t splits = splits_of(problem.down);
    const int32_t min_split_bytes = min_split_bytes_of(problem.down.type);
    const SmemLimits limits = down_smem_limits(device, problem, tuning);
    GemvTiling best;
    double least = 0;
    for (int32_t n_k_blocks = 1; n_k_blocks <= splits; ++n_k_blocks) {
        GemvTiling tiling;
        tiling.codebook_mode = mode_of(problem.down.type, problem.down_shares_codebook);
        tiling.k_block_splits = divide_up(splits, n_k_blocks);
        tiling.n_k_blocks = divide_up(splits, tiling.k_block_splits);
        if (tiling.n_k_blocks != n_k_blocks) continue;
        if (tiling.k_block_splits > 1 &&
            tiling.k_block_splits * min_split_bytes > limits.k_block_bytes)
            continue;
        choose_cluster(device, problem, tuning, tiling);
        const int32_t n_slices = divide_up(problem.n_slots * n_k_blocks, tiling.cluster);
        for (int32_t warps = std::min(4, n_slices); warps <= std::min(limits.max_warps, n_slices);
             ++warps) {
            tiling.n_warps = warps;
            const GemvTiling whole = lay_out_down(problem, tiling, tuning, limits);
            // Worse than every tiling that fits, but there if none does.
            const bool fits = whole.shared.total <= device.shared_bytes;
            // Beyond its limit down waits until gate and up leave the SM. By estimate.
            const double wait = whole.shared.total <= limits.max_bytes ? 1.0 : 1.5;
            const double cost = cost_of_tile(problem, whole) * wait + (fits ? 0.0 : 1e9);
            if (least > 0 && cost >= least) continue;
            least = cost;
            best = whole;
        }
    }
    return best;
}

bool fits_shared_memory(const DeviceFacts& device, GemvProblem problem, const GemvTuning& tuning) {
    for (const bool gate_up_shares : {false, true})
        for (const bool down_shares : {false, true}) {
            problem.gate_up_shares_codebook = gate_up_shares;
            problem.down_shares_codebook = down_shares;
            int32_t most = std::max(tile_gate_up(device, problem, tuning).shared.total,
                                    tile_down(device, problem, tuning).shared.total);
            if (is_pair(problem))
                most = std::max(most, tile_up(device, problem, tuning).shared.total);
            if (most > device.shared_bytes) return false;
        }
    return true;
}

int32_t max_gemv_tokens(const DeviceFacts& device, GemvProblem problem, const GemvTuning& tuning) {
    if (!cuda::gemv_supports(problem.gate_up.type) || !cuda::gemv_supports(problem.down.type))
        return 0;
    if (!has_whole_splits(problem.gate_up) || !has_whole_splits(problem.down)) return 0;
    if (!can_divide(problem.gate_up, problem.n_slots)) return 0;
    if (is_pair(problem) &&
        (!cuda::gemv_supports(problem.up.type) || !has_whole_splits(problem.up) ||
         !can_divide(problem.up, problem.n_slots)))
        return 0;
    int32_t n = 0;
    for (problem.n_tokens = 1; problem.n_tokens <= cuda::gemv_token_limit; ++problem.n_tokens) {
        if (!fits_shared_memory(device, problem, tuning)) break;
        n = problem.n_tokens;
    }
    return n;
}

int32_t max_row_gemv_tokens(const DeviceFacts& device, GemvProblem problem,
                            const GemvTuning& tuning, int32_t most_tokens) {
    const int32_t rows_of_token = std::exchange(problem.n_slots, 1);
    for (int32_t n = 1; n <= most_tokens; ++n) {
        problem.n_tokens = n * rows_of_token;
        if (problem.n_tokens * tuning.least_sms_of_row > device.n_sms) return n - 1;
        if (!fits_shared_memory(device, problem, tuning)) return n - 1;
    }
    return most_tokens;
}

}  // namespace moe
