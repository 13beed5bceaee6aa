// How the one-token kernels tiling a call, from the host's numbers alone:
// 1. gate and up: the warps of a warp_group part k of a tile, all of a block's where there are few
// bytes;
//    a k_block is at most k_block_bytes, stages fill shared memory
// 2. down: items of slots and warps such that no warp waits for others long; clusters of two
//    blocks where tiles do not divide well by blocks
// 3. tokens side by side: each has its limits of the multiprocessors
#include <algorithm>
#include <cstdint>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/gemv/gemv_params.hpp"

namespace moe::cuda {
namespace {

constexpr int32_t most_stages = 32;
constexpr int32_t max_gemv_batch = 16;  // tokens

constexpr int32_t divide_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}
constexpr int32_t align_128(int32_t bytes) {
    return (bytes + 127) / 128 * 128;
}

int32_t min_split_blocks_of(PackedType type) {
    return has_superblock(type) ? 4 : 1;
}
int32_t min_split_bytes_of(PackedType type) {
    return min_split_blocks_of(type) * block_bytes(type, 4);
}
int32_t splits_of(const PackedMatrix& matrix) {
    return matrix.k / (64 * min_split_blocks_of(matrix.type));
}

bool has_whole_splits(const PackedMatrix& matrix) {
    return matrix.k > 0 && matrix.k % (64 * min_split_blocks_of(matrix.type)) == 0;
}

// Hands out shared memory in order.
struct SharedPlan {
    int32_t used = 0;

