// The cost model against the committed measurements, with the rates of the same run, and in what it
// must be without any.
#include "libmoe/plan/cost.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "libmoe/plan/cost_constants.hpp"

namespace moe {
namespace {

using nlohmann::json;

json measured(const char* name) {
    std::ifstream in(std::string("bench/results/") + name);
    return json::parse(in);
}

// Through the points at 4 MB and at the end: as bench/fit_costs.py has it.
DeviceRates rates_of(const json& results) {
    const json& points = results["read_floor"];
    json small = points[0];
    for (const json& point : points)
        if (std::abs(point["bytes"].get<double>() - 4e6) <
            std::abs(small["bytes"].get<double>() - 4e6))
            small = point;
    const json& many = points.back();
    const double rate = (many["bytes"].get<double>() - small["bytes"].get<double>()) /
                        (many["us"].get<double>() - small["us"].get<double>());
    return {small["us"].get<double>() - small["bytes"].get<double>() / rate, rate,
            results["dense_tflops"].get<double>() * 1e6};
}

// none: there are no constants of the format's own.
PackedType type_of(const std::string& format) {
    static const std::map<std::string, PackedType> types{{"fp8_128x128", PackedType::e4m3},
                                                         {"awq", PackedType::grid_4},
                                                         {"int8_row", PackedType::grid_8},
                                                         {"fp8_row", PackedType::grid_e4m3},
                                                         {"nf4", PackedType::grid_codebook}};
    if (const auto found = types.find(format); found != types.end()) return found->second;
    for (const KernelCost& kernel : kernel_costs)
        if (traits(kernel.type).name == format) return kernel.type;
    return PackedType::none;
}

// By a kernel's name, or by the name that results before version 0.1 have (bench/kernel_names.py).
cuda::Family family_of(const std::string& kernel) {
    const bool is_gemv =
        kernel.find("_gemv_") != std::string::npos || kernel.ends_with("_one_token");
    return is_gemv ? cuda::Family::sm90_gemv : cuda::Family::grouped;
}

struct Measured {
    std::string name, model;
    double us, predicted;
};

// Bytes of an expert by model and format: a token alone reads top_k of them.
using BytesOf = std::map<std::pair<std::string, std::string>, double>;

BytesOf bytes_of(const json& results) {
    BytesOf bytes;
    for (const json& r : results["results"])
        if (r["mode"] == "ids" && r["n_tokens"] == 1)
            bytes[{r["model"], r["format"]}] =
                r["weight_bytes"].get<double>() / r["shape"]["top_k"].get<double>();
    return bytes;
}

// The cases from ids with even routing, which are those of the experts alone.
std::vector<Measured> predict_all(const json& results, const BytesOf& bytes) {
    const DeviceRates rates = rates_of(results);
    std::vector<Measured> all;
    for (const json& r : results["results"]) {
        if (r["mode"] != "ids" || r["zipf"] != 0) continue;
        const PackedType type = type_of(r["format"].get<std::string>());
        const auto own = bytes.find({r["model"], r["format"]});
        if (type == PackedType::none || own == bytes.end()) continue;
        const auto size = [&](const char* name) { return r["shape"][name].get<int32_t>(); };
        const int32_t hidden = size("hidden"), n_experts = size("n_experts");
        const ExpertWork work{
            r["n_tokens"].get<int64_t>(),        size("top_k"), n_experts, n_experts, hidden,
            3.0 * hidden * size("intermediate"), own->second};
        const auto us = predicted_us(family_of(r["kernel"].get<std::string>()), type, work, rates);
        EXPECT_TRUE(us) << r["case"];
        all.push_back({r["case"], r["model"], r["us"].get<double>(), us.value_or(0)});
    }
    return all;
}

// Within a quarter for the models whose times were not fitted, and for the others as well.
TEST(Cost, HoldsForWhatWasNotFitted) {
    size_t n_fitted = 0, n_others = 0;
    for (const char* name : {"h200.json", "study-small_batch.json"}) {
        const json results = measured(name);
        for (const Measured& one : predict_all(results, bytes_of(results))) {
            const bool fitted =
                std::count(std::begin(fitted_models), std::end(fitted_models), one.model);
            ++(fitted ? n_fitted : n_others);
            EXPECT_NEAR(one.predicted / one.us, 1.0, 0.25) << one.name;
        }
    }
    EXPECT_GT(n_others, 100u);
    EXPECT_GT(n_fitted, 100u);
}

// Formats that h200.json does not have, and gemv up to 32 tokens beside the grouped GEMM.
TEST(Cost, HoldsForOtherFormatsAndMoreTokens) {
    const BytesOf of_hopper = bytes_of(measured("h200.json"));
    const json formats = measured("formats-h200.json");
    BytesOf others = bytes_of(formats);
    std::erase_if(others, [&](const auto& one) { return of_hopper.contains(one.first); });
    BytesOf all = of_hopper;
    all.insert(others.begin(), others.end());
    std::vector<Measured> cases = predict_all(formats, others);
    EXPECT_GE(cases.size(), 150u);
    const std::vector<Measured> small = predict_all(measured("gemv-h200.json"), all);
    EXPECT_GE(small.size(), 200u);
    cases.insert(cases.end(), small.begin(), small.end());
    for (const Measured& one : cases) EXPECT_NEAR(one.predicted / one.us, 1.0, 0.25) << one.name;
}

ExpertWork some_work(int64_t n_tokens) {
    return {n_tokens, 8, 128, 128, 2048, 3.0 * 2048 * 768, 3.0 * 2048 * 768 * 0.5625};
}

TEST(Cost, GrowsWithTheTokensAndShrinksWithTheRates) {
    const DeviceRates rates(1.6, 4.5e6, 7e8), twice(1.6, 9e6, 14e8);
    for (const KernelCost& kernel : kernel_costs) {
        double before = 0;
        for (const int64_t n : {1, 2, 3, 4, 8, 100, 1000, 10000, 100000}) {
            const double us = *predicted_us(kernel.family, kernel.type, some_work(n), rates);
            EXPECT_GT(us, before) << n;
            EXPECT_LT(*predicted_us(kernel.family, kernel.type, some_work(n), twice), us);
            before = us;
        }
    }
}

// A rank that has an eighth of the experts does an eighth of the work.
TEST(Cost, CountsTheExpertsThatAreHere) {
    const DeviceRates rates(0.0, 4.5e6, 7e8);
    ExpertWork part = some_work(4096);
    const ExpertTerms whole(part, rates);
    part.n_local /= 8;
    const ExpertTerms eighth(part, rates);
    EXPECT_NEAR(eighth.read_us * 8, whole.read_us, 1e-6);
    EXPECT_NEAR(eighth.gemm_us * 8, whole.gemm_us, 1e-6);
    EXPECT_NEAR(eighth.row_mb * 8, whole.row_mb, 1e-9);
}

// Every token takes the shared expert: read once, and again by the other seven where each reads for
// itself.
TEST(Cost, CountsTheSharedExpertOfEveryToken) {
    const DeviceRates rates(0.0, 4.5e6, 7e8);
    const ExpertWork routed = some_work(8);
    ExpertWork joined = routed;
    ++joined.n_slots;
    ++joined.n_experts;
    ++joined.n_local;
    joined.n_shared = 1;
    const double us = routed.bytes / rates.bytes_per_us;
    const ExpertTerms with(joined, rates), without(routed, rates);
    EXPECT_NEAR(with.read_us - without.read_us, us, 1e-9 * us);
    EXPECT_NEAR(with.again_us - without.again_us, 7 * us, 1e-9 * us);
}

TEST(Cost, TypesThatWereNotMeasuredCostWhatTheirLikesDo) {
    const DeviceRates rates(1.6, 4.5e6, 7e8);
    const auto us = [&](PackedType type) {
        return predicted_us(cuda::Family::grouped, type, some_work(64), rates);
    };
    EXPECT_EQ(us(PackedType::f16), us(PackedType::bf16));
    EXPECT_EQ(us(PackedType::kbit5_f32), us(PackedType::kbit5));
    EXPECT_EQ(us(PackedType::kbit4_f32), us(PackedType::kbit4));
    EXPECT_EQ(us(PackedType::grid_3), us(PackedType::grid_4));
    EXPECT_NE(us(PackedType::q6_k), us(PackedType::q4_k));
    EXPECT_NE(us(PackedType::kbit2), us(PackedType::kbit3));
    EXPECT_FALSE(us(PackedType::f32));
    EXPECT_FALSE(
        predicted_us(cuda::Family::sm80_grouped_bf16, PackedType::bf16, some_work(64), rates));
    EXPECT_FALSE(predicted_us(cuda::Family::grouped, PackedType::bf16, some_work(0), rates));
    for (const cuda::NominalRates nominal : {cuda::NominalRates{0, 1e9}, {4.9e6, 0}})
        EXPECT_FALSE(predicted_us(cuda::Family::grouped, PackedType::bf16, some_work(64),
                                  DeviceRates(nominal)));
}

// Qwen3-Next with its 512 experts, Mixtral with 8: an expert read again for another token costs
// more than a sort and a sum only where experts are large and tokens meet in them.
TEST(GemvTokensWorth, AsLongAsReadingTwiceCostsLess) {
    const DeviceRates rates(1.6, 4.6e6, 670e6);
    struct Shape {
        int32_t hidden, intermediate, n_experts, top_k;
    };
    constexpr Shape qwen3next{2048, 512, 512, 10}, qwen3_30b{2048, 768, 128, 8};
    constexpr Shape mixtral{4096, 14336, 8, 2}, dsv3{7168, 2048, 256, 8};
    const auto worth = [&](const Shape& shape, PackedType type, int32_t can = 4) {
        ExpertWork work = {0, shape.top_k, shape.n_experts, shape.n_experts, shape.hidden, 0, 0};
        work.weights = 3.0 * shape.hidden * shape.intermediate;
        work.bytes = work.weights * code_bits(type) / 8;
        return gemv_tokens_worth(type, work, rates, can);
    };
    EXPECT_EQ(worth(qwen3next, PackedType::nvfp4), 4);
    EXPECT_EQ(worth(qwen3next, PackedType::bf16), 4);
    EXPECT_EQ(worth(qwen3_30b, PackedType::nvfp4), 4);
    EXPECT_GE(worth(mixtral, PackedType::nvfp4), 2);
    EXPECT_LT(worth(mixtral, PackedType::bf16), 4);
    EXPECT_EQ(worth(qwen3next, PackedType::nvfp4, 2), 2);
    EXPECT_GE(worth(qwen3next, PackedType::nvfp4, 16), 8);
    EXPECT_GE(worth(qwen3_30b, PackedType::q4_k, 16), 8);
    EXPECT_LT(worth(dsv3, PackedType::bf16, 16), 8);
    EXPECT_EQ(worth(qwen3next, PackedType::q4_k, 32), 32);
    EXPECT_EQ(worth(qwen3next, PackedType::nvfp4, 32), 16);
    EXPECT_GE(worth(qwen3_30b, PackedType::q4_k, 32), 16);
    EXPECT_LT(worth(qwen3_30b, PackedType::q4_k, 32),
              24);  // measured: as long as the other from 24 on
    EXPECT_LE(worth(qwen3_30b, PackedType::q6_k, 32), 16);  // measured: 18 are slower
    EXPECT_LT(worth(mixtral, PackedType::nvfp4, 16), 5);
    EXPECT_EQ(worth(qwen3next, PackedType::nvfp4, 0), 0);
}

TEST(GemvTokensWorth, WithoutRatesAsLongAsTokensSeldomMeet) {
    const DeviceRates unknown(1.6, 0, 0);
    const auto worth = [&](int32_t n_slots, int32_t n_experts) {
        return gemv_tokens_worth(PackedType::nvfp4,
                                 {0, n_slots, n_experts, n_experts, 2048, 3e6, 2e6}, unknown, 4);
    };
    EXPECT_EQ(worth(10, 512), 4);
    EXPECT_EQ(worth(2, 8), 2);
    EXPECT_EQ(worth(10, 32), 1);
    EXPECT_EQ(worth(1, 1), 4);  // a dense expert: there is nothing to sort
}

}  // namespace
}  // namespace moe
