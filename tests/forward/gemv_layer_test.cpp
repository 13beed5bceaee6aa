// Whole layers through the gemv and gemm kernels, against the reference kernels on the same
// weights: formats that differ by role, 16-bit activations, and routings from one expert to all.
#include <gtest/gtest.h>
#include <cstring>

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/tile_permission.hpp"
#include "libmoe/formats/format.hpp"
#include "tests/support/instruction_set.hpp"
#include "tests/support/layer_case.hpp"
#include "tests/support/matrices.hpp"

namespace moe_test {
namespace {

constexpr int32_t n_experts = 6, top_k = 2;

moe_layer_desc mixed_desc(int32_t hidden, int32_t intermediate) {
    auto desc = moe::test::plain_layer(hidden, intermediate, n_experts, top_k);
    desc.shared_intermediate = intermediate;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    return desc;
}

struct Mix {
    const char *gate, *up, *down, *shared;
    int32_t hidden, intermediate;
};
constexpr Mix mixes[] = {{"q4_k", "q4_k", "q6_k", "q8_0", 512, 256},
                         {"q5_k", "q4_k", "q6_k", "q5_k", 256, 256},
                         {"nvfp4", "mxfp4", "bf16", "nvfp4", 96, 160},
                         {"q4_0", "q5_1", "iq4_nl", "q8_0", 352, 96},
                         {"fp8_128x128", "fp8_128x128", "kbit4", "bf16", 256, 384}};

class MixedLayer {
  public:
    explicit MixedLayer(const Mix& mix)
        : tensors_(mixed_desc(mix.hidden, mix.intermediate),
                   {.everywhere = "f32",
                    .formats = {{MOE_ROLE_GATE, mix.gate},
                                {MOE_ROLE_UP, mix.up},
                                {MOE_ROLE_DOWN, mix.down},
                                {MOE_ROLE_SHARED_GATE, mix.shared},
                                {MOE_ROLE_SHARED_UP, mix.shared},
                                {MOE_ROLE_SHARED_DOWN, mix.shared}}}),
          hidden(mix.hidden) {}

    struct Options {
        int64_t max_tokens = 0;  // 0: as many as there are
        bool batch_invariant = false;
        bool to_int8 = false;
        bool is_packed = false;
        const char* kernels = nullptr;          // kernel_filter
        std::string* experts_kernel = nullptr;  // the name of what takes the mean number of rows
    };

    // n tokens whose experts are given; values of x and the result in float32.
    Floats run(const char* instruction_set, moe_type type, int32_t n_threads, const Floats& x,
               const std::vector<int32_t>& ids, const Options& options) const {
        const moe::test::InstructionSet most(instruction_set);
        const auto n = static_cast<int64_t>(x.size()) / hidden;
        const Runtime runtime = make_runtime(n_threads);
        auto desc = sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.layer = &tensors_.layer.desc;
        desc.x_type = type;
        desc.formats = tensors_.formats;
        desc.n_formats = MOE_ROLE_COUNT;
        desc.max_tokens = std::max(n, options.max_tokens);
        desc.batch_invariant = options.batch_invariant;
        desc.kernel_filter = options.kernels;
        if (options.is_packed) desc.residency = MOE_RESIDENCY_PACKED;
        if (options.to_int8) desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_INT8;
        const Plan plan = make_plan(runtime.get(), desc);
        if (options.experts_kernel) {
            const char* name = nullptr;
            must(moe_plan_kernel(plan.get(), MOE_STAGE_EXPERTS, n, &name), "moe_plan_kernel");
            *options.experts_kernel = name;
        }
        auto weights_desc = sized<moe_weights_desc>();
        weights_desc.tensors = tensors_.tensors.data();
        weights_desc.n_tensors = static_cast<uint32_t>(tensors_.tensors.size());
        const Weights weights = load_weights(plan.get(), weights_desc);
        const Workspace workspace = make_workspace(runtime.get(), plan.get());
        const Bytes packed = pack(x, type);
        Bytes out(packed.size(), std::byte{0xFF});
        const Floats routing_weights(ids.size(), 0.5f);
        auto args = forward_args(n, packed.data(), out.data());
        args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        args.ids = ids.data();
        args.weights = routing_weights.data();
        must(moe_forward(plan.get(), weights.get(), workspace.get(), &args), "moe_forward");
        return unpack(out, type);
    }
    Floats run(const char* instruction_set, moe_type type, int32_t n_threads, const Floats& x,
               const std::vector<int32_t>& ids) const {
        return run(instruction_set, type, n_threads, x, ids, {});
    }

