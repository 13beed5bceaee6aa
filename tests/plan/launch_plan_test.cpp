// The LaunchPlan of CUDA plans on an H200, on sm_80 and on sm_86: ranges of T, their decisions at
// the thresholds of the tuning table, and the launches of the gemv family.
#include "libmoe/plan/launch_plan.hpp"

#include <set>

#include "libmoe/cuda/kernel_limits.hpp"
#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/plan/explain_launches.hpp"
#include "tests/formats/sources.hpp"
#include "tests/plan/fake_device.hpp"
#include "tests/plan/schema.hpp"

namespace moe {
namespace {

using cuda::LaunchRange;
using test::chosen_kernel;
using test::FakeDevice;
using test::FakeLayer;
using test::h200;
using test::sm80;
using test::sm86;

// --- the tuning table

TEST(Tuning, EveryArchitectureHasARow) {
    using cuda::Architecture;
    const std::pair<FakeDevice, Architecture> all[] = {
        {sm80(), Architecture::sm80},
        {sm86(), Architecture::sm86},
        {test::fake_device("sm89", 8, 9, 128, 101376), Architecture::sm89},
        {h200(), Architecture::sm90},
        {test::fake_device("sm100", 10, 0, 148, 232448), Architecture::sm100},
        {test::fake_device("sm120", 12, 0, 170, 101376), Architecture::sm120}};
    for (const auto& [device, architecture] : all) {
        const Tuning tuning = tuning_of(device.facts);
        EXPECT_EQ(tuning.architecture, architecture) << device.name;
        EXPECT_EQ(std::string(tuning.measured_on) == "not run", architecture != Architecture::sm90)
            << device.name << ": " << tuning.measured_on;
        const GemvTuning& gemv = tuning.gemv;
        for (const SmemLimits& limits :
             {gemv.gate_up_small, gemv.down_small, gemv.gate_up_large, gemv.down_large}) {
            EXPECT_GT(limits.max_warps, 0) << device.name;
            EXPECT_GT(limits.min_bytes, 0) << device.name;
            EXPECT_LE(limits.min_bytes, limits.max_bytes) << device.name;
            EXPECT_LE(limits.max_bytes, device.facts.shared_bytes) << device.name;
        }
    }
}

TEST(Tuning, AnUnknownArchitectureHasTheFirstRow) {
    const FakeDevice later = test::fake_device("later", 13, 0, 200, 232448);
    EXPECT_EQ(later.facts.architecture(), cuda::Architecture::unknown);
    EXPECT_EQ(tuning_of(later.facts).architecture, cuda::Architecture::sm80);
}

// --- ranges

FakeLayer qwen3_30b(const char* format = "nvfp4", int64_t max_tokens = 20000) {
    return {test::plain_layer(2048, 768, 128, 8), format, max_tokens};
}

void expect_ranges_cover(const moe_test::Plan& plan) {
    const auto& ranges = plan->launch_plan().ranges;
    ASSERT_FALSE(ranges.empty());
    int64_t last = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
        EXPECT_GT(ranges[i].max_tokens, last);
        last = ranges[i].max_tokens;
        if (i > 0) {
            EXPECT_FALSE(ranges[i].has_same_decisions(ranges[i - 1])) << last;
        }
    }
    EXPECT_EQ(last, plan->max_tokens);
    EXPECT_EQ(&plan->launch_plan().range(1), &ranges.front());
    EXPECT_EQ(&plan->launch_plan().range(last), &ranges.back());
    EXPECT_EQ(&plan->launch_plan().range(last + 1), &ranges.back());
}

TEST(LaunchRanges, AscendAndCoverAllTokens) {
    for (const FakeDevice& device : {h200(), sm80(), sm86()})
        for (const char* format : {"bf16", "nvfp4", "kbit4", "q6_k", "iq3_s", "f32"})
            for (const int64_t max_tokens : {1, 16, 48, 49, 512, 20000}) {
                SCOPED_TRACE(testing::Message()
                             << device.name << " " << format << " " << max_tokens);
                expect_ranges_cover(cuda_plan(device, qwen3_30b(format, max_tokens)));
            }
}

// expected(range) holds up to last_true tokens and no further.
template <class Holds>
void expect_changes_after(const moe_test::Plan& plan, int64_t last_true, const char* what,
                          Holds holds) {
    const cuda::LaunchPlan& launch = plan->launch_plan();
    for (const int64_t n : {int64_t{1}, last_true / 2 + 1, last_true}) {
        EXPECT_TRUE(holds(launch.range(n))) << what << " at " << n;
    }
    for (const int64_t n : {last_true + 1, 2 * last_true, plan->max_tokens}) {
        EXPECT_FALSE(holds(launch.range(n))) << what << " at " << n;
    }
}

bool has_block_select(const LaunchRange& range) {
    return range.select == cuda::SelectKernel::block;
}
bool has_small_logits(const LaunchRange& range) {
    return range.logits == cuda::LogitsKernel::small_batch;
}

TEST(LaunchRanges, DecideOnAnH200WhereTheTableSays) {
    const moe_test::Plan plan = cuda_plan(h200(), qwen3_30b());
    expect_changes_after(plan, 32, "logits", has_small_logits);
    // Ten rows of an expert on average; from 256 on all tiles are wide.
    expect_changes_after(plan, 160, "narrow tiles alone",
                         [](const LaunchRange& range) { return range.tiles.are_narrow(); });
    expect_changes_after(plan, 4095, "other tiles", [](const LaunchRange& range) {
        return range.tiles.down != cuda::TileWidths::wide;
    });
    expect_changes_after(plan, 64, "gate in combine",
                         [](const LaunchRange& range) { return range.gate_in_combine; });
    expect_changes_after(plan, 4 * 132, "selection", has_block_select);
    // 8 slots of a token: up to 8192 slots in one launch, to 4096 in one block for moe_dispatch.
    expect_changes_after(plan, 1024, "sort", [](const LaunchRange& range) {
        return range.sort == cuda::SortKernel::fused;
    });
    expect_changes_after(plan, 512, "sort of moe_dispatch", [](const LaunchRange& range) {
        return range.dispatch_sort == cuda::SortKernel::block;
    });
    // 2^22 values of y, 8 rows of 2048 for each token.
    expect_changes_after(plan, 256, "float32 y",
                         [](const LaunchRange& range) { return range.y_type == MOE_TYPE_F32; });
    for (const LaunchRange& range : plan->launch_plan().ranges) EXPECT_TRUE(range.indexes_rows);
}

// The average of four experts is above ten from 20 tokens on; none has more than 48 rows up to 48.
TEST(LaunchRanges, NarrowTilesServeEveryCallThatFitsThem) {
    const moe_test::Plan plan = cuda_plan(h200(), {test::plain_layer(2048, 768, 4, 2), "nvfp4"});
    expect_changes_after(plan, 48, "narrow tiles alone",
                         [](const LaunchRange& range) { return range.tiles.are_narrow(); });
}

// Middle tiles are for 42 to 90 rows of an expert on average; with fewer and with more an expert
// has narrow or wide ones by its own rows.
TEST(LaunchRanges, MiddleTilesOnAnH200StandBetweenTwoRangesOfBothWidths) {
    using cuda::TileWidths;
    for (const int32_t n_experts : {1, 2, 7, 8, 60, 128, 384})
        for (const int32_t k : {1, 2, 8}) {
            if (k > n_experts) continue;
            const moe_test::Plan plan =
                cuda_plan(h200(), {test::plain_layer(2048, 768, n_experts, k), "q4_k", 8192});
            for (int64_t n = 1; n <= 8192; ++n) {
                const double rows = static_cast<double>(n) * k / n_experts;
                const TileWidths expected = n <= 48 || rows <= 10      ? TileWidths::narrow
                                            : rows >= 256              ? TileWidths::wide
                                            : rows >= 42 && rows <= 90 ? TileWidths::middle
                                                                       : TileWidths::both;
                ASSERT_EQ(plan->launch_plan().range(n).tiles, (cuda::MlpTiles{expected, expected}))
                    << n << " tokens, " << k << " of " << n_experts;
            }
        }
}

// Weights of 16 bits need not be dequantized: an expert's rows do not matter, their average does.
TEST(LaunchRanges, WeightsOfSixteenBitsHaveOneWidth) {
    using cuda::TileWidths;
    const moe_test::Plan bf16 = cuda_plan(h200(), qwen3_30b("bf16"));
    for (const LaunchRange& range : bf16->launch_plan().ranges) {
        const TileWidths widths = range.max_tokens <= 160    ? TileWidths::narrow
                                  : range.max_tokens <= 1440 ? TileWidths::middle
                                                             : TileWidths::wide;
        EXPECT_EQ(range.tiles, (cuda::MlpTiles{widths, widths})) << range.max_tokens;
    }
    FakeLayer mixed = qwen3_30b("nvfp4");
    mixed.others[MOE_ROLE_DOWN] = "bf16";
    const moe_test::Plan plan = cuda_plan(h200(), mixed);
    EXPECT_EQ(plan->launch_plan().range(512).tiles,
              (cuda::MlpTiles{TileWidths::both, TileWidths::wide}));
    EXPECT_NE(launches_text(*plan).find("tiles wide and narrow, of down wide"), std::string::npos);
    EXPECT_EQ(plan->launch_plan().range(1024).tiles,
              (cuda::MlpTiles{TileWidths::middle, TileWidths::middle}));
}

TEST(LaunchRanges, OnSm80AndSm86ThePortableKernelsReadRowsByIndex) {
    for (const FakeDevice& device : {sm80(), sm86()}) {
        const moe_test::Plan plan = cuda_plan(device, qwen3_30b());
        EXPECT_EQ(chosen_kernel(plan, MOE_STAGE_EXPERTS), "sm80_nvfp4_bf16_grouped_gemm_gate_up");
        expect_changes_after(plan, 256, "float32 y",
                             [](const LaunchRange& range) { return range.y_type == MOE_TYPE_F32; });
        expect_changes_after(plan, 32, "logits", has_small_logits);
        expect_changes_after(plan, 4 * device.facts.n_sms, "selection", has_block_select);
        for (const LaunchRange& range : plan->launch_plan().ranges) {
            const auto widths = range.max_tokens > 48 * 16   ? cuda::TileWidths::wide
                                : range.max_tokens > 26 * 16 ? cuda::TileWidths::middle
                                                             : cuda::TileWidths::narrow;
            EXPECT_EQ(range.tiles, (cuda::MlpTiles{widths, widths})) << device.name;
            EXPECT_FALSE(range.indexes_rows) << device.name;
        }
    }
}

TEST(LaunchRanges, TheLibraryTakesTheLogitsOfManyTokens) {
    moe_test::Plan plan = cuda_plan(h200(), qwen3_30b());
    plan->cuda.logits_library.library = reinterpret_cast<const cuda::CublasLt*>(plan.get());
    cuda::LaunchPlan launch(&plan->runtime->memory);
    make_launch_plan(*plan, launch);
    EXPECT_EQ(launch.range(32).logits, cuda::LogitsKernel::small_batch);
    EXPECT_EQ(launch.range(33).logits, cuda::LogitsKernel::tiled);
    EXPECT_EQ(launch.range(255).logits, cuda::LogitsKernel::tiled);
    EXPECT_EQ(launch.range(256).logits, cuda::LogitsKernel::library);
}

// More experts than the sort of one launch takes, or one block selects from.
TEST(LaunchRanges, ManyExpertsHaveASortAndASelectionOfTheirOwn) {
    const moe_test::Plan plan =
        cuda_plan(h200(), {test::plain_layer(1024, 256, 1024, 8), "nvfp4", 4096});
    expect_changes_after(plan, 512, "sort", [](const LaunchRange& range) {
        return range.sort == cuda::SortKernel::block;
    });
    for (const LaunchRange& range : plan->launch_plan().ranges) {
        EXPECT_NE(range.sort, cuda::SortKernel::fused);
        EXPECT_FALSE(has_block_select(range));
    }
}

// A token's bits may not depend on the others of its call.
TEST(LaunchRanges, OfABatchInvariantPlanDoNotChangeResults) {
    FakeLayer layer = qwen3_30b();
    layer.batch_invariant = true;
    const moe_test::Plan plan = cuda_plan(h200(), layer);
    for (const LaunchRange& range : plan->launch_plan().ranges) {
        EXPECT_FALSE(has_small_logits(range));
        EXPECT_EQ(range.y_type, MOE_TYPE_F32);
    }
    EXPECT_EQ(plan->launch_plan().experts_gemv.max_tokens, 0);
}

// Middle tiles are for layers with many work items, and for types that have kernels for them,
// matrix by matrix.
TEST(LaunchRanges, MiddleTilesWantKernelsAndWork) {
    using cuda::TileWidths;
    const auto tiles_at_512 = [](const FakeLayer& layer) {
        return cuda_plan(sm80(), layer)->launch_plan().range(512).tiles;
    };
    constexpr TileWidths middle = TileWidths::middle, narrow = TileWidths::narrow;
    EXPECT_EQ(tiles_at_512(qwen3_30b("q4_k")), (cuda::MlpTiles{middle, middle}));
    EXPECT_EQ(tiles_at_512(qwen3_30b("q3_k")), (cuda::MlpTiles{narrow, narrow}));
    FakeLayer mixed = qwen3_30b("q4_k");
    mixed.others[MOE_ROLE_DOWN] = "q8_0";
    EXPECT_EQ(tiles_at_512(mixed), (cuda::MlpTiles{middle, narrow}));
    EXPECT_NE(launches_text(*cuda_plan(sm80(), mixed)).find("tiles middle, of down narrow"),
              std::string::npos);
    FakeLayer apart = qwen3_30b("q4_k");
    apart.others[MOE_ROLE_UP] = "q8_0";
    EXPECT_EQ(tiles_at_512(apart), (cuda::MlpTiles{narrow, middle}));
    // Groups that end within a block.
    FakeLayer int4 = qwen3_30b("bf16");
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
        int4.unnamed[role] =
            test::int_format(MOE_PACKING_BIT_STREAM, 4, 32, MOE_TYPE_BF16, MOE_ZERO_POINT_MIDDLE);
    EXPECT_EQ(tiles_at_512(int4), (cuda::MlpTiles{narrow, narrow}));
    // Two work items for each of 128 experts.
    EXPECT_EQ(tiles_at_512({test::plain_layer(2048, 96, 128, 8), "nvfp4"}),
              (cuda::MlpTiles{narrow, narrow}));
}

// Integers of 5 bits have no grouped GEMM of Hopper's. Their experts have 3 rows on average at 48
// tokens, and more than 24 from 385 tokens on.
TEST(LaunchRanges, TilesAreChosenForExpertsAndDenseMatricesByTheirFamilies) {
    using cuda::TileWidths;
    FakeLayer layer = qwen3_30b("bf16");
    layer.desc.shared_intermediate = 768;
    layer.desc.shared_activation = MOE_ACTIVATION_SILU;
    layer.desc.shared_is_gated = 1;
    const moe_format int5 =
        test::int_format(MOE_PACKING_BIT_STREAM, 5, 32, MOE_TYPE_BF16, MOE_ZERO_POINT_MIDDLE);
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
        layer.unnamed[role] = int5;
    const moe_test::Plan plan = cuda_plan(h200(), layer);
    const auto at = [&](int64_t n_tokens) { return plan->launch_plan().range(n_tokens); };
    EXPECT_TRUE(at(768).tiles.are_narrow());
    EXPECT_EQ(at(769).tiles, (cuda::MlpTiles{TileWidths::wide, TileWidths::wide}));
    EXPECT_EQ(at(48).dense_tiles, TileWidths::narrow);
    EXPECT_EQ(at(49).dense_tiles, TileWidths::wide);
    for (const moe_role role : {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN})
        layer.unnamed[role] = int5;
    const moe_test::Plan portable = cuda_plan(h200(), layer);
    EXPECT_EQ(portable->launch_plan().range(48).dense_tiles, TileWidths::narrow);
    EXPECT_EQ(portable->launch_plan().range(49).dense_tiles, TileWidths::wide);
}

TEST(LaunchRanges, WideFeaturesAreNotReadByTheirIndex) {
    const moe_test::Plan plan =
        cuda_plan(h200(), {test::plain_layer(4096, 14336, 8, 2), "nvfp4", 20000});
    for (const LaunchRange& range : plan->launch_plan().ranges) EXPECT_FALSE(range.indexes_rows);
}

// --- names and gemv launches

TEST(LaunchNames, OfTheGroupedGemmSayTheirTiles) {
    const moe_test::Plan plan = cuda_plan(h200(), qwen3_30b("bf16"));
    const cuda::LaunchPlan& launch = plan->launch_plan();
    EXPECT_EQ(launch.gate_up.wide.view(), "sm90_bf16_bf16_grouped_gemm_gate_up_wide");
    EXPECT_EQ(launch.gate_up.narrow.view(), "sm90_bf16_bf16_grouped_gemm_gate_up_narrow");
    EXPECT_EQ(launch.gate_up.middle.view(), "sm90_bf16_bf16_grouped_gemm_gate_up_middle");
    EXPECT_EQ(launch.down.wide.view(), "sm90_bf16_bf16_grouped_gemm_down_wide");
    EXPECT_EQ(launch.down.middle.view(), "sm90_bf16_bf16_grouped_gemm_down_middle");
    EXPECT_EQ(launch.down.narrow.view(), "sm90_bf16_bf16_grouped_gemm_down_narrow");
}

TEST(GemvLaunches, ThereIsOneForEveryNumberOfTokens) {
    for (const FakeDevice& device : {h200(), sm80(), sm86()}) {
        const moe_test::Plan plan = cuda_plan(device, qwen3_30b(), "*_gemv_*");
        const cuda::GemvLaunches& gemv = plan->launch_plan().experts_gemv;
        EXPECT_EQ(gemv.max_tokens, 32) << device.name;
        EXPECT_EQ(gemv.all.size(), 128u) << device.name;
        EXPECT_EQ(plan->launch_plan().shared_gemv.max_tokens, 0) << device.name;
        const bool is_hopper = device.facts.major == 9;
        for (int32_t n = 1; n <= gemv.max_tokens; ++n) {
            const cuda::GemvLaunch& launch = gemv.at(n, false, false);
            EXPECT_EQ(launch.kernels,
                      is_hopper ? cuda::Architecture::sm90 : cuda::Architecture::sm80);
            EXPECT_EQ(launch.gate_up_type, PackedType::nvfp4);
            EXPECT_LE(launch.gate_up.shared.total, device.facts.shared_bytes);
            EXPECT_LE(launch.down.shared.total, device.facts.shared_bytes);
            const std::string name(launch.gate_up_name.view());
            const std::string plain =
                is_hopper ? "sm90_nvfp4_bf16_gemv_gate_up" : "sm80_nvfp4_bf16_gemv_gate_up";
            EXPECT_EQ(name, launch.gate_up.n_groups > 1 ? plain + "_split_k" : plain) << n;
        }
    }
}

// Rows with an expert each have parts of the SMs of their own, and there are no more than have
// enough of them.
TEST(GemvLaunches, OfRowsDivideTheGpuByThem) {
    for (const FakeDevice& device : {h200(), sm80(), sm86()}) {
        const moe_test::Plan plan = cuda_plan(device, qwen3_30b(), "*_gemv_*");
        const cuda::GemvLaunches& rows = plan->launch_plan().expert_rows_gemv;
        EXPECT_EQ(rows.max_tokens, device.facts.n_sms / 8 / 8) << device.name;
        EXPECT_GE(rows.max_tokens, 1) << device.name;
        for (int32_t n = 1; n <= rows.max_tokens; ++n) {
            const cuda::GemvLaunch& launch = rows.at(n, false, false);
            const int32_t sms = device.facts.n_sms / (8 * n);
            EXPECT_EQ(launch.gate_up.n_blocks, std::min(sms, 2 * 768 / 16)) << n;
            EXPECT_LE(launch.down.n_blocks, sms) << n;
            EXPECT_LE(launch.gate_up.shared.total, device.facts.shared_bytes);
            EXPECT_LE(launch.down.shared.total, device.facts.shared_bytes);
        }
    }
    // Rows of 20 experts leave six SMs to each.
    const FakeLayer many{test::plain_layer(2048, 768, 256, 20), "nvfp4", 16};
    const moe_test::Plan plan = cuda_plan(h200(), many, "*_gemv_*");
    EXPECT_EQ(plan->launch_plan().expert_rows_gemv.max_tokens, 0);
    EXPECT_EQ(plan->launch_plan().experts_gemv.max_tokens, 32);
}

TEST(GemvLaunches, NameTheCodebookModeAndSplitK) {
    const FakeLayer mixtral{test::plain_layer(4096, 14336, 8, 2), "kbit4", 16};
    const moe_test::Plan plan = cuda_plan(h200(), mixtral, "*_gemv_*");
    const cuda::GemvLaunches& gemv = plan->launch_plan().experts_gemv;
    std::set<std::string> names;
    for (const cuda::GemvLaunch& launch : gemv.all) {
        names.insert(launch.gate_up_name.c_str());
        names.insert(launch.down_name.c_str());
    }
    EXPECT_TRUE(names.count("sm90_kbit4_bf16_gemv_gate_up_split_k"));
    EXPECT_TRUE(names.count("sm90_kbit4_bf16_gemv_gate_up_split_k_shared_codebook"));
    EXPECT_TRUE(names.count("sm90_kbit4_bf16_gemv_down"));
    EXPECT_TRUE(names.count("sm90_kbit4_bf16_gemv_down_shared_codebook"));
    EXPECT_EQ(gemv.at(1, true, false).gate_up.codebook_mode, cuda::CodebookMode::shared_lanes);
    EXPECT_EQ(gemv.at(1, true, false).down.codebook_mode, cuda::CodebookMode::per_expert);
    EXPECT_EQ(gemv.at(1, false, true).down.codebook_mode, cuda::CodebookMode::shared_lanes);
}

// Gate and up of different types: a launch each.
FakeLayer with_gate_apart() {
    FakeLayer layer = qwen3_30b("q4_k");
    layer.others[MOE_ROLE_GATE] = "q5_k";
    return layer;
}

TEST(GemvLaunches, OfGateAndUpOfDifferentTypesAreThree) {
    for (const FakeDevice& device : {h200(), sm80()}) {
        const moe_test::Plan plan = cuda_plan(device, with_gate_apart());
        const cuda::GemvLaunches& gemv = plan->launch_plan().experts_gemv;
        ASSERT_GT(gemv.max_tokens, 0);
        const cuda::GemvLaunch& one = gemv.at(1, false, false);
        EXPECT_EQ(one.gate_up_type, PackedType::q5_k);
        EXPECT_EQ(one.up_type, PackedType::q4_k);
        EXPECT_EQ(one.gate_up.tile_reciprocal, one.up.tile_reciprocal);
        EXPECT_EQ(one.up_name.view(), one.gate_up_name.view());
        // The gate's block and that of up have an SM together, where kernels overlap.
        const int32_t both = one.gate_up.shared.total + one.up.shared.total + 2 * 1024;
        if (device.facts.major == 9)
            EXPECT_LE(both, 233472);
        else
            EXPECT_GT(both, 167936);
        const moe_test::Plan fused = cuda_plan(device, qwen3_30b("q4_k"));
        EXPECT_EQ(fused->launch_plan().experts_gemv.at(1, false, false).up_type, PackedType::none);
    }
    const moe_test::Plan plan = cuda_plan(h200(), with_gate_apart());
    EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS, 1), "sm90_q5_k+q4_k_bf16_gemv_gate_up");
    EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS),
              "sm90_q5_k+q4_k_bf16_grouped_gemm_gate_up");
    EXPECT_NE(launches_text(*plan).find("; up "), std::string::npos);
}

