// How the one-token kernels are cut: what they rely on without checking it, for the shapes of real
// layers and odd ones. No GPU is needed.
#include <gtest/gtest.h>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/experts/one_token_call.hpp"

namespace moe::cuda {
namespace {

constexpr int32_t sm_shared =
    233472;  // bytes of an SM of sm_90, of which a block takes 1024 more than it asks for

DeviceFacts h200() {
    DeviceFacts facts;
    facts.major = 9;
    facts.n_sms = 132;
    facts.shared_bytes = most_one_token_shared;
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
                                PackedType::q4_k};

PackedMatrix matrix(PackedType type, int32_t rows, int32_t k) {
    PackedMatrix m{};
    m.type = type;
    m.n_tiles = rows / 16;
    m.k = k;
    return m;
}

FewTokensShape few_tokens_shape(const Shape& shape, PackedType type) {
    return {matrix(type, 2 * shape.intermediate, shape.hidden),
            matrix(type, shape.hidden, shape.intermediate), shape.n_slots};
}

OneToken call_of(const Shape& shape, PackedType type, int32_t n_tokens) {
    const FewTokensShape matrices = few_tokens_shape(shape, type);
    OneToken call{};
    call.gate_up = matrices.gate_up;
    call.down = matrices.down;
    call.n_slots = shape.n_slots;
    call.n_tokens = n_tokens;
    return call;
}

int32_t grain_bytes(PackedType type) {
    return block_bytes(type, 4) * (type == PackedType::q4_k ? 4 : 1);
}
int32_t grains(const PackedMatrix& m) {
    return m.k / (m.type == PackedType::q4_k ? 256 : 64);
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
int32_t room_for_tables(PackedType type, Book book, int32_t n_slots) {
    const int32_t bits = code_bits(type);
    switch (book) {
        case Book::none:
            return 0;
        case Book::bytes:
            return 8;
        case Book::lanes:
            return 32 * 4 * 0x100;
        default:
            return n_slots * 2 * (bits <= 3 ? 2 : 4) * (1 << bits);
    }
}

// The most slots whose tables a block of gate and up needs: its slabs are neighbours.
int32_t most_slots_of_block(const OneToken& call, const OneTokenCut& cut) {
    const int32_t n_slabs = call.n_slots * call.gate_up.n_tiles;
    const int32_t each = n_slabs / (cut.n_blocks * cut.n_teams);
    const int32_t rest = n_slabs % (cut.n_blocks * cut.n_teams);
    const auto first_of_team = [&](int32_t team) { return team * each + std::min(team, rest); };
    int32_t most = 0;
    for (int32_t block = 0; block < cut.n_blocks; ++block) {
        const int32_t first = first_of_team(block * cut.n_teams);
        const int32_t last = first_of_team((block + 1) * cut.n_teams);
        if (first == last) continue;
        const int32_t n_tiles = call.gate_up.n_tiles;
        most = std::max(most, (last - 1) / n_tiles - first / n_tiles + 1);
    }
    return most;
}

// The ring begins behind everything else and ends with the block's memory.
void expect_room(const OneTokenCut& cut, PackedType type) {
    const OneTokenShared& s = cut.shared;
    const int32_t ring = cut.n_warps * cut.n_stages * cut.chunk_grains * grain_bytes(type);
    EXPECT_LE(s.ring + ring, s.total);
    EXPECT_EQ(s.ring % 128, 0);
    EXPECT_LE(s.barriers + 8 * cut.n_warps * cut.n_stages, s.ring);
    EXPECT_LE(cut.n_stages, 32);  // a lane for each
}

// All experts have the same, with or without the form that makes it quick.
void give_one_codebook(PackedMatrix& matrix, bool is_quick) {
    matrix.has_one_codebook = true;
    matrix.has_mirrored_codebook = is_quick && has_sign_codes(matrix.type);
    matrix.byte_codebook.unit = is_quick && code_bits(matrix.type) <= 3 ? 1.0f : 0.0f;
}

// For every shape and type that the kernels take, with as many tokens as they take; experts have
// codebooks of their own, or one.
template <class Check>
void for_calls(const Check& check) {
    int n = 0;
    for (const Shape& shape : shapes) {
        for (const PackedType type : types) {
            const int32_t most = most_few_tokens(h200(), few_tokens_shape(shape, type));
            for (int32_t n_tokens = 1; n_tokens <= most; ++n_tokens, ++n) {
                SCOPED_TRACE(testing::Message() << shape.name << ", type " << static_cast<int>(type)
                                                << ", tokens " << n_tokens);
                OneToken call = call_of(shape, type, n_tokens);
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

TEST(OneTokenCut, GateAndUpCoverEveryTile) {
    int n_resident = 0;
    int n_refilled = 0;
    int n_in_teams = 0;
    for_calls([&](const OneToken& call) {
        const OneTokenCut cut = cut_gate_up(h200(), call, {});
        const PackedMatrix& m = call.gate_up;
        expect_room(cut, m.type);
        EXPECT_LE(cut.shared.total, most_one_token_shared);
        EXPECT_EQ(cut.n_teams * cut.team_warps, cut.n_warps);
        EXPECT_LE(cut.n_teams, most_one_token_teams);
        EXPECT_GE(cut.n_chunks * cut.chunk_grains, divide_up(grains(m), cut.team_warps));
        EXPECT_LE(call.n_tokens * cut.n_blocks, std::max(call.n_tokens, 132));
        const int32_t n_teams = cut.n_blocks * cut.n_teams;
        const int32_t slabs = divide_up(call.n_slots * m.n_tiles, n_teams);
        // What is not refilled must hold every slab, each at a stage of every warp.
        const int64_t ring = int64_t{cut.team_warps} * cut.n_stages * cut.chunk_grains;
        if (cut.is_resident) {
            EXPECT_GE(ring, int64_t{slabs} * grains(m));
            EXPECT_GE(cut.n_stages, slabs);
        }
        n_resident += cut.is_resident ? 1 : 0;
        n_refilled += cut.is_resident ? 0 : 1;
        n_in_teams += cut.n_teams > 1 ? 1 : 0;
        // Sums of a group of slabs, twice where there are several groups.
        const int32_t group = 2 * cut.team_warps;
        EXPECT_GE(cut.sums_of_team, 64 * cut.team_warps * (slabs > group ? 2 * group : slabs));
        EXPECT_GE(cut.shared.slots - cut.shared.sums, cut.n_teams * cut.sums_of_team);
        EXPECT_LE(cut.n_warps, 16);  // add_warps takes no more
        EXPECT_GE(cut.shared.terms - cut.shared.codebooks,
                  room_for_tables(m.type, cut.book, most_slots_of_block(call, cut)));
        EXPECT_GE(cut.shared.largest - cut.shared.terms, 12 * 32 * cut.n_warps);
        EXPECT_GE(cut.shared.barriers - cut.shared.largest, cut.n_teams > 1 ? 4 * cut.n_warps : 0);
        expect_divides(cut.block_reciprocal, n_teams, call.n_slots * m.n_tiles);
        expect_divides(cut.tile_reciprocal, m.n_tiles, call.n_slots * m.n_tiles);
        expect_divides(cut.chunk_reciprocal, cut.n_chunks, slabs * cut.n_chunks);
        expect_divides(cut.warp_reciprocal, cut.n_warps, int64_t{cut.n_warps} * grains(m));
        expect_divides(cut.team_reciprocal, cut.team_warps, int64_t{cut.team_warps} * grains(m));
    });
    EXPECT_GT(n_resident, 10);
    EXPECT_GT(n_refilled, 10);
    EXPECT_GT(n_in_teams, 10);
}

TEST(OneTokenCut, DownCoversEveryUnit) {
    for_calls([](const OneToken& call) {
        const OneTokenCut cut = cut_down(h200(), call, {});
        const PackedMatrix& m = call.down;
        expect_room(cut, m.type);
        EXPECT_LE(cut.shared.total, most_one_token_shared);
        EXPECT_GE(cut.n_chunks * cut.chunk_grains, grains(m));
        EXPECT_LT((cut.n_chunks - 1) * cut.chunk_grains, grains(m));  // no chunk is empty
        EXPECT_EQ(cut.n_blocks % cut.cluster, 0);
        const int32_t n_units = divide_up(call.n_slots * cut.n_chunks, cut.cluster);
        EXPECT_LE(cut.n_warps, n_units);
        // Passes but for the last are whole rounds of the warps: a warp keeps its places of h.
        EXPECT_TRUE(cut.pass_units >= n_units || cut.pass_units % cut.n_warps == 0);
        const int32_t places = std::min(cut.pass_units, n_units);
        EXPECT_GE(cut.shared.sums - cut.shared.x,
                  128 * places * cut.chunk_grains * (m.type == PackedType::q4_k ? 4 : 1));
        EXPECT_GE(cut.shared.gate - cut.shared.unit_scales, 4 * places);
        EXPECT_GE(32 * cut.n_warps, 2 * call.n_slots);  // a thread for each factor
        EXPECT_LE((cut.n_warps + 1) / 2, 8);            // two lanes add up to eight warps each
        const int32_t clusters = cut.n_blocks / cut.cluster;
        const int32_t outputs = 16 * divide_up(m.n_tiles, clusters);
        EXPECT_GE(cut.shared.slots - cut.shared.sums, 4 * cut.n_warps * outputs);
        EXPECT_GE(cut.shared.partial - cut.shared.biases, 4 * outputs);
        if (cut.cluster > 1) {
            EXPECT_GE(cut.shared.codebooks - cut.shared.partial, 4 * outputs);
        }
        EXPECT_GE(cut.shared.unit_scales - cut.shared.codebooks,
                  room_for_tables(m.type, cut.book, call.n_slots));
        expect_divides(cut.block_reciprocal, clusters, m.n_tiles);
        expect_divides(cut.chunk_reciprocal, cut.n_chunks, call.n_slots * cut.n_chunks);
    });
}

// One codebook of all experts is one table, whatever the slots: of two and three bits where it can
// be bytes, of five where it is its own mirror.
TEST(OneTokenCut, OneCodebookIsOneTable) {
    const auto book_with = [](PackedType type, const Shape& shape, bool one,
                              bool is_quick = false) {
        OneToken call = call_of(shape, type, 1);
        if (one) give_one_codebook(call.gate_up, is_quick);
        return cut_gate_up(h200(), call, {}).book;
    };
    const Shape &small = shapes[0], &large = shapes[3];
    for (const PackedType type :
         {PackedType::kbit2, PackedType::kbit3, PackedType::kbit4_f32, PackedType::kbit5}) {
        EXPECT_EQ(book_with(type, small, false), Book::of_expert);
        EXPECT_EQ(book_with(type, large, false), Book::of_expert);
    }
    EXPECT_EQ(book_with(PackedType::kbit2, large, true), Book::of_expert);
    EXPECT_EQ(book_with(PackedType::kbit3, small, true), Book::of_expert);
    EXPECT_EQ(book_with(PackedType::kbit4_f32, small, true), Book::lanes);
    EXPECT_EQ(book_with(PackedType::kbit5, large, true), Book::of_expert);
    EXPECT_EQ(book_with(PackedType::kbit5, small, true, true), Book::lanes);
    EXPECT_EQ(book_with(PackedType::kbit5_f32, large, true, true), Book::lanes);
    for (const Shape& shape : {small, large}) {
        EXPECT_EQ(book_with(PackedType::kbit2, shape, true, true), Book::bytes);
        EXPECT_EQ(book_with(PackedType::kbit3_f32, shape, true, true), Book::bytes);
        EXPECT_EQ(book_with(PackedType::kbit4, shape, true, true), Book::lanes);
    }
    EXPECT_EQ(book_with(PackedType::nvfp4, large, true), Book::none);
}

// What the early start of the second kernel is for; see OneTokenTuning.
TEST(OneTokenCut, BlocksOfBothKernelsShareAMultiprocessor) {
    for_calls([](const OneToken& call) {
        const OneTokenTuning tuning;
        const int64_t bytes = call.gate_up.tile_stride() * call.gate_up.n_tiles +
                              call.down.tile_stride() * call.down.n_tiles;
        const Book book = book_of(call.gate_up);
        const bool one_book = book == Book::lanes || book == Book::bytes;
        const int64_t many =
            call.n_tokens > 1 && one_book ? tuning.many_bytes_of_one_book : tuning.many_bytes;
        if (call.n_tokens * call.n_slots * bytes >= many) return;
        const int32_t both = cut_gate_up(h200(), call, tuning).shared.total +
                             cut_down(h200(), call, tuning).shared.total;
        EXPECT_LE(both + 2 * 1024, sm_shared);
    });
}

// A block of down has whatever a block of gate and up leaves of a multiprocessor, not only the
// least that it is sure of.
TEST(OneTokenCut, DownTakesWhatGateAndUpLeave) {
    const OneToken call = call_of(shapes[5], PackedType::nvfp4, 1);
    const int32_t gate_up = cut_gate_up(h200(), call, {}).shared.total;
    const int32_t down = cut_down(h200(), call, {}).shared.total;
    EXPECT_GT(down, OneTokenTuning{}.down_few.most);
    EXPECT_LE(gate_up + down + 2 * 1024, sm_shared);
}

// Where no clusters are used and blocks may have less: every block has an SM for itself.
TEST(OneTokenCut, FitsOtherDevices) {
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
                const int32_t most = most_few_tokens(facts, few_tokens_shape(shape, type));
                const int32_t on_h200 = most_few_tokens(h200(), few_tokens_shape(shape, type));
                EXPECT_EQ(most > 0, on_h200 > 0) << shape.name << ", type " << int(type);
                for (int32_t n_tokens = 1; n_tokens <= most; ++n_tokens)
                    for (int one = 0; one < (has_codebook(type) ? 9 : 1); ++one, ++n) {
                        OneToken call = call_of(shape, type, n_tokens);
                        if (one % 3) give_one_codebook(call.gate_up, one % 3 == 2);
                        if (one / 3) give_one_codebook(call.down, one / 3 == 2);
                        const OneTokenTuning tuning = tuning_of(facts);
                        for (const OneTokenCut& cut :
                             {cut_gate_up(facts, call, tuning), cut_down(facts, call, tuning)}) {
                            expect_room(cut, type);
                            EXPECT_EQ(cut.cluster, 1);
                            EXPECT_LE(cut.shared.total, other.of_block) << shape.name;
                            EXPECT_GT(2 * (cut.shared.total + 1024), other.of_sm) << shape.name;
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
            const bool has_whole_groups =  // of q4_k, 256 each
                type != PackedType::q4_k ||
                (shape.hidden % 256 == 0 && shape.intermediate % 256 == 0);
            EXPECT_EQ(most_few_tokens(h200(), few_tokens_shape(shape, type)),
                      has_whole_groups ? 16 : 0)
                << shape.name << static_cast<int>(type);
        }
    }
}

TEST(FewTokens, NeverWithWhatTheKernelsDoNotRead) {
    const Shape odd{"", 2048, 96, 8};  // k of down is no multiple of 64
    EXPECT_EQ(most_few_tokens(h200(), few_tokens_shape(odd, PackedType::bf16)), 0);
    const Shape plain{"", 2048, 768, 8};
    EXPECT_EQ(most_few_tokens(h200(), few_tokens_shape(plain, PackedType::f32)), 0);
    const Shape grouped{"", 2048, 704, 8};  // nor of 256
    EXPECT_EQ(most_few_tokens(h200(), few_tokens_shape(grouped, PackedType::q4_k)), 0);
}

}  // namespace
}  // namespace moe::cuda