  private:
    const moe::test::LayerTensors tensors_;

  public:
    const int64_t hidden;
};

// One token, odd numbers of tokens, all tokens to one expert, one expert each, skipped slots, and
// many rows of one expert beside few of others.
std::vector<std::vector<int32_t>> routings() {
    std::vector<std::vector<int32_t>> all{{3, 1}, {}, {}, {}, {-1, 2, 4, -1, -1, -1}, {}};
    for (int32_t i = 0; i < 7; ++i) all[1].insert(all[1].end(), {2, 5});
    for (int32_t i = 0; i < 13; ++i)
        all[2].insert(all[2].end(), {i % n_experts, (i * 5 + 1) % n_experts});
    for (int32_t i = 0; i < n_experts; ++i) all[3].insert(all[3].end(), {i, (i + 1) % n_experts});
    for (int32_t i = 0; i < 21; ++i) all[5].insert(all[5].end(), {4, i % 3});
    return all;
}

bool has_amx() {
    return moe::cpu::has_amx() && moe::cpu::may_use_tiles();
}

std::vector<const char*> instruction_sets() {
    std::vector<const char*> all;
    if (has_amx()) all.push_back("amx");
#if defined(MOE_EMULATE_AMX)
    return all;  // the others are tested as they are
#endif
    if (moe::cpu::has_avx512bf16()) all.push_back("avx512bf16");
    if (moe::cpu::has_avx512vnni()) all.push_back("avx512vnni");
    if (moe::cpu::has_avx2()) all.push_back("avx2");
    if (moe::cpu::has_i8mm()) all.push_back("i8mm");
    if (moe::cpu::has_neon()) all.push_back("neon");
    return all;
}

// The scalar kernels decode interleaved rows, too.
std::vector<const char*> packed_instruction_sets() {
    std::vector<const char*> all = instruction_sets();
    all.push_back("scalar");
    return all;
}

TEST(GemvLayer, MixedFormatsAgreeWithTheReference) {
    for (const Mix& mix : mixes) {
        const MixedLayer layer(mix);
        for (const auto& ids : routings())
            for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16}) {
                const auto n = static_cast<int64_t>(ids.size()) / top_k;
                const Floats x = moe::test::gaussian(n * layer.hidden, 9);
                const Floats wanted = layer.run("scalar", type, 1, x, ids);
                for (const char* set : instruction_sets())
                    EXPECT_LT(worst_row_error(layer.run(set, type, 2, x, ids), wanted,
                                              static_cast<size_t>(layer.hidden)),
                              type == MOE_TYPE_F32 ? 1e-5 : 6e-3)
                        << set << " " << mix.gate << " " << mix.up << " " << mix.down << ", " << n
                        << " tokens, " << moe::type_name(type);
            }
    }
}

// All tokens to two experts: the names say what the rows of the mean take.
std::vector<int32_t> all_to_two(int32_t n) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; ++i) ids.insert(ids.end(), {i % 3, 3 + i % 3});
    return ids;
}

// Rows interleaved by 16, beside matrices of formats that keep theirs.
TEST(GemvLayer, PackedWeightsAgreeWithTheReference) {
    for (const Mix& mix : mixes) {
        const MixedLayer layer(mix);
        for (const auto& ids : routings())
            for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16}) {
                const auto n = static_cast<int64_t>(ids.size()) / top_k;
                const Floats x = moe::test::gaussian(n * layer.hidden, 9);
                const Floats wanted = layer.run("scalar", type, 1, x, ids);
                for (const char* set : packed_instruction_sets()) {
                    const Floats one = layer.run(set, type, 1, x, ids, {.is_packed = true});
                    EXPECT_LT(worst_row_error(one, wanted, static_cast<size_t>(layer.hidden)),
                              type == MOE_TYPE_F32 ? 1e-5 : 6e-3)
                        << set << " " << mix.gate << " " << mix.up << " " << mix.down << ", " << n
                        << " tokens, " << moe::type_name(type);
                    EXPECT_TRUE(
                        same_bits(layer.run(set, type, 3, x, ids, {.is_packed = true}), one))
                        << set << " " << mix.gate << ", three threads";
                }
            }
    }
}