// bfloat16 operands hold a float16 in two parts; byte operands and those of float16 in one.
TEST(GemvLaunches, OfFloat16HaveLowPartsWhereOperandsAreBfloat16) {
    for (const char* format : {"bf16", "nvfp4", "mxfp4", "f16", "q8_0", "q4_k", "kbit4"}) {
        FakeLayer layer = qwen3_30b(format);
        const bool has_parts =
            cuda::gemv_has_bf16_operands(packed_type_of(test::format_named(format).format));
        for (const auto& [x, type] :
             {std::pair{MOE_TYPE_F16, MOE_TYPE_BF16}, std::pair{MOE_TYPE_BF16, MOE_TYPE_F16},
              std::pair{MOE_TYPE_F16, MOE_TYPE_F16}}) {
            layer.x_type = x;
            layer.intermediate_type = type;
            const moe_test::Plan plan = cuda_plan(h200(), layer);
            const cuda::GemvLaunches& gemv = plan->launch_plan().experts_gemv;
            ASSERT_GT(gemv.max_tokens, 0) << format;
            for (int32_t n = 1; n <= gemv.max_tokens; ++n) {
                const cuda::GemvLaunch& one = gemv.at(n, false, false);
                EXPECT_EQ(one.gate_up.low_part > 0,
                          has_parts && type == MOE_TYPE_F16 && x == MOE_TYPE_F16)
                    << format;
                EXPECT_EQ(one.down.low_part > 0, has_parts && type == MOE_TYPE_F16) << format;
                EXPECT_LE(one.gate_up.shared.x + 2 * one.gate_up.low_part,
                          one.gate_up.shared.accum);
                EXPECT_LE(one.down.shared.x + 2 * one.down.low_part, one.down.shared.accum);
            }
        }
    }
}