    int32_t take(int32_t bytes) {
        const int32_t at = used;
        used = align_128(used + bytes);
        return at;
    }
};

bool is_large(const GemvArgs& call, const GemvTuning& tuning) {
    const int64_t bytes = call.gate_up.tile_stride() * call.gate_up.n_tiles +
                          call.down.tile_stride() * call.down.n_tiles;
    const CodebookMode codebook_mode = codebook_mode_of(call.gate_up);
    const bool is_one =
        codebook_mode == CodebookMode::shared_lanes || codebook_mode == CodebookMode::shared_bytes;
    const int64_t many =
        call.n_tokens > 1 && is_one ? tuning.large_bytes_shared_codebook : tuning.large_bytes;
    return call.n_tokens * call.n_slots * bytes >= many;
}

// Decoding of narrow codes takes as long as their bytes, so that more warps are worth their accum.
SmemLimits gate_up_smem_limits(const GemvArgs& call, const GemvTuning& tuning) {
    if (!is_large(call, tuning)) return tuning.gate_up_small;
    SmemLimits limits = tuning.gate_up_large;
    if (code_bits(call.gate_up.type) <= 5) limits.most_warps = tuning.narrow_warps;
    return limits;
}

// The pipeline takes what is left of the limits, for at most n_items stages.
void lay_out_pipeline(GemvTiling& tiling, SharedPlan plan, int32_t stage_bytes, int32_t n_items,
                      const SmemLimits& limits) {
    const int32_t most = std::clamp(n_items, 1, most_stages);
    tiling.shared.barriers = plan.take(8 * tiling.n_warps * most);
    tiling.n_stages =
        std::clamp((limits.most - plan.used) / (tiling.n_warps * stage_bytes), 1, most);
    tiling.shared.pipeline = plan.take(tiling.n_warps * tiling.n_stages * stage_bytes);
    tiling.shared.total = std::max(plan.used, limits.least);
}

// Divisions by reciprocals hold below 2^31.
bool can_divide(const PackedMatrix& matrix, int32_t n_slots) {
    return int64_t{n_slots} * matrix.n_tiles * matrix.n_tiles < INT64_C(1) << 31;
}

// The multiprocessors of a token.
int32_t sms_of_token(const DeviceFacts& device, const GemvArgs& call) {
    return std::max(1, device.n_sms / call.n_tokens);
}

// Of the warp_group that has most.
int32_t work_items_of_group(const GemvArgs& call, const GemvTiling& tiling) {
    return divide_up(call.n_slots * call.gate_up.n_tiles, tiling.n_blocks * tiling.n_groups);
}

void divide_warps(GemvTiling& tiling, int32_t n_warps, int32_t n_groups) {
    tiling.n_warps = n_warps;
    tiling.n_groups = n_groups;
    tiling.group_warps = n_warps / n_groups;
    tiling.warp_reciprocal = reciprocal_of(n_warps);
    tiling.group_reciprocal = reciprocal_of(tiling.group_warps);
    tiling.block_reciprocal = reciprocal_of(tiling.n_blocks * n_groups);
}

// Time of a warp in arbitrary slices: its pairs of blocks of 64 k, and what each work_item costs
// besides, which larger parts of k make less of; but fewer work_items divide less evenly by more
// teams.
double cost_of_split_k(const GemvArgs& call, const GemvTiling& tiling) {
    constexpr double of_work_item = 0.55;
    const int32_t min_split = min_split_blocks_of(call.gate_up.type);
    const int32_t blocks = min_split * divide_up(splits_of(call.gate_up), tiling.group_warps);
    return work_items_of_group(call, tiling) * (divide_up(blocks, 2) + of_work_item);
}

// Of a call with many bytes: teams that leave the least to do for the busiest one.
void choose_split_k_groups(const GemvArgs& call, GemvTiling& tiling) {
    GemvTiling best = tiling;
    for (int32_t n_groups = 2; n_groups <= max_split_k_groups; n_groups *= 2) {
        if (tiling.n_warps % n_groups != 0) break;
        GemvTiling other = tiling;
        divide_warps(other, tiling.n_warps, n_groups);
        if (cost_of_split_k(call, other) < cost_of_split_k(call, best)) best = other;
    }
    tiling = best;
}

// Gate and up with items of at most k_block_bytes.
GemvTiling lay_out_gate_up(const GemvArgs& call, GemvTiling tiling, int32_t k_block_bytes,
                           const SmemLimits& limits) {
    const PackedMatrix& matrix = call.gate_up;
    const int32_t min_split_bytes = min_split_bytes_of(matrix.type);
    const int32_t part = divide_up(splits_of(matrix), tiling.group_warps);
    const int32_t fits = std::max(1, k_block_bytes / min_split_bytes);
    tiling.k_block_splits = divide_up(part, divide_up(part, fits));
    if (tiling.k_block_splits < std::min(part, fits))
        tiling.k_block_splits += tiling.k_block_splits & 1;
    tiling.n_k_blocks = divide_up(part, tiling.k_block_splits);
    tiling.k_block_reciprocal = reciprocal_of(tiling.n_k_blocks);

    const int32_t work_items = work_items_of_group(call, tiling);
    const int32_t group = 2 * tiling.group_warps;
    const int32_t slots =
        std::min(call.n_slots, (work_items * tiling.n_groups - 1) / matrix.n_tiles + 2);
    tiling.accum_bytes_of_group =
        64 * tiling.group_warps * (work_items > group ? 2 * group : work_items);
    SharedPlan plan;
    tiling.shared.zeros = plan.take(128);
    tiling.shared.x = plan.take(2 * matrix.k);
    tiling.shared.accum = plan.take(tiling.n_groups * tiling.accum_bytes_of_group);
    tiling.shared.slots = plan.take(4 * max_gemv_slots * tiling.n_warps);
    tiling.shared.codebooks = plan.take(tables_bytes(matrix.type, tiling.codebook_mode, slots));
    tiling.shared.terms = plan.take(12 * 32 * tiling.n_warps);
    tiling.shared.largest = plan.take(tiling.n_groups > 1 ? 4 * tiling.n_warps : 0);
    lay_out_pipeline(tiling, plan, tiling.k_block_splits * min_split_bytes,
                     work_items * tiling.n_k_blocks, limits);
    tiling.is_resident = tiling.n_k_blocks == 1 && tiling.n_stages >= work_items;
    return tiling;
}

}  // namespace

GemvTuning tuning_of(const DeviceFacts& device) {
    GemvTuning tuning;
    if (device.is_hopper()) return tuning;
    tuning.clusters = false;
    // More than half of what an SM can have: no architecture gives one block less than that.
    const int32_t most = device.shared_bytes;
    const int32_t least = most / 2 + shared_of_block;
    for (SmemLimits* limits :
         {&tuning.gate_up_small, &tuning.down_small, &tuning.gate_up_large, &tuning.down_large}) {
        limits->least = least;
        limits->most = most;
    }
    return tuning;
}