// Names say in which layout the weights lie.
TEST(GemvLayer, KernelsOfPackedWeightsSaySo) {
    if (!moe::cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    const MixedLayer layer(mixes[0]);
    const auto kernel = [&](int32_t n, bool to_int8) {
        std::string name;
        const Floats x = moe::test::gaussian(n * layer.hidden, 9);
        layer.run("avx512vnni", MOE_TYPE_BF16, 1, x, all_to_two(n),
                  {.to_int8 = to_int8, .is_packed = true, .experts_kernel = &name});
        return name;
    };
    EXPECT_EQ(kernel(30, false), "avx512vnni_q4_k_x16_int8x2_gemm_gate_up");
    EXPECT_EQ(kernel(3, false), "avx512vnni_q4_k_x16_int8x2_gemv_gate_up");
    EXPECT_EQ(kernel(3, true), "avx512vnni_q4_k_x16_int8_gemv_gate_up");
}

// Experts and the shared expert by different instruction families, which read the same rows of x.
TEST(GemvLayer, FamiliesMayDiffer) {
    if (!moe::cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    const auto ids = routings()[5];
    for (const Mix& mix : mixes) {
        const MixedLayer layer(mix);
        const Floats x = moe::test::gaussian(21 * layer.hidden, 9);
        const Floats wanted = layer.run("scalar", MOE_TYPE_BF16, 1, x, ids);
        for (const char* kernels : {"experts:avx2_*,finish:avx512vnni_*_gemv_*",
                                    "experts:avx2_*,finish:avx512vnni_*_gemm_*",
                                    "experts:avx512vnni_*_gemm_*,finish:avx2_*",
                                    "experts:avx512vnni_*_gemv_*,finish:avx2_*_gemm_*,"
                                    "finish:avx2_*_gemv_*"})
            for (const bool to_int8 : {false, true})
                EXPECT_LT(worst_row_error(layer.run("avx512bf16", MOE_TYPE_BF16, 2, x, ids,
                                                    {.to_int8 = to_int8, .kernels = kernels}),
                                          wanted, static_cast<size_t>(layer.hidden)),
                          to_int8 ? 3e-2 : 6e-3)
                    << mix.gate << " " << kernels << " " << to_int8;
    }
}

TEST(GemvLayer, AmxMayBeBesideOtherFamilies) {
    if (!has_amx()) GTEST_SKIP() << "no AMX";
    const auto ids = routings()[5];
    for (const Mix& mix : mixes) {
        const MixedLayer layer(mix);
        const Floats x = moe::test::gaussian(21 * layer.hidden, 9);
        const Floats wanted = layer.run("scalar", MOE_TYPE_BF16, 1, x, ids);
        for (const char* kernels : {"experts:amx_*,finish:avx2_*", "experts:avx2_*,finish:amx_*",
                                    "experts:amx_*,finish:avx512vnni_*_gemm_*",
                                    "experts:avx512vnni_*_gemm_*,finish:amx_*"})
            EXPECT_LT(
                worst_row_error(layer.run("amx", MOE_TYPE_BF16, 2, x, ids, {.kernels = kernels}),
                                wanted, static_cast<size_t>(layer.hidden)),
                6e-3)
                << mix.gate << " " << kernels;
    }
}

TEST(GemvLayer, AnyNumberOfThreadsGivesTheSameBits) {
    for (const Mix& mix : mixes) {
        const MixedLayer layer(mix);
        for (const auto& ids : {routings()[2], routings()[5]}) {
            const Floats x =
                moe::test::gaussian(static_cast<int64_t>(ids.size()) / top_k * layer.hidden, 9);
            for (const char* set : instruction_sets())
                for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16}) {
                    const Floats one = layer.run(set, type, 1, x, ids);
                    for (const int32_t n_threads : {2, 3, 7})
                        EXPECT_TRUE(same_bits(layer.run(set, type, n_threads, x, ids), one))
                            << set << " " << mix.gate << ", " << n_threads << " threads";
                }
        }
    }
}