FakeLayer with_shared_expert(int32_t intermediate) {
    FakeLayer layer = qwen3_30b();
    layer.desc.shared_intermediate = intermediate;
    layer.desc.shared_activation = MOE_ACTIVATION_SILU;
    layer.desc.shared_is_gated = 1;
    return layer;
}

TEST(GemvLaunches, ASharedExpertLikeTheOthersIsOneMoreSlot) {
    const moe_test::Plan joined = cuda_plan(h200(), with_shared_expert(768));
    EXPECT_GT(joined->launch_plan().experts_and_shared_gemv.max_tokens, 0);
    EXPECT_GT(joined->launch_plan().shared_gemv.max_tokens, 0);  // of moe_finish
    const moe_test::Plan apart = cuda_plan(h200(), with_shared_expert(1024));
    EXPECT_EQ(apart->launch_plan().experts_and_shared_gemv.max_tokens, 0);
    EXPECT_GT(apart->launch_plan().shared_gemv.max_tokens, 0);
}

FakeLayer with_expert_norm(int32_t top_k, int64_t max_tokens = 20000) {
    FakeLayer layer = with_shared_expert(768);
    layer.max_tokens = max_tokens;
    layer.desc.top_k = top_k;
    layer.desc.has_expert_norm = 1;
    return layer;
}