GemvTiling tile_gate_up(const DeviceFacts& device, const GemvArgs& call, const GemvTuning& tuning) {
    const PackedMatrix& matrix = call.gate_up;
    const SmemLimits limits = gate_up_smem_limits(call, tuning);
    GemvTiling tiling;
    tiling.codebook_mode = codebook_mode_of(matrix);
    tiling.n_blocks = std::min(sms_of_token(device, call), call.n_slots * matrix.n_tiles);
    tiling.tile_reciprocal = reciprocal_of(matrix.n_tiles);
    divide_warps(tiling, std::min(limits.most_warps, splits_of(matrix)), 1);
    if (is_large(call, tuning)) choose_split_k_groups(call, tiling);
    int32_t bytes = limits.k_block_bytes;
    GemvTiling whole = lay_out_gate_up(call, tiling, bytes, limits);
    while (whole.shared.total > device.shared_bytes && tiling.n_warps > 4) {
        divide_warps(tiling, tiling.n_warps / 2, 1);
        whole = lay_out_gate_up(call, tiling, bytes, limits);
    }
    const bool single = call.n_slots * matrix.n_tiles <= tiling.n_blocks;
    while (whole.n_stages == 1 && whole.k_block_splits > 1 && !(single && whole.n_k_blocks == 1))
        whole = lay_out_gate_up(call, tiling, bytes /= 2, limits);
    return whole;
}

namespace {

int32_t tiles_of_block(const GemvArgs& call, const GemvTiling& tiling) {
    return divide_up(call.down.n_tiles, tiling.n_blocks / tiling.cluster);
}

// A lookup to tiling down's tiles, with shared memory laid out.
GemvTiling lay_out_down(const GemvArgs& call, GemvTiling tiling, const GemvTuning& tuning,
                        const SmemLimits& limits) {
    const PackedMatrix& matrix = call.down;
    const int32_t slice_k = 64 * min_split_blocks_of(matrix.type) * tiling.k_block_splits;
    const int32_t n_slices = divide_up(call.n_slots * tiling.n_k_blocks, tiling.cluster);
    const int32_t fits = std::max(1, tuning.h_bytes / (2 * slice_k));
    tiling.pass_slices =
        n_slices <= fits ? n_slices : std::max(1, fits / tiling.n_warps) * tiling.n_warps;
    tiling.k_block_reciprocal = reciprocal_of(tiling.n_k_blocks);
    const int32_t n_tiles = tiles_of_block(call, tiling);
    SharedPlan plan;
    tiling.shared.zeros = plan.take(128);
    tiling.shared.x = plan.take(2 * slice_k * std::min(tiling.pass_slices, n_slices));
    tiling.shared.accum = plan.take(64 * tiling.n_warps * n_tiles);
    tiling.shared.slots = plan.take(4 * max_gemv_slots * tiling.n_warps);
    tiling.shared.factors = plan.take(8 * max_gemv_slots);
    tiling.shared.biases = plan.take(64 * n_tiles);
    tiling.shared.partial = plan.take(tiling.cluster > 1 ? 64 * n_tiles : 0);
    tiling.shared.codebooks =
        plan.take(tables_bytes(matrix.type, tiling.codebook_mode, call.n_slots));
    tiling.shared.slice_scales = plan.take(4 * std::min(tiling.pass_slices, n_slices));
    tiling.shared.gate = plan.take(call.shared.gate ? 4 * tiling.n_warps : 0);
    lay_out_pipeline(tiling, plan, tiling.k_block_splits * min_split_bytes_of(matrix.type),
                     n_tiles * divide_up(n_slices, tiling.n_warps), limits);
    return tiling;
}

// Time of a tile in arbitrary slices: a warp's items one after another, of which about twelve warps
// can work at full speed; a pipeline of one stage stands still while its k_block is multiplied.
double cost_of_tile(const GemvArgs& call, const GemvTiling& tiling) {
    const int32_t n_slices = divide_up(call.n_slots * tiling.n_k_blocks, tiling.cluster);
    const int32_t rounds = divide_up(n_slices, tiling.n_warps);
    const double crowd = std::max(1.0, tiling.n_warps / 12.0);
    const bool stalls = tiling.n_stages == 1 && rounds * tiles_of_block(call, tiling) > 1;
    return rounds * (tiling.k_block_splits + 1.0) * crowd * (stalls ? 1.5 : 1.0);
}

// Blocks of the grid, alone or in pairs, whichever leaves fewer of them waiting.
void choose_cluster(const DeviceFacts& device, const GemvArgs& call, const GemvTuning& tuning,
                    GemvTiling& tiling) {
    const int32_t tiles = call.down.n_tiles;
    const int32_t n_sms = sms_of_token(device, call);
    const int32_t pairs = std::clamp(n_sms / 2, 1, tiles);
    const int32_t alone = std::min(n_sms, tiles);
    const double time_alone = divide_up(tiles, alone);
    const double time_paired = divide_up(tiles, pairs) * 0.5;
    const bool paired = tuning.clusters && time_paired * 1.04 < time_alone;
    tiling.cluster = paired ? 2 : 1;
    tiling.n_blocks = paired ? 2 * pairs : alone;
    tiling.block_reciprocal = reciprocal_of(tiling.n_blocks / tiling.cluster);
}

// Of few weights, whatever a block of gate and up leaves of a multiprocessor.
SmemLimits down_smem_limits(const DeviceFacts& device, const GemvArgs& call,
                            const GemvTuning& tuning) {
    if (is_large(call, tuning)) return tuning.down_large;
    SmemLimits limits = tuning.down_small;
    if (!device.is_hopper()) return limits;
    const int32_t taken = tile_gate_up(device, call, tuning).shared.total;
    limits.most = std::max(limits.most, shared_of_sm - 2 * shared_of_block - taken);
    return limits;
}

}  // namespace