TEST(GemvLayer, ManyRowsTakeGemmKernelsAndFewDoNot) {
    if (!moe::cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    const MixedLayer layer(mixes[0]);
    const auto kernel = [&](int32_t n, MixedLayer::Options options) {
        std::string name;
        options.experts_kernel = &name;
        const Floats x = moe::test::gaussian(n * layer.hidden, 9);
        layer.run("avx512vnni", MOE_TYPE_BF16, 1, x, all_to_two(n), options);
        return name;
    };
    EXPECT_EQ(kernel(30, {}), "avx512vnni_q4_k_int8x2_gemm_gate_up");
    EXPECT_EQ(kernel(3, {}), "avx512vnni_q4_k_int8x2_gemv_gate_up");
    EXPECT_EQ(kernel(30, {.batch_invariant = true}), "avx512vnni_q4_k_int8x2_gemv_gate_up");
    EXPECT_EQ(kernel(48, {.to_int8 = true}), "avx512vnni_q4_k_int8_gemm_gate_up");
    EXPECT_EQ(kernel(3, {.to_int8 = true}), "avx512vnni_q4_k_int8_gemv_gate_up");
    const int32_t many = 30, few = 3;
    EXPECT_EQ(kernel(many, {.kernels = "-*_gemm_*"}), "avx512vnni_q4_k_int8x2_gemv_gate_up");
    EXPECT_EQ(kernel(few, {.max_tokens = 30, .kernels = "*_gemm_*"}),
              "avx512vnni_q4_k_int8x2_gemm_gate_up");
    EXPECT_EQ(kernel(few, {.max_tokens = 30, .kernels = "experts:avx512vnni_*"}),
              "avx512vnni_q4_k_int8x2_gemv_gate_up");
    EXPECT_ANY_THROW(kernel(many, {.kernels = "*_gemm_*,-*_gemv_*"}));
}

TEST(GemvLayer, ManyRowsTakeGemmKernelsOfAvx2) {
    if (!moe::cpu::has_avx2()) GTEST_SKIP() << "no AVX2";
    const MixedLayer layer(mixes[0]);
    const auto kernel = [&](int32_t n, MixedLayer::Options options) {
        std::string name;
        options.experts_kernel = &name;
        const Floats x = moe::test::gaussian(n * layer.hidden, 9);
        layer.run("avx2", MOE_TYPE_BF16, 1, x, all_to_two(n), options);
        return name;
    };
    const std::string gemm = "avx2_q4_k_int8x2_gemm_gate_up";
    const std::string gemv = "avx2_q4_k_int8x2_gemv_gate_up";
    const int32_t many = 30, few = 3;
    EXPECT_EQ(kernel(many, {}), gemm);
    EXPECT_EQ(kernel(few, {}), gemv);
    EXPECT_EQ(kernel(many, {.batch_invariant = true}), gemv);
    EXPECT_EQ(kernel(many, {.to_int8 = true}), gemm);
    EXPECT_EQ(kernel(many, {.kernels = "-*_gemm_*"}), gemv);
    EXPECT_EQ(kernel(few, {.max_tokens = 30, .kernels = "*_gemm_*"}), gemm);
    EXPECT_ANY_THROW(kernel(many, {.kernels = "*_gemm_*,-*_gemv_*"}));
}

// The names of what takes many rows, and the bits of integer panels, which are those of AVX-512.
// With x in float32 it multiplies down in q6_k in both cases, whose scales of 16 columns have no
// tiles then.
TEST(GemvLayer, AmxTakesManyRowsWhereItIsThere) {
    if (!has_amx()) GTEST_SKIP() << "no AMX";
    const MixedLayer layer(mixes[0]);
    const Floats x = moe::test::gaussian(30 * layer.hidden, 9);
    const auto run = [&](const char* set, moe_type type, MixedLayer::Options options = {}) {
        return layer.run(set, type, 2, x, all_to_two(30), options);
    };
    const auto kernel = [&](moe_type type, const char* filter, bool to_int8 = false) {
        std::string name;
        run("amx", type, {.to_int8 = to_int8, .kernels = filter, .experts_kernel = &name});
        return name;
    };
    for (const char* filter : {"", "amx_*", "*_gemm_*", "-avx512vnni_q4_k_*_gemm_*"}) {
        EXPECT_EQ(kernel(MOE_TYPE_BF16, filter), "amx_q4_k_bf16_gemm_gate_up") << filter;
        EXPECT_EQ(kernel(MOE_TYPE_BF16, filter, true), "amx_q4_k_bf16_gemm_gate_up") << filter;
        EXPECT_EQ(kernel(MOE_TYPE_F16, filter), "amx_q4_k_int8x2_gemm_gate_up") << filter;
        EXPECT_EQ(kernel(MOE_TYPE_F32, filter), "amx_q4_k_int8x3_gemm_gate_up") << filter;
        EXPECT_EQ(kernel(MOE_TYPE_F32, filter, true), "amx_q4_k_bf16_gemm_gate_up") << filter;
    }
    for (const char* filter : {"-amx_*", "avx512vnni_q4_k_*_gemm_*"})
        EXPECT_EQ(kernel(MOE_TYPE_BF16, filter), "avx512vnni_q4_k_int8x2_gemm_gate_up") << filter;
    EXPECT_EQ(kernel(MOE_TYPE_BF16, "-*_gemm_*"), "avx512vnni_q4_k_int8x2_gemv_gate_up");
    EXPECT_TRUE(same_bits(run("amx", MOE_TYPE_F32), run("avx512bf16", MOE_TYPE_F32)));
    // Nearer than bytes would be.
    const Floats wanted = layer.run("scalar", MOE_TYPE_F32, 2, x, all_to_two(30));
    const auto error = [&](const char* kernels) {
        return worst_row_error(run("amx", MOE_TYPE_F32, {.to_int8 = true, .kernels = kernels}),
                               wanted, static_cast<size_t>(layer.hidden));
    };
    EXPECT_LT(error("amx_*"), 0.75 * error("avx512vnni_*_gemm_*"));
    for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16})
        EXPECT_FALSE(same_bits(run("amx", type), run("amx", type, {.kernels = "-*_gemm_*"})));
}