// Rows are normalised before they are added up: there is no launch that makes sums, with the shared
// expert or without, and rows stay float32.
TEST(GemvLaunches, OfAnExpertNormAreThoseOfRows) {
    for (const FakeDevice& device : {h200(), sm80(), sm86()}) {
        const moe_test::Plan plan = cuda_plan(device, with_expert_norm(8), "*_gemv_*");
        const cuda::LaunchPlan& launch = plan->launch_plan();
        const int32_t most = device.facts.n_sms / 8 / 8;
        EXPECT_EQ(launch.experts_gemv.max_tokens, 0) << device.name;
        EXPECT_EQ(launch.experts_and_shared_gemv.max_tokens, 0) << device.name;
        EXPECT_EQ(launch.expert_rows_gemv.max_tokens, most) << device.name;
        EXPECT_GT(launch.shared_gemv.max_tokens, 0) << device.name;
        EXPECT_EQ(plan->chosen(MOE_STAGE_EXPERTS, 1).most_tokens, most) << device.name;
        EXPECT_EQ(plan->chosen(MOE_STAGE_EXPERTS, most + 1).tokens, Tokens::any) << device.name;
        for (const LaunchRange& range : launch.ranges) EXPECT_EQ(range.y_type, MOE_TYPE_F32);
    }
    // Rows of 20 experts leave six SMs to each.
    const moe_test::Plan none = cuda_plan(h200(), with_expert_norm(20, 16));
    EXPECT_EQ(none->launch_plan().expert_rows_gemv.max_tokens, 0);
    EXPECT_EQ(none->chosen(MOE_STAGE_EXPERTS, 1).tokens, Tokens::any);
    for (const Candidate& candidate : none->candidates)
        if (candidate.stage == MOE_STAGE_EXPERTS && candidate.tokens == Tokens::small_batch) {
            EXPECT_FALSE(candidate.applicable);
            EXPECT_STREQ(candidate.reason->code, "expert_norm");
        }
}