GemvTiling tile_down(const DeviceFacts& device, const GemvArgs& call, const GemvTuning& tuning) {
    const int32_t splits = splits_of(call.down);
    const int32_t min_split_bytes = min_split_bytes_of(call.down.type);
    const SmemLimits limits = down_smem_limits(device, call, tuning);
    GemvTiling best;
    double least = 0;
    for (int32_t n_k_blocks = 1; n_k_blocks <= splits; ++n_k_blocks) {
        GemvTiling tiling;
        tiling.codebook_mode = codebook_mode_of(call.down);
        tiling.k_block_splits = divide_up(splits, n_k_blocks);
        tiling.n_k_blocks = divide_up(splits, tiling.k_block_splits);
        if (tiling.n_k_blocks != n_k_blocks) continue;
        if (tiling.k_block_splits > 1 &&
            tiling.k_block_splits * min_split_bytes > limits.k_block_bytes)
            continue;
        choose_cluster(device, call, tuning, tiling);
        const int32_t n_slices = divide_up(call.n_slots * n_k_blocks, tiling.cluster);
        for (int32_t warps = std::min(4, n_slices); warps <= std::min(limits.most_warps, n_slices);
             ++warps) {
            tiling.n_warps = warps;
            const GemvTiling whole = lay_out_down(call, tiling, tuning, limits);
            const bool fits = whole.shared.total <= device.shared_bytes;
            // Beyond every other, but there if nothing fits.
            const double cost = cost_of_tile(call, whole) + (fits ? 0.0 : 1e9);
            if (least > 0 && cost >= least) continue;
            least = cost;
            best = whole;
        }
    }
    return best;
}

int32_t max_gemv_tokens(const DeviceFacts& device, const GemvShape& shape) {
    GemvArgs call{};
    call.gate_up = shape.gate_up;
    call.down = shape.down;
    call.n_slots = shape.n_slots;
    if (!gemv_supports(call.gate_up.type) || !gemv_supports(call.down.type)) return 0;
    if (!has_whole_splits(call.gate_up) || !has_whole_splits(call.down)) return 0;
    if (!can_divide(call.gate_up, call.n_slots)) return 0;
    // Whether the experts have one codebook that serves as one table shows when weights are there.
    const auto fits = [&](bool one_codebook) {
        const GemvTuning tuning = tuning_of(device);
        for (PackedMatrix* matrix : {&call.gate_up, &call.down}) {
            matrix->has_one_codebook = one_codebook;
            matrix->has_mirrored_codebook = one_codebook && has_sign_codes(matrix->type);
            matrix->byte_codebook.scale = one_codebook ? 1.0f : 0.0f;
        }
        return std::max(tile_gate_up(device, call, tuning).shared.total,
                        tile_down(device, call, tuning).shared.total) <= device.shared_bytes;
    };
    int32_t most = 0;
    for (call.n_tokens = 1; call.n_tokens <= max_gemv_batch; ++call.n_tokens) {
        if (!fits(false) || !fits(true)) break;
        most = call.n_tokens;
    }
    return most;
}

}  // namespace moe::cuda