// A token keeps its bits in any company under batch_invariant; without it gemm kernels take many
// rows, and their bits differ.
TEST(GemvLayer, BatchInvariantPlansKeepToOneOrder) {
    if (!moe::cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    const MixedLayer layer(mixes[0]);
    const auto ids = all_to_two(30);
    const Floats x = moe::test::gaussian(30 * layer.hidden, 9);
    for (const bool invariant : {true, false}) {
        const MixedLayer::Options options{.max_tokens = 30, .batch_invariant = invariant};
        const Floats all = layer.run("avx512vnni", MOE_TYPE_F32, 2, x, ids, options);
        const auto at = static_cast<size_t>(layer.hidden);
        const Floats alone = layer.run("avx512vnni", MOE_TYPE_F32, 2, {x.begin(), x.begin() + at},
                                       {ids[0], ids[1]}, options);
        EXPECT_EQ(same_bits(alone, {all.begin(), all.begin() + at}), invariant);
    }
}

TEST(GemvLayer, Int8IsNearAndNotTheSame) {
    if (!moe::cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    for (const Mix& mix : {mixes[0], mixes[3]}) {
        const MixedLayer layer(mix);
        for (const int32_t n : {1, 30}) {
            const Floats x = moe::test::gaussian(n * layer.hidden, 9);
            const Floats wanted = layer.run("scalar", MOE_TYPE_BF16, 1, x, all_to_two(n));
            const Floats got =
                layer.run("avx512vnni", MOE_TYPE_BF16, 2, x, all_to_two(n), {.to_int8 = true});
            const double error = worst_row_error(got, wanted, static_cast<size_t>(layer.hidden));
            EXPECT_LT(error, 3e-2) << mix.gate << ", " << n << " tokens";
            EXPECT_GT(error, 3e-3) << mix.gate << ", " << n << " tokens";
        }
    }
}

// Up to 16 tokens take two parallel regions, with h quantized expert by expert; more take others.
TEST(GemvLayer, FewTokensGiveTheBitsOfMany) {
    for (const Mix& mix : mixes) {
        const MixedLayer layer(mix);
        std::vector<int32_t> ids;
        for (int32_t i = 0; i < 21; ++i)
            ids.insert(ids.end(), {i % n_experts, (i * 5 + 1) % n_experts});
        const Floats x = moe::test::gaussian(21 * layer.hidden, 9);
        for (const char* set : instruction_sets()) {
            const MixedLayer::Options invariant{.batch_invariant = true};
            const Floats many = layer.run(set, MOE_TYPE_BF16, 3, x, ids, invariant);
            for (const int64_t n : {1, 7, 16}) {
                const Floats few = layer.run(set, MOE_TYPE_BF16, 3,
                                             Floats(x.begin(), x.begin() + n * layer.hidden),
                                             {ids.begin(), ids.begin() + n * top_k}, invariant);
                EXPECT_FALSE(std::isnan(few[0]));
                EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()))
                    << set << " " << mix.gate << ", " << n << " tokens";
            }
        }
    }
}

}  // namespace
}  // namespace moe_test