// --- what explain says of them

TEST(ExplainLaunches, FollowTheSchemaAndNameWhatIsLaunched) {
    const auto schema = test::explain_schema();
    for (const FakeDevice& device : {h200(), sm80(), sm86()})
        for (const char* format : {"bf16", "kbit3", "q6_k", "iq3_s", "f32"}) {
            const moe_test::Plan plan = cuda_plan(device, qwen3_30b(format));
            JsonWriter writer;
            writer.object([&] { write_launches(writer, *plan); });
            const auto launches = nlohmann::json::parse(writer.take())["launches"];
            test::Validator(schema).check(launches, schema["properties"]["launches"], "launches");
            const auto& ranges = plan->launch_plan().ranges;
            ASSERT_EQ(launches["ranges"].size(), ranges.size());
            EXPECT_EQ(launches["ranges"][0]["min_tokens"], 1);
            for (size_t i = 0; i < ranges.size(); ++i) {
                EXPECT_EQ(launches["ranges"][i]["max_tokens"], ranges[i].max_tokens);
                size_t n_gemms = 2;
                for (const auto widths : {ranges[i].tiles.gate_up, ranges[i].tiles.down})
                    if (widths == cuda::TileWidths::both) ++n_gemms;
                EXPECT_EQ(launches["ranges"][i]["kernels"].size(), n_gemms) << format;
            }
            const int32_t n_gemv = plan->launch_plan().experts_gemv.max_tokens +
                                   plan->launch_plan().expert_rows_gemv.max_tokens;
            const size_t modes = format == std::string("kbit3") ? 2 : 1;
            EXPECT_EQ(launches["gemv"].size(), static_cast<size_t>(n_gemv) * modes) << format;
            auto broken = launches;
            broken["ranges"][0]["sort"] = "bubble";
            EXPECT_FALSE(test::Validator(schema).holds(broken, schema["properties"]["launches"]));
        }
}

