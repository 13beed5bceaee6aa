// How the one-token kernels cut a call, from the host's numbers alone:
// 1. gate and up: the warps of a team part k of a tile, all of a block's where there are few bytes;
//    a chunk is at most chunk_bytes, stages fill shared memory
// 2. down: chunks of slots and warps such that no warp waits for others long; clusters of two
//    blocks where tiles do not divide well by blocks
// 3. tokens side by side: each has its share of the multiprocessors
#include <algorithm>
#include <cstdint>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/experts/one_token_call.hpp"

namespace moe::cuda {
namespace {

constexpr int32_t most_stages = 32;
constexpr int32_t most_side_by_side = 16;  // tokens

constexpr int32_t divide_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}
constexpr int32_t align_128(int32_t bytes) {
    return (bytes + 127) / 128 * 128;
}

int32_t blocks_of_grain(PackedType type) {
    return type == PackedType::q4_k ? 4 : 1;
}
int32_t bytes_of_grain(PackedType type) {
    return blocks_of_grain(type) * block_bytes(type, 4);
}
int32_t grains_of(const PackedMatrix& matrix) {
    return matrix.k / (64 * blocks_of_grain(matrix.type));
}

bool has_whole_grains(const PackedMatrix& matrix) {
    return matrix.k > 0 && matrix.k % (64 * blocks_of_grain(matrix.type)) == 0;
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

bool has_many_bytes(const OneToken& call, const OneTokenTuning& tuning) {
    const int64_t bytes = call.gate_up.tile_stride() * call.gate_up.n_tiles +
                          call.down.tile_stride() * call.down.n_tiles;
    const Book book = book_of(call.gate_up);
    const bool is_one = book == Book::lanes || book == Book::bytes;
    const int64_t many =
        call.n_tokens > 1 && is_one ? tuning.many_bytes_of_one_book : tuning.many_bytes;
    return call.n_tokens * call.n_slots * bytes >= many;
}

// Decoding of narrow codes takes as long as their bytes, so that more warps are worth their sums.
OneTokenShare share_of_gate_up(const OneToken& call, const OneTokenTuning& tuning) {
    if (!has_many_bytes(call, tuning)) return tuning.gate_up_few;
    OneTokenShare share = tuning.gate_up_many;
    if (code_bits(call.gate_up.type) <= 5) share.most_warps = tuning.narrow_warps;
    return share;
}

// The ring takes what is left of the share, for at most n_items stages.
void place_ring(OneTokenCut& cut, SharedPlan plan, int32_t stage_bytes, int32_t n_items,
                const OneTokenShare& share) {
    const int32_t most = std::clamp(n_items, 1, most_stages);
    cut.shared.barriers = plan.take(8 * cut.n_warps * most);
    cut.n_stages = std::clamp((share.most - plan.used) / (cut.n_warps * stage_bytes), 1, most);
    cut.shared.ring = plan.take(cut.n_warps * cut.n_stages * stage_bytes);
    cut.shared.total = std::max(plan.used, share.least);
}

// Divisions by reciprocals hold below 2^31.
bool can_divide(const PackedMatrix& matrix, int32_t n_slots) {
    return int64_t{n_slots} * matrix.n_tiles * matrix.n_tiles < INT64_C(1) << 31;
}

// The multiprocessors of a token.
int32_t share_of_token(const DeviceFacts& device, const OneToken& call) {
    return std::max(1, device.n_sms / call.n_tokens);
}

// Of the team that has most.
int32_t slabs_of_team(const OneToken& call, const OneTokenCut& cut) {
    return divide_up(call.n_slots * call.gate_up.n_tiles, cut.n_blocks * cut.n_teams);
}

void divide_warps(OneTokenCut& cut, int32_t n_warps, int32_t n_teams) {
    cut.n_warps = n_warps;
    cut.n_teams = n_teams;
    cut.team_warps = n_warps / n_teams;
    cut.warp_reciprocal = reciprocal_of(n_warps);
    cut.team_reciprocal = reciprocal_of(cut.team_warps);
    cut.block_reciprocal = reciprocal_of(cut.n_blocks * n_teams);
}

// Time of a warp in arbitrary units: its pairs of blocks of 64 k, and what each slab costs besides,
// which larger parts of k make less of; but fewer slabs divide less evenly by more teams.
double cost_of_teams(const OneToken& call, const OneTokenCut& cut) {
    constexpr double of_slab = 0.55;
    const int32_t grain = blocks_of_grain(call.gate_up.type);
    const int32_t blocks = grain * divide_up(grains_of(call.gate_up), cut.team_warps);
    return slabs_of_team(call, cut) * (divide_up(blocks, 2) + of_slab);
}

// Of a call with many bytes: teams that leave the least to do for the busiest one.
void choose_teams(const OneToken& call, OneTokenCut& cut) {
    OneTokenCut best = cut;
    for (int32_t n_teams = 2; n_teams <= most_one_token_teams; n_teams *= 2) {
        if (cut.n_warps % n_teams != 0) break;
        OneTokenCut other = cut;
        divide_warps(other, cut.n_warps, n_teams);
        if (cost_of_teams(call, other) < cost_of_teams(call, best)) best = other;
    }
    cut = best;
}

// Gate and up with chunks of at most chunk_bytes.
OneTokenCut lay_out_gate_up(const OneToken& call, OneTokenCut cut, int32_t chunk_bytes,
                            const OneTokenShare& share) {
    const PackedMatrix& matrix = call.gate_up;
    const int32_t grain_bytes = bytes_of_grain(matrix.type);
    const int32_t part = divide_up(grains_of(matrix), cut.team_warps);
    const int32_t fits = std::max(1, chunk_bytes / grain_bytes);
    cut.chunk_grains = divide_up(part, divide_up(part, fits));
    if (cut.chunk_grains < std::min(part, fits)) cut.chunk_grains += cut.chunk_grains & 1;
    cut.n_chunks = divide_up(part, cut.chunk_grains);
    cut.chunk_reciprocal = reciprocal_of(cut.n_chunks);

    const int32_t slabs = slabs_of_team(call, cut);
    const int32_t group = 2 * cut.team_warps;
    const int32_t slots = std::min(call.n_slots, (slabs * cut.n_teams - 1) / matrix.n_tiles + 2);
    cut.sums_of_team = 64 * cut.team_warps * (slabs > group ? 2 * group : slabs);
    SharedPlan plan;
    cut.shared.zeros = plan.take(128);
    cut.shared.x = plan.take(2 * matrix.k);
    cut.shared.sums = plan.take(cut.n_teams * cut.sums_of_team);
    cut.shared.slots = plan.take(4 * most_one_token_slots * cut.n_warps);
    cut.shared.codebooks = plan.take(tables_bytes(matrix.type, cut.book, slots));
    cut.shared.terms = plan.take(12 * 32 * cut.n_warps);
    cut.shared.largest = plan.take(cut.n_teams > 1 ? 4 * cut.n_warps : 0);
    place_ring(cut, plan, cut.chunk_grains * grain_bytes, slabs * cut.n_chunks, share);
    cut.is_resident = cut.n_chunks == 1 && cut.n_stages >= slabs;
    return cut;
}

}  // namespace

OneTokenTuning tuning_of(const DeviceFacts& device) {
    OneTokenTuning tuning;
    if (device.is_hopper()) return tuning;
    tuning.clusters = false;
    // More than half of what an SM can have: no architecture gives one block less than that.
    const int32_t most = device.shared_bytes;
    const int32_t least = most / 2 + shared_of_block;
    for (OneTokenShare* share :
         {&tuning.gate_up_few, &tuning.down_few, &tuning.gate_up_many, &tuning.down_many}) {
        share->least = least;
        share->most = most;
    }
    return tuning;
}

OneTokenCut cut_gate_up(const DeviceFacts& device, const OneToken& call,
                        const OneTokenTuning& tuning) {
    const PackedMatrix& matrix = call.gate_up;
    const OneTokenShare share = share_of_gate_up(call, tuning);
    OneTokenCut cut;
    cut.book = book_of(matrix);
    cut.n_blocks = std::min(share_of_token(device, call), call.n_slots * matrix.n_tiles);
    cut.tile_reciprocal = reciprocal_of(matrix.n_tiles);
    divide_warps(cut, std::min(share.most_warps, grains_of(matrix)), 1);
    if (has_many_bytes(call, tuning)) choose_teams(call, cut);
    int32_t bytes = share.chunk_bytes;
    OneTokenCut whole = lay_out_gate_up(call, cut, bytes, share);
    while (whole.shared.total > device.shared_bytes && cut.n_warps > 4) {
        divide_warps(cut, cut.n_warps / 2, 1);
        whole = lay_out_gate_up(call, cut, bytes, share);
    }
    const bool single = call.n_slots * matrix.n_tiles <= cut.n_blocks;
    while (whole.n_stages == 1 && whole.chunk_grains > 1 && !(single && whole.n_chunks == 1))
        whole = lay_out_gate_up(call, cut, bytes /= 2, share);
    return whole;
}

namespace {

int32_t tiles_of_block(const OneToken& call, const OneTokenCut& cut) {
    return divide_up(call.down.n_tiles, cut.n_blocks / cut.cluster);
}

// A way to cut down's tiles, with shared memory laid out.
OneTokenCut lay_out_down(const OneToken& call, OneTokenCut cut, const OneTokenTuning& tuning,
                         const OneTokenShare& share) {
    const PackedMatrix& matrix = call.down;
    const int32_t unit_k = 64 * blocks_of_grain(matrix.type) * cut.chunk_grains;
    const int32_t n_units = divide_up(call.n_slots * cut.n_chunks, cut.cluster);
    const int32_t fits = std::max(1, tuning.h_bytes / (2 * unit_k));
    cut.pass_units = n_units <= fits ? n_units : std::max(1, fits / cut.n_warps) * cut.n_warps;
    cut.chunk_reciprocal = reciprocal_of(cut.n_chunks);
    const int32_t n_tiles = tiles_of_block(call, cut);
    SharedPlan plan;
    cut.shared.zeros = plan.take(128);
    cut.shared.x = plan.take(2 * unit_k * std::min(cut.pass_units, n_units));
    cut.shared.sums = plan.take(64 * cut.n_warps * n_tiles);
    cut.shared.slots = plan.take(4 * most_one_token_slots * cut.n_warps);
    cut.shared.factors = plan.take(8 * most_one_token_slots);
    cut.shared.biases = plan.take(64 * n_tiles);
    cut.shared.partial = plan.take(cut.cluster > 1 ? 64 * n_tiles : 0);
    cut.shared.codebooks = plan.take(tables_bytes(matrix.type, cut.book, call.n_slots));
    cut.shared.unit_scales = plan.take(4 * std::min(cut.pass_units, n_units));
    cut.shared.gate = plan.take(call.shared.gate ? 4 * cut.n_warps : 0);
    place_ring(cut, plan, cut.chunk_grains * bytes_of_grain(matrix.type),
               n_tiles * divide_up(n_units, cut.n_warps), share);
    return cut;
}

// Time of a tile in arbitrary units: a warp's chunks one after another, of which about twelve warps
// can work at full speed; a ring of one stage stands still while its chunk is multiplied.
double cost_of_tile(const OneToken& call, const OneTokenCut& cut) {
    const int32_t n_units = divide_up(call.n_slots * cut.n_chunks, cut.cluster);
    const int32_t rounds = divide_up(n_units, cut.n_warps);
    const double crowd = std::max(1.0, cut.n_warps / 12.0);
    const bool stalls = cut.n_stages == 1 && rounds * tiles_of_block(call, cut) > 1;
    return rounds * (cut.chunk_grains + 1.0) * crowd * (stalls ? 1.5 : 1.0);
}

// Blocks of the grid, alone or in pairs, whichever leaves fewer of them waiting.
void choose_cluster(const DeviceFacts& device, const OneToken& call, const OneTokenTuning& tuning,
                    OneTokenCut& cut) {
    const int32_t tiles = call.down.n_tiles;
    const int32_t n_sms = share_of_token(device, call);
    const int32_t pairs = std::clamp(n_sms / 2, 1, tiles);
    const int32_t alone = std::min(n_sms, tiles);
    const double time_alone = divide_up(tiles, alone);
    const double time_paired = divide_up(tiles, pairs) * 0.5;
    const bool paired = tuning.clusters && time_paired * 1.04 < time_alone;
    cut.cluster = paired ? 2 : 1;
    cut.n_blocks = paired ? 2 * pairs : alone;
    cut.block_reciprocal = reciprocal_of(cut.n_blocks / cut.cluster);
}

// Of few weights, whatever a block of gate and up leaves of a multiprocessor.
OneTokenShare share_of_down(const DeviceFacts& device, const OneToken& call,
                            const OneTokenTuning& tuning) {
    if (has_many_bytes(call, tuning)) return tuning.down_many;
    OneTokenShare share = tuning.down_few;
    if (!device.is_hopper()) return share;
    const int32_t taken = cut_gate_up(device, call, tuning).shared.total;
    share.most = std::max(share.most, shared_of_sm - 2 * shared_of_block - taken);
    return share;
}

}  // namespace

OneTokenCut cut_down(const DeviceFacts& device, const OneToken& call,
                     const OneTokenTuning& tuning) {
    const int32_t grains = grains_of(call.down);
    const int32_t grain_bytes = bytes_of_grain(call.down.type);
    const OneTokenShare share = share_of_down(device, call, tuning);
    OneTokenCut best;
    double least = 0;
    for (int32_t n_chunks = 1; n_chunks <= grains; ++n_chunks) {
        OneTokenCut cut;
        cut.book = book_of(call.down);
        cut.chunk_grains = divide_up(grains, n_chunks);
        cut.n_chunks = divide_up(grains, cut.chunk_grains);
        if (cut.n_chunks != n_chunks) continue;
        if (cut.chunk_grains > 1 && cut.chunk_grains * grain_bytes > share.chunk_bytes) continue;
        choose_cluster(device, call, tuning, cut);
        const int32_t n_units = divide_up(call.n_slots * n_chunks, cut.cluster);
        for (int32_t warps = std::min(4, n_units); warps <= std::min(share.most_warps, n_units);
             ++warps) {
            cut.n_warps = warps;
            const OneTokenCut whole = lay_out_down(call, cut, tuning, share);
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

int32_t most_few_tokens(const DeviceFacts& device, const FewTokensShape& shape) {
    OneToken call{};
    call.gate_up = shape.gate_up;
    call.down = shape.down;
    call.n_slots = shape.n_slots;
    if (!one_token_supports(call.gate_up.type) || !one_token_supports(call.down.type)) return 0;
    if (!has_whole_grains(call.gate_up) || !has_whole_grains(call.down)) return 0;
    if (!can_divide(call.gate_up, call.n_slots)) return 0;
    // Whether the experts have one codebook that serves as one table shows when weights are there.
    const auto fits = [&](bool one_codebook) {
        const OneTokenTuning tuning = tuning_of(device);
        for (PackedMatrix* matrix : {&call.gate_up, &call.down}) {
            matrix->has_one_codebook = one_codebook;
            matrix->has_mirrored_codebook = one_codebook && has_sign_codes(matrix->type);
            matrix->byte_codebook.unit = one_codebook ? 1.0f : 0.0f;
        }
        return std::max(cut_gate_up(device, call, tuning).shared.total,
                        cut_down(device, call, tuning).shared.total) <= device.shared_bytes;
    };
    int32_t most = 0;
    for (call.n_tokens = 1; call.n_tokens <= most_side_by_side; ++call.n_tokens) {
        if (!fits(false) || !fits(true)) break;
        most = call.n_tokens;
    }
    return most;
}

}  // namespace moe::cuda
