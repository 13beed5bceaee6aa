// Tests the tiling of the gemv kernels. The kernels rely on its properties and do not check them:
// coverage of all work items, shared memory budgets, reciprocals for divisions. Inputs are shapes
// of real layers and odd ones, for every weight type. No GPU is needed.
#include "libmoe/plan/gemv_tiling.hpp"

#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/kernel_types.hpp"
#include "tests/plan/fake_device.hpp"

namespace moe {
namespace {

using cuda::CodebookMode;
using cuda::DeviceFacts;
using cuda::GemvSmemLayout;
using cuda::GemvTiling;
using cuda::max_split_k_groups;

// Shared memory of an SM of sm_90 in bytes; a thread block takes 1024 more than it requests.
constexpr int32_t sm_shared = 233472;
constexpr int32_t max_smem_of_block = sm_shared - 1024;

DeviceFacts h200_facts() {
    return test::h200().facts;
}
GemvTuning h200_tuning() {
    return tuning_of(h200_facts()).gemv;
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
constexpr PackedType awq = grid_type(PackedType::grid_4, GridScale::f16, GridZero::packed, 128);
constexpr PackedType int8_row = grid_type(PackedType::grid_8, GridScale::f32, GridZero::middle, 0);
constexpr PackedType nf4 =
    grid_type(PackedType::grid_codebook, GridScale::f32, GridZero::middle, 64);
constexpr PackedType types[] = {awq,
                                int8_row,
                                nf4,
                                PackedType::bf16,
                                PackedType::e4m3,
                                PackedType::nvfp4,
                                PackedType::mxfp4,
                                PackedType::kbit2,
                                PackedType::kbit3,
                                PackedType::kbit5,
                                PackedType::kbit4_f32,
                                PackedType::q8_0,
                                PackedType::q4_k,
                                PackedType::q5_k,
                                PackedType::q6_k,
                                PackedType::q2_k,
                                PackedType::q3_k,
                                PackedType::iq4_xs,
                                PackedType::q4_1,
                                PackedType::q5_0,
                                PackedType::iq2_xs,
                                PackedType::iq3_s};

PackedMatrix matrix(PackedType type, int32_t rows, int32_t k) {
    PackedMatrix m{};
    m.type = type;
    m.n_tiles = rows / 16;
    m.k = k;
    return m;
}

GemvProblem problem_of(const Shape& shape, PackedType type, int32_t n_tokens = 1) {
    GemvProblem problem;
    problem.gate_up = matrix(type, 2 * shape.intermediate, shape.hidden);
    problem.down = matrix(type, shape.hidden, shape.intermediate);
    problem.n_slots = shape.n_slots;
    problem.n_tokens = n_tokens;
    return problem;
}

int32_t max_tokens_on(const DeviceFacts& device, const Shape& shape, PackedType type) {
    return max_gemv_tokens(device, problem_of(shape, type), tuning_of(device).gemv);
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

// Checks the kernels' replacement of n / d for n up to `most`, at the multiples of d and just
// below.
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

// Returns the bytes of the codebook tables. Per-expert tables are two of 2^bits values for each of
// n_slots experts, of 16 bits each up to 3 bits and of 32 bits above. A table shared in lanes has a
// pair for every byte for each of 32 lanes, one shared in bytes has eight bytes.
int32_t codebook_table_bytes(PackedType type, CodebookMode codebook_mode, int32_t n_slots) {
    const int32_t bits = code_bits(type);
    switch (codebook_mode) {
        case CodebookMode::none:
            // Words: 16 times 512 entries, and 32 times 128 or 16 times 256 of signs.
            return type == PackedType::iq2_xs  ? 4 * (16 * 512 + 32 * 128)
                   : type == PackedType::iq3_s ? 4 * (16 * 512 + 16 * 256)
                                               : 0;
        case CodebookMode::shared_bytes:
            return 8;
        case CodebookMode::shared_lanes:
            return 32 * 4 * 0x100;
        default:
            return n_slots * 2 * (bits <= 3 ? 2 : 4) * (1 << bits);
    }
}

// Returns the maximum number of slots whose tables a thread block of gate_up needs; its work items
// are adjacent.
int32_t max_slots_of_block(const GemvProblem& call, const GemvTiling& tiling) {
    const int32_t n_work_items = call.n_slots * call.gate_up.n_tiles;
    const int32_t each = n_work_items / (tiling.n_blocks * tiling.n_groups);
    const int32_t remainder = n_work_items % (tiling.n_blocks * tiling.n_groups);
    const auto first_of_group = [&](int32_t warp_group) {
        return warp_group * each + std::min(warp_group, remainder);
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

// The pipeline is the last region of the block's shared memory and fits into it.
void expect_smem_fits(const GemvTiling& tiling, PackedType type) {
    const GemvSmemLayout& s = tiling.shared;
    const int32_t copied = is_grid(type) ? cuda::staged_grid_bytes(type, tiling.k_block_splits)
                                         : tiling.k_block_splits * min_split_bytes(type);
    EXPECT_GE(tiling.stage_bytes - cuda::staged_record_bytes(type), copied + tiling.line_mask);
    EXPECT_EQ(tiling.stage_bytes % (tiling.line_mask == 0 ? 16 : 128), 0);
    const int32_t pipeline = tiling.n_warps * tiling.n_stages * tiling.stage_bytes;
    EXPECT_LE(s.pipeline + pipeline, s.total);
    EXPECT_EQ(s.pipeline % 128, 0);
    EXPECT_LE(s.barriers + 8 * tiling.n_warps * tiling.n_stages, s.pipeline);
    EXPECT_LE(tiling.n_stages, 32);  // one lane per stage
}

// Calls check for every shape and type that the kernels support and for every number of tokens up
// to the maximum. Experts have codebooks of their own, or one.
template <class Check>
void for_calls(const Check& check) {
    int n = 0;
    for (const Shape& shape : shapes) {
        for (const PackedType type : types) {
            const int32_t most = max_tokens_on(h200_facts(), shape, type);
            for (int32_t n_tokens = 1; n_tokens <= most; ++n_tokens, ++n) {
                SCOPED_TRACE(testing::Message() << shape.name << ", type " << static_cast<int>(type)
                                                << ", tokens " << n_tokens);
                for (int sharing = 0; sharing < (has_codebook(type) ? 4 : 1); ++sharing) {
                    GemvProblem problem = problem_of(shape, type, n_tokens);
                    problem.gate_up_shares_codebook = (sharing & 1) != 0;
                    problem.down_shares_codebook = (sharing & 2) != 0;
                    check(problem);
                }
            }
        }
    }
    EXPECT_GT(n, 1000);
}

TEST(GemvTiling, GateAndUpCoverEveryTile) {
    int n_resident = 0;
    int n_refilled = 0;
    int n_split_k = 0;
    for_calls([&](const GemvProblem& call) {
        const GemvTiling tiling = tile_gate_up(h200_facts(), call, h200_tuning());
        const PackedMatrix& m = call.gate_up;
        expect_smem_fits(tiling, m.type);
        EXPECT_LE(tiling.shared.total, max_smem_of_block);
        EXPECT_EQ(tiling.n_groups * tiling.group_warps, tiling.n_warps);
        EXPECT_LE(tiling.n_groups, max_split_k_groups);
        EXPECT_GE(tiling.n_k_blocks * tiling.k_block_splits,
                  divide_up(splits(m), tiling.group_warps));
        EXPECT_LE(call.n_tokens * tiling.n_blocks, std::max(call.n_tokens, 132));
        const int32_t n_groups = tiling.n_blocks * tiling.n_groups;
        const int32_t work_items = divide_up(call.n_slots * m.n_tiles, n_groups);
        // A resident pipeline must hold every work item, each at a stage of every warp.
        const int64_t pipeline =
            int64_t{tiling.group_warps} * tiling.n_stages * tiling.k_block_splits;
        if (tiling.is_resident) {
            EXPECT_GE(pipeline, int64_t{work_items} * splits(m));
            EXPECT_GE(tiling.n_stages, work_items);
        }
        n_resident += tiling.is_resident ? 1 : 0;
        n_refilled += tiling.is_resident ? 0 : 1;
        n_split_k += tiling.n_groups > 1 ? 1 : 0;
        // The accumulators of a group of work items are double buffered where there are several
        // groups.
        const int32_t group = 2 * tiling.group_warps;
        EXPECT_GE(tiling.accum_bytes_of_group,
                  64 * tiling.group_warps * (work_items > group ? 2 * group : work_items));
        EXPECT_GE(tiling.shared.slots - tiling.shared.accum,
                  tiling.n_groups * tiling.accum_bytes_of_group);
        EXPECT_LE(tiling.n_warps, 16);  // the limit of add_warps
        EXPECT_GE(
            tiling.shared.terms - tiling.shared.codebooks,
            codebook_table_bytes(m.type, tiling.codebook_mode, max_slots_of_block(call, tiling)));
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

TEST(GemvTiling, DownCoversEverySlice) {
    for_calls([](const GemvProblem& call) {
        const GemvTiling tiling = tile_down(h200_facts(), call, h200_tuning());
        const PackedMatrix& m = call.down;
        expect_smem_fits(tiling, m.type);
        EXPECT_LE(tiling.shared.total, max_smem_of_block);
        EXPECT_GE(tiling.n_k_blocks * tiling.k_block_splits, splits(m));
        EXPECT_LT((tiling.n_k_blocks - 1) * tiling.k_block_splits,
                  splits(m));  // no k_block is empty
        EXPECT_EQ(tiling.n_blocks % tiling.cluster, 0);
        const int32_t n_slices = divide_up(call.n_slots * tiling.n_k_blocks, tiling.cluster);
        EXPECT_LE(tiling.n_warps, n_slices);
        // All passes but the last are whole rounds of the warps, so a warp keeps its addresses of
        // h.
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
                  codebook_table_bytes(m.type, tiling.codebook_mode, call.n_slots));
        expect_divides(tiling.block_reciprocal, clusters, m.n_tiles);
        expect_divides(tiling.k_block_reciprocal, tiling.n_k_blocks,
                       call.n_slots * tiling.n_k_blocks);
    });
}

// A stage is what its blocks take in a tile, in whole vectors that its part of shared memory holds.
TEST(GemvTiling, StagesHoldTheirBlocksAndRecords) {
    int n_within = 0, n_odd = 0;
    for (const PackedType kind :
         {PackedType::grid_2, PackedType::grid_4, PackedType::grid_8, PackedType::grid_e4m3})
        for (const GridScale scale : {GridScale::f32, GridScale::bf16, GridScale::e8m0})
            for (const GridZero zero : {GridZero::middle, GridZero::packed})
                for (const int32_t group : {0, 32, 64, 96, 128, 160, 192, 1024}) {
                    const PackedType type = grid_type(kind, scale, zero, group);
                    ASSERT_TRUE(cuda::gemv_reads_grid(type));
                    constexpr int32_t k = 2944, n_blocks = k / 64;
                    for (const int32_t n : {1, 3, 4, 17}) {
                        const auto grid = cuda::grid_records_of(type, k);
                        EXPECT_EQ(grid.tile_bytes, tile_bytes(type, k));
                        for (int32_t first = 0; first + n <= n_blocks; ++first) {
                            const int32_t begin = grid.begin(first), end = grid.end(first, n);
                            const BlockOffset own = block_offset(type, 64 * first);
                            const bool is_within = own.scales + grid.front_bytes != own.codes;
                            EXPECT_EQ(begin, is_within ? own.codes : own.scales);
                            EXPECT_EQ(grid.begins_before(first, first), is_within);
                            EXPECT_EQ(end, block_offset(type, 64 * (first + n - 1)).codes +
                                               block_code_bytes(type, 4));
                            EXPECT_LE(grid.align_up(end), grid.tile_bytes);
                            const int32_t bytes = grid.align_up(end) - grid.align_down(begin);
                            EXPECT_LE(bytes, cuda::staged_grid_bytes(type, n));
                            if (cuda::grouped_reads_grid(type)) {
                                EXPECT_LE(bytes, n * (block_code_bytes(type, 4) +
                                                      cuda::grouped_grid_record_bytes) +
                                                     16);
                            }
                            const int32_t records = grid.records(first);
                            EXPECT_EQ(records, own.scales);
                            if (is_within) {
                                EXPECT_LE(grid.align_up(records + grid.front_bytes) -
                                              grid.align_down(records),
                                          cuda::staged_record_bytes(type));
                            }
                            for (int32_t t = 0; t < 4; ++t)
                                EXPECT_EQ(grid.record(t), grid_record(type, 16 * t));
                            n_within += is_within;
                            n_odd += begin % 16 != 0;
                        }
                    }
                }
    EXPECT_GT(n_within, 100);
    EXPECT_GT(n_odd, 100);
    const auto odd = grid_type(PackedType::grid_4, GridScale::f16, GridZero::middle, 48);
    EXPECT_FALSE(cuda::gemv_reads_grid(odd));
    EXPECT_FALSE(
        cuda::gemv_reads_grid(grid_type(PackedType::grid_4, GridScale::f16, GridZero::middle, 16)));
}

// Consumers and copies find the place of a k_block by the same bits; those that the mask leaves out
// must be the same for all of them.
TEST(GemvTiling, KBlocksBeginWhereTheMaskLetsThem) {
    const PackedType types_in_lines[] = {
        grid_type(PackedType::grid_4, GridScale::f16, GridZero::packed, 128),
        grid_type(PackedType::grid_8, GridScale::bf16, GridZero::middle, 0),
        grid_type(PackedType::grid_e4m3, GridScale::f32, GridZero::middle, 0),
        grid_type(PackedType::grid_codebook, GridScale::f32, GridZero::middle, 64),
        PackedType::e4m3};
    for (const Shape& shape : shapes)
        for (const PackedType type : types_in_lines) {
            const GemvProblem problem = problem_of(shape, type);
            const PackedMatrix& m = problem.down;
            const GemvTiling tiling = tile_down(h200_facts(), problem, h200_tuning());
            const auto grid = cuda::grid_records_of(type, m.k);
            const bool ends_lines = m.tile_stride() * m.n_tiles % 128 == 0;
            int64_t differing = 0;
            for (int64_t tile = 0; tile < std::min(m.n_tiles, 16); ++tile)
                for (int32_t b = 0; b < tiling.n_k_blocks; ++b) {
                    const int32_t split = b * tiling.k_block_splits;
                    const int64_t begin = is_grid(type) ? grid.align_down(grid.begin(split))
                                                        : int64_t{split} * min_split_bytes(type);
                    differing |= (tile * m.tile_stride() + begin) % 128;
                }
            SCOPED_TRACE(testing::Message() << shape.name << ", type " << static_cast<int>(type));
            if (ends_lines) {
                EXPECT_EQ(differing & ~int64_t{tiling.line_mask}, 0);
            } else {
                EXPECT_EQ(tiling.line_mask, 0);
            }
            GemvTuning no_lines = h200_tuning();
            no_lines.copies_in_lines = false;
            EXPECT_EQ(tile_down(h200_facts(), problem, no_lines).line_mask, 0);
        }
    const GemvProblem qwen = problem_of(shapes[0], types_in_lines[0]);
    EXPECT_GT(tile_gate_up(h200_facts(), qwen, h200_tuning()).line_mask, 0);
    EXPECT_EQ(tile_gate_up(h200_facts(), problem_of(shapes[0], PackedType::q4_k), h200_tuning())
                  .line_mask,
              0);
}

// One codebook of all experts is one table for any number of slots: in bytes for two and three
// bits, in lanes for four and five.
TEST(GemvTiling, OneCodebookIsOneTable) {
    const auto modes = [](PackedType type, const Shape& shape, bool shares) {
        GemvProblem problem = problem_of(shape, type);
        problem.gate_up_shares_codebook = problem.down_shares_codebook = shares;
        return std::pair(tile_gate_up(h200_facts(), problem, h200_tuning()).codebook_mode,
                         tile_down(h200_facts(), problem, h200_tuning()).codebook_mode);
    };
    const auto both = [](CodebookMode mode) { return std::pair(mode, mode); };
    for (const Shape& shape : {shapes[0], shapes[3]}) {
        for (const PackedType type : {PackedType::kbit2, PackedType::kbit3_f32, PackedType::kbit4,
                                      PackedType::kbit5, PackedType::kbit5_f32}) {
            const CodebookMode shared =
                code_bits(type) <= 3 ? CodebookMode::shared_bytes : CodebookMode::shared_lanes;
            EXPECT_EQ(modes(type, shape, false), both(CodebookMode::per_expert));
            EXPECT_EQ(modes(type, shape, true), both(shared));
        }
        for (const bool shares : {false, true})
            EXPECT_EQ(modes(PackedType::nvfp4, shape, shares), both(CodebookMode::none));
    }
}

// The early start of the down kernel (PDL) needs the blocks of both kernels resident on one SM; see
// GemvTuning.
TEST(GemvTiling, BlocksOfBothKernelsShareAMultiprocessor) {
    for_calls([](const GemvProblem& call) {
        const GemvTuning tuning = h200_tuning();
        const int64_t bytes = call.gate_up.tile_stride() * call.gate_up.n_tiles +
                              call.down.tile_stride() * call.down.n_tiles;
        const bool shared_codebook =
            has_codebook(call.gate_up.type) && call.gate_up_shares_codebook;
        const int64_t many = call.n_tokens > 1 && shared_codebook
                                 ? tuning.large_bytes_shared_codebook
                                 : tuning.large_bytes;
        if (call.n_tokens * call.n_slots * bytes >= many) return;
        const int32_t both = tile_gate_up(h200_facts(), call, tuning).shared.total +
                             tile_down(h200_facts(), call, tuning).shared.total;
        EXPECT_LE(both + 2 * 1024, sm_shared);
    });
}

// Hopper alone has copies of the tables of iq2 and iq3: of 99 KB they would leave few warps, and
// few tokens of a large layer.
TEST(GemvTiling, TablesHaveNoCopiesWhereSharedMemoryIsSmall) {
    const DeviceFacts small = test::sm86().facts;
    const GemvTuning tuning = tuning_of(small).gemv;
    for (const PackedType type : {PackedType::iq2_xs, PackedType::iq3_s}) {
        const GemvProblem call = problem_of(shapes[4], type);
        const GemvTiling gate_up = tile_gate_up(small, call, tuning);
        EXPECT_LT(gate_up.shared.terms - gate_up.shared.codebooks, 8 * 1024);
        EXPECT_EQ(gate_up.n_warps, 8);
        EXPECT_GE(max_tokens_on(small, shapes[4], type), 16);
        const GemvTiling on_hopper = tile_gate_up(h200_facts(), call, h200_tuning());
        EXPECT_EQ(on_hopper.shared.terms - on_hopper.shared.codebooks, 48 * 1024);
    }
}

// A thread block of down uses all shared memory that gate_up leaves on an SM, not only its
// guaranteed minimum.
TEST(GemvTiling, DownUsesSharedMemoryThatGateUpLeaves) {
    const GemvProblem call = problem_of(shapes[5], PackedType::nvfp4, 1);
    const int32_t gate_up = tile_gate_up(h200_facts(), call, h200_tuning()).shared.total;
    const int32_t down = tile_down(h200_facts(), call, h200_tuning()).shared.total;
    EXPECT_GT(down, h200_tuning().down_small.max_bytes);
    EXPECT_LE(gate_up + down + 2 * 1024, sm_shared);
}

// Devices without clusters and with less shared memory per block: every block has an SM for itself.
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
                const int32_t most = max_tokens_on(facts, shape, type);
                const int32_t on_h200 = max_tokens_on(h200_facts(), shape, type);
                EXPECT_EQ(most > 0, on_h200 > 0) << shape.name << ", type " << int(type);
                for (int32_t n_tokens = 1; n_tokens <= most; ++n_tokens)
                    for (int one = 0; one < (has_codebook(type) ? 4 : 1); ++one, ++n) {
                        GemvProblem call = problem_of(shape, type, n_tokens);
                        call.gate_up_shares_codebook = (one & 1) != 0;
                        call.down_shares_codebook = (one & 2) != 0;
                        const GemvTuning tuning = tuning_of(facts).gemv;
                        for (const GemvTiling& tiling :
                             {tile_gate_up(facts, call, tuning), tile_down(facts, call, tuning)}) {
                            expect_smem_fits(tiling, type);
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

TEST(SmallBatch, Supports32TokensOfModels) {
    for (const Shape& shape : shapes) {
        for (const PackedType type : types) {
            const bool has_whole_groups =  // superblocks of 256 k
                !has_superblock(type) || (shape.hidden % 256 == 0 && shape.intermediate % 256 == 0);
            EXPECT_EQ(max_tokens_on(h200_facts(), shape, type), has_whole_groups ? 32 : 0)
                << shape.name << static_cast<int>(type);
        }
    }
}

TEST(SmallBatch, RefusesUnsupportedShapes) {
    const Shape odd{"", 2048, 96, 8};  // k of down is not a multiple of 64
    EXPECT_EQ(max_tokens_on(h200_facts(), odd, PackedType::bf16), 0);
    const Shape plain{"", 2048, 768, 8};
    EXPECT_EQ(max_tokens_on(h200_facts(), plain, PackedType::f32), 0);
    const Shape grouped{"", 2048, 704, 8};  // k of down is not a multiple of 256
    EXPECT_EQ(max_tokens_on(h200_facts(), grouped, PackedType::q4_k), 0);
}

}  // namespace
}  // namespace moe