TEST(ExplainLaunches, TextHasALineForEachRangeAndLaunch) {
    const moe_test::Plan plan = cuda_plan(h200(), qwen3_30b("bf16"));
    const std::string text = launches_text(*plan);
    EXPECT_EQ(text.find("tokens 1 to 32: logits small_batch, select block, sort fused, rows "
                        "indexed, tiles narrow, y f32, gate in combine; "
                        "sm90_bf16_bf16_grouped_gemm_gate_up_narrow, "
                        "sm90_bf16_bf16_grouped_gemm_down_narrow\n"),
              0u)
        << text;
    EXPECT_NE(text.find("gemv, 1 tokens of experts, codebooks none: sm90_bf16_bf16_gemv_gate_up"),
              std::string::npos);
    EXPECT_EQ(launches_text(*test::cpu_plan(qwen3_30b("bf16"))), "");
}

// The backend of a build with CUDA says how large the workspace is.
TEST(ExplainLaunches, AWholeExplanationOfACudaPlanFollowsTheSchema) {
    if (!cuda::is_built()) GTEST_SKIP() << "a build without CUDA does not know the workspace";
    const auto schema = test::explain_schema();
    const moe_test::Plan plan = cuda_plan(h200(), with_shared_expert(768));
    const auto json = nlohmann::json::parse(explain_json(*plan));
    test::Validator(schema).check(json, schema, "explain");
    EXPECT_EQ(json["stages"][2]["candidates"][0]["down_kernel"], "sm90_nvfp4_bf16_gemv_down");
    EXPECT_NE(explain_text(*plan).find("sm90_nvfp4_bf16_gemv_gate_up, sm90_nvfp4_bf16_gemv_down"),
              std::string::npos);
}

}  // namespace
}  // namespace moe
