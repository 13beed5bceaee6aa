// The benchmark of the CPU: its lists, what calls touch, that weights of one layer in two formats
// agree, and its statistics.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>

#include "bench/cpu/calibrate.hpp"
#include "bench/cpu/calls.hpp"
#include "bench/cpu/case_list.hpp"
#include "bench/cpu/measure.hpp"
#include "bench/peers/ggml_api.hpp"
#include "bench/peers/ggml_experts.hpp"

namespace moe::bench {
namespace {

const Model small{"of-6", 256, 128, 6, 2, 0};

std::vector<float> values_of(const ExpertMatrix& matrix, int32_t n_experts, int64_t expert) {
    moe_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.role = matrix.role;
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.n_experts = n_experts;
    tensor.format = &matrix.format;
    tensor.rows = matrix.rows;
    tensor.columns = matrix.columns;
    tensor.data = matrix.data.data();
    tensor.data_bytes = matrix.data.size();
    tensor.scales = matrix.scales.data();
    tensor.scale_bytes = matrix.scales.size();
    const std::vector<float> globals(static_cast<size_t>(n_experts), matrix.global_scale);
    if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = globals.data();
        tensor.n_global_scales = n_experts;
    }
    std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.columns));
    EXPECT_EQ(moe_dequantize(&tensor, expert, values.data(), values.size()), MOE_OK)
        << moe_last_error();
    return values;
}

