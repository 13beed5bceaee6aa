// How the one-token kernels are tiling: what they rely on without checking it, for the shapes of
// real layers and odd ones. No GPU is needed.
#include <gtest/gtest.h>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/gemv/gemv_params.hpp"

namespace moe::cuda {
namespace {

constexpr int32_t sm_shared =
    233472;  // bytes of an SM of sm_90, of which a block takes 1024 more than it asks for

DeviceFacts h200() {
    DeviceFacts facts;
    facts.major = 9;
    facts.n_sms = 132;
    facts.shared_bytes = max_smem_of_block;
    return facts;
}

struct Shape {
    const char* name;
    int32_t hidden, intermediate, n_slots;
};

constexpr Shape shapes[] = {
    {"qwen3next", 2048, 512, 10},  {"qwen3next with its shared expert", 2048, 512, 11},
    {"qwen3-30b", 2048, 768, 8},   {"mixtral", 4096, 14336, 2},
    {"dsv3", 7168, 2048, 8},       {"gpt-oss", 2880, 2880, 4},
    {"one expert", 2048, 5632, 1}, {"three slots of 64", 64, 64, 3},
    {"most slots", 1024, 256, 64}, {"narrow", 5120, 64, 6},
};
constexpr PackedType types[] = {PackedType::bf16,  PackedType::e4m3,      PackedType::nvfp4,
                                PackedType::mxfp4, PackedType::kbit2,     PackedType::kbit3,
                                PackedType::kbit5, PackedType::kbit4_f32, PackedType::q8_0,
                                PackedType::q4_k,  PackedType::q6_k};

PackedMatrix matrix(PackedType type, int32_t rows, int32_t k) {
    PackedMatrix m{};
    m.type = type;
    m.n_tiles = rows / 16;
    m.k = k;
    return m;
}

GemvShape few_tokens_shape(const Shape& shape, PackedType type) {
    return {matrix(type, 2 * shape.intermediate, shape.hidden),
            matrix(type, shape.hidden, shape.intermediate), shape.n_slots};
}

GemvArgs call_of(const Shape& shape, PackedType type, int32_t n_tokens) {
    const GemvShape matrices = few_tokens_shape(shape, type);
    GemvArgs call{};
    call.gate_up = matrices.gate_up;
    call.down = matrices.down;
    call.n_slots = shape.n_slots;
    call.n_tokens = n_tokens;
    return call;
}

int32_t min_split_bytes(PackedType type) {
    return block_bytes(type, 4) * (has_superblock(type) ? 4 : 1);
}
int32_t splits(const PackedMatrix& m) {
    return m.k / (has_superblock(m.type) ? 256 : 64);
}
int32_t divide_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

// What the kernels compute instead of n / d, for n up to `most`: at the multiples of d and below.
void expect_divides(uint32_t reciprocal, int32_t d, int64_t most) {
    ASSERT_LT(most * d, INT64_C(1) << 31);
    const auto divide = [&](int64_t n) {
        return static_cast<int64_t>(2 * static_cast<uint64_t>(n) * reciprocal >> 32);
    };
    const int64_t step = std::max<int64_t>(1, most / d / 1000) * d;
    for (int64_t n = most / d * d; n >= 0; n -= step) {
        EXPECT_EQ(divide(n), n / d) << n << " by " << d;
        if (n > 0) {
            EXPECT_EQ(divide(n - 1), (n - 1) / d) << n - 1 << " by " << d;
        }
    }
    EXPECT_EQ(divide(most), most / d);
}

// Of each of n_slots experts two tables of 2^bits values: of 16 bits, of 32 where they are looked
// up. Or for each of 32 lanes a pair for every byte. Or eight bytes.
int32_t room_for_tables(PackedType type, CodebookMode codebook_mode, int32_t n_slots) {
    const int32_t bits = code_bits(type);
    switch (codebook_mode) {
        case CodebookMode::none:
            return 0;
        case CodebookMode::shared_bytes:
            return 8;
        case CodebookMode::shared_lanes:
            return 32 * 4 * 0x100;
        default:
            return n_slots * 2 * (bits <= 3 ? 2 : 4) * (1 << bits);
    }
}

// The most slots whose tables a block of gate and up needs: its work_items are neighbours.
int32_t most_slots_of_block(const GemvArgs& call, const GemvTiling& tiling) {
    const int32_t n_work_items = call.n_slots * call.gate_up.n_tiles;
    const int32_t each = n_work_items / (tiling.n_blocks * tiling.n_groups);
    const int32_t rest = n_work_items % (tiling.n_blocks * tiling.n_groups);
    const auto first_of_group = [&](int32_t warp_group) {
        return warp_group * each + std::min(warp_group, rest);
    };
    int32_t most = 0;
    for (int32_t block = 0; block < tiling.n_blocks; ++block) {
        const int32_t first = first_of_group(block * tiling.n_groups);
        const int32_t last = first_of_group((block + 1) * tiling.n_groups);
        if (first == last) continue;
        const int32_t n_tiles = call.gate_up.n_tiles;
        most = std::max(most, (last - 1) / n_tiles - first / n_tiles + 1);
    }
    return most;
}

// The pipeline begins behind everything else and ends with the block's memory.
void expect_room(const GemvTiling& tiling, PackedType type) {
    const GemvSmemLayout& s = tiling.shared;
    const int32_t pipeline =
        tiling.n_warps * tiling.n_stages * tiling.k_block_splits * min_split_bytes(type);
    EXPECT_LE(s.pipeline + pipeline, s.total);
    EXPECT_EQ(s.pipeline % 128, 0);
    EXPECT_LE(s.barriers + 8 * tiling.n_warps * tiling.n_stages, s.pipeline);
    EXPECT_LE(tiling.n_stages, 32);  // a lane for each
}

// All experts have the same, with or without the form that makes it quick.
void give_one_codebook(PackedMatrix& matrix, bool starts_next_early) {
    matrix.has_one_codebook = true;
    matrix.has_mirrored_codebook = starts_next_early && has_sign_codes(matrix.type);
    matrix.byte_codebook.scale = starts_next_early && code_bits(matrix.type) <= 3 ? 1.0f : 0.0f;
}

// For every shape and type that the kernels take, with as many tokens as they take; experts have
// codebooks of their own, or one.
template <class Check>
void for_calls(const Check& check) {
    int n = 0;
    for (const Shape& shape : shapes) {
        for (const PackedType type : types) {
            const int32_t most = max_gemv_tokens(h200(), few_tokens_shape(shape, type));
            for (int32_t n_tokens = 1; n_tokens <= most; ++n_tokens, ++n) {
                SCOPED_TRACE(testing::Message() << shape.name << ", type " << static_cast<int>(type)
                                                << ", tokens " << n_tokens);
                GemvArgs call = call_of(shape, type, n_tokens);
                check(call);
                if (!has_codebook(type)) continue;
                give_one_codebook(call.gate_up, false);
                check(call);
                give_one_codebook(call.down, true);
                check(call);
                give_one_codebook(call.gate_up, true);
                check(call);
            }
        }
    }
    EXPECT_GT(n, 1000);
}

TEST(GemvTiling, GateAndUpCoverEveryTile) {
    int n_resident = 0;
    int n_refilled = 0;
    int n_split_k = 0;
    for_calls([&](const GemvArgs& call) {
        const GemvTiling tiling = tile_gate_up(h200(), call, {});
        const PackedMatrix& m = call.gate_up;
        expect_room(tiling, m.type);
        EXPECT_LE(tiling.shared.total, max_smem_of_block);
        EXPECT_EQ(tiling.n_groups * tiling.group_warps, tiling.n_warps);
        EXPECT_LE(tiling.n_groups, max_split_k_groups);
        EXPECT_GE(tiling.n_k_blocks * tiling.k_block_splits,
                  divide_up(splits(m), tiling.group_warps));
        EXPECT_LE(call.n_tokens * tiling.n_blocks, std::max(call.n_tokens, 132));
        const int32_t n_groups = tiling.n_blocks * tiling.n_groups;
        const int32_t work_items = divide_up(call.n_slots * m.n_tiles, n_groups);
        // What is not refilled must hold every work_item, each at a stage of every warp.
        const int64_t pipeline =
            int64_t{tiling.group_warps} * tiling.n_stages * tiling.k_block_splits;
        if (tiling.is_resident) {
            EXPECT_GE(pipeline, int64_t{work_items} * splits(m));
            EXPECT_GE(tiling.n_stages, work_items);
        }
        n_resident += tiling.is_resident ? 1 : 0;
        n_refilled += tiling.is_resident ? 0 : 1;
        n_split_k += tiling.n_groups > 1 ? 1 : 0;
        // Sums of a group of work_items, twice where there are several groups.
        const int32_t group = 2 * tiling.group_warps;
        EXPECT_GE(tiling.accum_bytes_of_group,
                  64 * tiling.group_warps * (work_items > group ? 2 * group : work_items));
        EXPECT_GE(tiling.shared.slots - tiling.shared.accum,
                  tiling.n_groups * tiling.accum_bytes_of_group);
        EXPECT_LE(tiling.n_warps, 16);  // add_warps takes no more
        EXPECT_GE(tiling.shared.terms - tiling.shared.codebooks,
                  room_for_tables(m.type, tiling.codebook_mode, most_slots_of_block(call, tiling)));
        EXPECT_GE(tiling.shared.largest - tiling.shared.terms, 12 * 32 * tiling.n_warps);
        EXPECT_GE(tiling.shared.barriers - tiling.shared.largest,
                  tiling.n_groups > 1 ? 4 * tiling.n_warps : 0);
        expect_divides(tiling.block_reciprocal, n_groups, call.n_slots * m.n_tiles);
        expect_divides(tiling.tile_reciprocal, m.n_tiles, call.n_slots * m.n_tiles);
        expect_divides(tiling.k_block_reciprocal, tiling.n_k_blocks,
                       work_items * tiling.n_k_blocks);
        expect_divides(tiling.warp_reciprocal, tiling.n_warps, int64_t{tiling.n_warps} * splits(m));
        expect_divides(tiling.group_reciprocal, tiling.group_warps,
                       int64_t{tiling.group_warps} * splits(m));
    });
    EXPECT_GT(n_resident, 10);
    EXPECT_GT(n_refilled, 10);
    EXPECT_GT(n_split_k, 10);
}

TEST(GemvTiling, DownCoversEveryUnit) {
    for_calls([](const GemvArgs& call) {
        const GemvTiling tiling = tile_down(h200(), call, {});
        const PackedMatrix& m = call.down;
        expect_room(tiling, m.type);
        EXPECT_LE(tiling.shared.total, max_smem_of_block);
        EXPECT_GE(tiling.n_k_blocks * tiling.k_block_splits, splits(m));
        EXPECT_LT((tiling.n_k_blocks - 1) * tiling.k_block_splits,
                  splits(m));  // no k_block is empty
        EXPECT_EQ(tiling.n_blocks % tiling.cluster, 0);
        const int32_t n_slices = divide_up(call.n_slots * tiling.n_k_blocks, tiling.cluster);
        EXPECT_LE(tiling.n_warps, n_slices);
        // Passes but for the last are whole rounds of the warps: a warp keeps its addresses of h.
        EXPECT_TRUE(tiling.pass_slices >= n_slices || tiling.pass_slices % tiling.n_warps == 0);
        const int32_t addresses = std::min(tiling.pass_slices, n_slices);
        EXPECT_GE(tiling.shared.accum - tiling.shared.x,
                  128 * addresses * tiling.k_block_splits * (has_superblock(m.type) ? 4 : 1));
        EXPECT_GE(tiling.shared.gate - tiling.shared.slice_scales, 4 * addresses);
        EXPECT_GE(32 * tiling.n_warps, 2 * call.n_slots);  // a thread for each factor
        EXPECT_LE((tiling.n_warps + 1) / 2, 8);            // two lanes add up to eight warps each
        const int32_t clusters = tiling.n_blocks / tiling.cluster;
        const int32_t outputs = 16 * divide_up(m.n_tiles, clusters);
        EXPECT_GE(tiling.shared.slots - tiling.shared.accum, 4 * tiling.n_warps * outputs);
        EXPECT_GE(tiling.shared.partial - tiling.shared.biases, 4 * outputs);
        if (tiling.cluster > 1) {
            EXPECT_GE(tiling.shared.codebooks - tiling.shared.partial, 4 * outputs);
        }
        EXPECT_GE(tiling.shared.slice_scales - tiling.shared.codebooks,
                  room_for_tables(m.type, tiling.codebook_mode, call.n_slots));
        expect_divides(tiling.block_reciprocal, clusters, m.n_tiles);
        expect_divides(tiling.k_block_reciprocal, tiling.n_k_blocks,
                       call.n_slots * tiling.n_k_blocks);
    });
}

// One codebook of all experts is one table, whatever the slots: of two and three bits where it can
// be bytes, of five where it is its own mirror.
TEST(GemvTiling, OneCodebookIsOneTable) {
    const auto mode_with = [](PackedType type, const Shape& shape, bool one,
                              bool starts_next_early = false) {
        GemvArgs call = call_of(shape, type, 1);
        if (one) give_one_codebook(call.gate_up, starts_next_early);
        return tile_gate_up(h200(), call, {}).codebook_mode;
    };
    const Shape &small = shapes[0], &large = shapes[3];
    for (const PackedType type :
         {PackedType::kbit2, PackedType::kbit3, PackedType::kbit4_f32, PackedType::kbit5}) {
        EXPECT_EQ(mode_with(type, small, false), CodebookMode::per_expert);
        EXPECT_EQ(mode_with(type, large, false), CodebookMode::per_expert);
    }
    EXPECT_EQ(mode_with(PackedType::kbit2, large, true), CodebookMode::per_expert);
    EXPECT_EQ(mode_with(PackedType::kbit3, small, true), CodebookMode::per_expert);
    EXPECT_EQ(mode_with(PackedType::kbit4_f32, small, true), CodebookMode::shared_lanes);
    EXPECT_EQ(mode_with(PackedType::kbit5, large, true), CodebookMode::per_expert);
    EXPECT_EQ(mode_with(PackedType::kbit5, small, true, true), CodebookMode::shared_lanes);
    EXPECT_EQ(mode_with(PackedType::kbit5_f32, large, true, true), CodebookMode::shared_lanes);
    for (const Shape& shape : {small, large}) {
        EXPECT_EQ(mode_with(PackedType::kbit2, shape, true, true), CodebookMode::shared_bytes);
        EXPECT_EQ(mode_with(PackedType::kbit3_f32, shape, true, true), CodebookMode::shared_bytes);
        EXPECT_EQ(mode_with(PackedType::kbit4, shape, true, true), CodebookMode::shared_lanes);
    }
    EXPECT_EQ(mode_with(PackedType::nvfp4, large, true), CodebookMode::none);
}

// What the early start of the second kernel is for; see GemvTuning.
TEST(GemvTiling, BlocksOfBothKernelsShareAMultiprocessor) {
    for_calls([](const GemvArgs& call) {
        const GemvTuning tuning;
        const int64_t bytes = call.gate_up.tile_stride() * call.gate_up.n_tiles +
                              call.down.tile_stride() * call.down.n_tiles;
        const CodebookMode codebook_mode = codebook_mode_of(call.gate_up);
        const bool shared_codebook = codebook_mode == CodebookMode::shared_lanes ||
                                     codebook_mode == CodebookMode::shared_bytes;
        const int64_t many = call.n_tokens > 1 && shared_codebook
                                 ? tuning.large_bytes_shared_codebook
                                 : tuning.large_bytes;
        if (call.n_tokens * call.n_slots * bytes >= many) return;
        const int32_t both = tile_gate_up(h200(), call, tuning).shared.total +
                             tile_down(h200(), call, tuning).shared.total;
        EXPECT_LE(both + 2 * 1024, sm_shared);
    });
}

// A block of down has whatever a block of gate and up leaves of a multiprocessor, not only the
// least that it is sure of.
TEST(GemvTiling, DownTakesWhatGateAndUpLeave) {
    const GemvArgs call = call_of(shapes[5], PackedType::nvfp4, 1);
    const int32_t gate_up = tile_gate_up(h200(), call, {}).shared.total;
    const int32_t down = tile_down(h200(), call, {}).shared.total;
    EXPECT_GT(down, GemvTuning{}.down_small.most);
    EXPECT_LE(gate_up + down + 2 * 1024, sm_shared);
}

// Where no clusters are used and blocks may have less: every block has an SM for itself.
TEST(GemvTiling, FitsOtherDevices) {
    struct Other {
        int32_t major, n_sms, of_block, of_sm;
    };
    for (const Other& other : {Other{8, 108, 166912, 167936}, Other{8, 128, 101376, 102400},
                               Other{10, 148, 232448, 233472}, Other{12, 170, 101376, 102400}}) {
        DeviceFacts facts;
        facts.major = other.major;
        facts.n_sms = other.n_sms;
        facts.shared_bytes = other.of_block;
        int n = 0;
        for (const Shape& shape : shapes) {
            for (const PackedType type : types) {
                const int32_t most = max_gemv_tokens(facts, few_tokens_shape(shape, type));
                const int32_t on_h200 = max_gemv_tokens(h200(), few_tokens_shape(shape, type));
                EXPECT_EQ(most > 0, on_h200 > 0) << shape.name << ", type " << int(type);
                for (int32_t n_tokens = 1; n_tokens <= most; ++n_tokens)
                    for (int one = 0; one < (has_codebook(type) ? 9 : 1); ++one, ++n) {
                        GemvArgs call = call_of(shape, type, n_tokens);
                        if (one % 3) give_one_codebook(call.gate_up, one % 3 == 2);
                        if (one / 3) give_one_codebook(call.down, one / 3 == 2);
                        const GemvTuning tuning = tuning_of(facts);
                        for (const GemvTiling& tiling :
                             {tile_gate_up(facts, call, tuning), tile_down(facts, call, tuning)}) {
                            expect_room(tiling, type);
                            EXPECT_EQ(tiling.cluster, 1);
                            EXPECT_LE(tiling.shared.total, other.of_block) << shape.name;
                            EXPECT_GT(2 * (tiling.shared.total + 1024), other.of_sm) << shape.name;
                        }
                    }
            }
        }
        EXPECT_GT(n, 1000) << other.major << ", " << other.of_block;
    }
}

TEST(FewTokens, ModelsCanGoThisWayWithSixteen) {
    for (const Shape& shape : shapes) {
        for (const PackedType type : types) {
            const bool has_whole_groups =  // superblocks of 256 k
                !has_superblock(type) || (shape.hidden % 256 == 0 && shape.intermediate % 256 == 0);
            EXPECT_EQ(max_gemv_tokens(h200(), few_tokens_shape(shape, type)),
                      has_whole_groups ? 16 : 0)
                << shape.name << static_cast<int>(type);
        }
    }
}

TEST(FewTokens, NeverWithWhatTheKernelsDoNotRead) {
    const Shape odd{"", 2048, 96, 8};  // k of down is no multiple of 64
    EXPECT_EQ(max_gemv_tokens(h200(), few_tokens_shape(odd, PackedType::bf16)), 0);
    const Shape plain{"", 2048, 768, 8};
    EXPECT_EQ(max_gemv_tokens(h200(), few_tokens_shape(plain, PackedType::f32)), 0);
    const Shape grouped{"", 2048, 704, 8};  // nor of 256
    EXPECT_EQ(max_gemv_tokens(h200(), few_tokens_shape(grouped, PackedType::q4_k)), 0);
}

}  // namespace
}  // namespace moe::cuda