std::string problem_of(const std::string& list) {
    try {
        cpu_list(list, 2);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "none";
}

TEST(CpuList, FullHasEveryModelAndOnlyThreadsThatThereAre) {
    std::set<std::string> names, models;
    std::set<int32_t> threads;
    for (const CpuCase& one : cpu_list("full", 2)) {
        EXPECT_TRUE(names.insert(one.name()).second) << one.name();
        EXPECT_TRUE(fits(one.model, one.format)) << one.name();
        models.insert(one.model.name);
        threads.insert(one.n_threads);
    }
    EXPECT_EQ(models, (std::set<std::string>{"qwen3-30b", "mixtral", "gpt-oss-20b", "dsv3-e32"}));
    EXPECT_EQ(threads, (std::set<int32_t>{1, 2}));
    EXPECT_TRUE(names.count("qwen3-30b/iq2_xs/bf16/T512/1thread"));
    EXPECT_FALSE(names.count("gpt-oss-20b/q4_k/bf16/T1/1thread"));  // 2880 columns
    for (const CpuCase& one : cpu_list("full", 16)) threads.insert(one.n_threads);
    EXPECT_EQ(threads, (std::set<int32_t>{1, 2, 16}));
}

TEST(CpuList, ShortIsOnTheMostThreads) {
    for (const int32_t n : {1, 2, 15, 16}) {
        std::set<std::string> formats;
        for (const CpuCase& one : cpu_list("short", n)) {
            EXPECT_EQ(one.n_threads, n < 2 ? 1 : n < 16 ? 2 : 16);
            if (one.model.name == "qwen3-30b") formats.insert(one.format);
        }
        EXPECT_EQ(formats.size(), 17u);
    }
    EXPECT_EQ(problem_of("long"), "no list long");
}

// Cases of one model and format stand together, so that its weights are made once.
TEST(CpuList, WeightsAreMadeOnce) {
    std::set<std::string> seen;
    std::string last;
    for (const CpuCase& one : cpu_list("full", 16)) {
        const std::string key = one.model.name + "/" + one.format;
        if (key != last) {
            EXPECT_TRUE(seen.insert(key).second) << key;
        }
        last = key;
    }
}

TEST(CpuCalls, OneTokenTouchesAllExpertsOfAllSetsBeforeOneComesBack) {
    const ExpertWeights weights(small, "q8_0", false, 1'300'000);
    ASSERT_EQ(weights.n_sets(), 3u);  // of 626,688 bytes
    Calls calls(weights, 1);
    std::set<const unsigned char*> seen;
    for (int i = 0; i < 9; ++i) {
        const auto ranges = ranges_of(weights, calls.next());
        ASSERT_EQ(ranges.size(), 2u * 3);
        EXPECT_EQ(size_of(ranges), 2 * 3 * 256 * 128 * 34 / 32);
        for (const ByteRange& range : ranges) EXPECT_TRUE(seen.insert(range.data).second);
    }
    for (const ByteRange& range : ranges_of(weights, calls.next()))
        EXPECT_FALSE(seen.insert(range.data).second);
}

TEST(CpuCalls, SeveralTokensCountEachExpertOnce) {
    const ExpertWeights weights(small, "fp8_128x128", false, 1);
    Calls calls(weights, 64);
    const Call call = calls.next();
    EXPECT_EQ(call.ids.size(), 64u * 2);
    // All experts: codes, and the float32 scales of 1 x 2, 1 x 2 and 2 x 1 blocks.
    EXPECT_EQ(size_of(ranges_of(weights, call)), 6 * (3 * 256 * 128 + 6 * 4));
}

TEST(CpuWeights, TwoFormatsOfTheSameValuesHoldTheSameLayer) {
    const std::pair<const char*, const char*> pairs[] = {{"mxfp4", "mxfp4_gguf"},
                                                         {"nvfp4", "nvfp4_gguf"}};
    for (const auto& [a, b] : pairs) {
        EXPECT_EQ(ggml_format(a), b);
        const ExpertWeights first(small, a, false, 1), second(small, b, true, 1);
        for (size_t i = 0; i < 3; ++i)
            for (const int64_t expert : {0, 5})
                EXPECT_EQ(values_of(first.matrices(0)[i], 6, expert),
                          values_of(second.matrices(0)[i], 6, expert))
                    << a << i;
    }
}

TEST(CpuWeights, ExpertsDifferByTheirRows) {
    const Model model{"of-3", 256, 384, 3, 2, 0};
    for (const char* format : {"bf16", "q4_k+fp8_128x128", "int4_g128", "kbit3"}) {
        const ExpertWeights weights(model, format, false, 1);
        const ExpertMatrix& gate = weights.matrices(0)[0];
        const auto first = values_of(gate, 3, 0), second = values_of(gate, 3, 1);
        EXPECT_NE(first, second) << format;
        const size_t offset = 128 * 256;
        EXPECT_TRUE(std::equal(first.begin() + offset, first.end(), second.begin())) << format;
        EXPECT_TRUE(std::equal(first.begin(), first.begin() + offset, second.end() - offset))
            << format;
    }
}

TEST(CpuWeights, LayersComputeWithThem) {
    const ExpertWeights weights(small, "nvfp4", false, 1), same(small, "nvfp4_gguf", false, 1);
    const CpuCase one{small, "nvfp4", "", MOE_TYPE_F32, 3, 1};
    const std::vector<int32_t> ids{0, 5, 1, 2, 4, 3};
    CpuLayer first(one, weights), second(one, same);
    EXPECT_GT(first.forward(0, ids), 0.0);
    second.forward(0, ids);
    double size = 0, error = 0;
    const auto a = first.out(), b = second.out();
    ASSERT_EQ(a.size(), 3u * 256);
    for (size_t i = 0; i < a.size(); ++i) {
        size += static_cast<double>(a[i]) * a[i];
        error += static_cast<double>(a[i] - b[i]) * (a[i] - b[i]);
    }
    EXPECT_GT(size, 1e-4);
    EXPECT_LE(error, 1e-10 * size);
}

TEST(CpuReaders, ReadAgainAndAgain) {
    const std::vector<unsigned char> bytes(1'000'001, 1);
    for (const int32_t n : {1, 2, 3}) {
        Readers readers(n);
        for (int i = 0; i < 50; ++i)
            EXPECT_GT(readers.read({{bytes.data(), bytes.size()}, {bytes.data(), 100}}), 0.0);
    }
}

TEST(CpuSamples, MedianAndBest) {
    CpuResult result{};
    result.flops = 4e6;
    result.calls.add(2.0, 10.0);
    result.calls.add(1.0, 10.0);
    result.calls.add(4.0, 80.0);
    for (const double seconds : {1.0, 2.0, 5.0}) result.reads.add(seconds, 10.0);
    result.peers.push_back({"theirs", "q4_k", "CPU", 0.01, {}});
    for (const double seconds : {4.0, 4.0, 4.0}) result.peers[0].calls.add(seconds, 20.0);
    EXPECT_EQ(result.calls.median_us(), 2e6);
    EXPECT_EQ(result.calls.best_us(), 1e6);
    EXPECT_EQ(result.calls.median_rate(), 10.0);
    EXPECT_EQ(result.calls.best_rate(), 20.0);
    EXPECT_EQ(result.over_reads(), 2.0);  // of 0.5, 2 and 10
    EXPECT_EQ(result.best_over_reads(), 2.0);
    ASSERT_TRUE(result.peer("theirs"));
    EXPECT_EQ(result.over(result.peer("theirs")->calls), 2.0);  // of 1, 2 and 4
    EXPECT_EQ(result.best_over(result.peer("theirs")->calls), 4.0);
    EXPECT_EQ(result.peer("another"), nullptr);
    EXPECT_EQ(result.gflops(), 4e6 / 2e6 / 1e3);
}

TEST(Ggml, FormatsThatItHas) {
    EXPECT_EQ(ggml_format("q4_k"), "q4_k");
    EXPECT_EQ(ggml_format("q4_k+q6_k"), "q4_k+q6_k");
    EXPECT_EQ(ggml_format("mxfp4+q6_k"), "mxfp4_gguf+q6_k");
    for (const char* none : {"fp8_128x128", "int4_g128", "kbit4", "q4_k+kbit4"})
        EXPECT_EQ(ggml_format(none), "");
}

TEST(Ggml, AFolderWithoutItIsRefusedByName) {
    try {
        ggml::Library library("/nowhere/at/all");
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "/nowhere/at/all has no libggml-base.so");
    }
}

// Each kernel once: q8_0 has kernels of bytes of its own on some processors, f32 on none.
TEST(CpuCalibration, MeasuresTheKernelsOfFormats) {
    const std::vector<KernelRate> rates = kernel_rates({"q8_0", "f32"}, 1, 0.02);
    ASSERT_FALSE(rates.empty());
    std::set<std::string> kernels;
    for (const KernelRate& rate : rates) {
        EXPECT_TRUE(kernels.insert(rate.kernel).second) << rate.kernel;
        EXPECT_TRUE(rate.kernel.ends_with("_gemv") || rate.kernel.ends_with("_gemm"));
        // Differences of times, of either sign where other programs run.
        EXPECT_TRUE(std::isfinite(rate.gb_per_s) && rate.gb_per_s != 0) << rate.kernel;
        EXPECT_TRUE(std::isfinite(rate.gflop_per_s) && rate.gflop_per_s != 0) << rate.kernel;
    }
    for (const std::string& format : calibrated_formats())
        EXPECT_TRUE(fits(cpu_model("qwen3-30b"), format)) << format;
}

}  // namespace
}  // namespace moe::bench
