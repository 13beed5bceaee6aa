// The functions of routing against double, densely, and at the ends of the range.
#include "libmoe/layer/routing_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace moe {
namespace {

namespace math = routing_math;

const float infinity = std::numeric_limits<float>::infinity();
const float nan_value = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place of the true value; of the smallest subnormal below the normal
// range.
double ulps(float value, double truth) {
    const double size = std::max(std::fabs(truth), 0x1p-126);
    const double unit = std::ldexp(1.0, std::ilogb(size) - 23);
    return std::fabs(double{value} - truth) / unit;
}

// The largest error over [low, high] in `steps` even steps.
template <class Function, class Truth>
double worst(double low, double high, int steps, Function function, Truth truth) {
    double result = 0;
    for (int i = 0; i <= steps; i++) {
        const auto x = static_cast<float>(low + (high - low) * i / steps);
        result = std::max(result, ulps(function(x), truth(double{x})));
    }
    return result;
}

constexpr int many = 400000;

TEST(RoutingMath, Exponential) {
    const auto truth = [](double x) { return std::exp(x); };
    EXPECT_LT(worst(-1, 1, many, math::exponential, truth), 1.2);
    EXPECT_LT(worst(-87, 88.7, many, math::exponential, truth), 1.2);
    EXPECT_LT(worst(-103.9, -87, many, math::exponential, truth), 1.2);
    EXPECT_EQ(math::exponential(0.0f), 1.0f);
    EXPECT_EQ(math::exponential(-1e30f), 0.0f);
    EXPECT_EQ(math::exponential(-infinity), 0.0f);
    EXPECT_EQ(math::exponential(88.73f), infinity);
    EXPECT_EQ(math::exponential(infinity), infinity);
    EXPECT_TRUE(std::isnan(math::exponential(nan_value)));
}

TEST(RoutingMath, ExponentialNeverFalls) {
    float last = 0;
    for (float x = -2.0f; x < 2.0f; x = std::nextafter(x, 3.0f) + 0x1p-20f) {
        const float value = math::exponential(x);
        ASSERT_GE(value, std::nextafter(last, 0.0f)) << x;
        last = value;
    }
}

TEST(RoutingMath, LogOnePlus) {
    const auto truth = [](double x) { return std::log1p(x); };
    EXPECT_LT(worst(-0.25, 1, many, math::log_one_plus, truth), 2.0);
    EXPECT_LT(worst(1, 100, many, math::log_one_plus, truth), 2.0);
    EXPECT_LT(worst(100, 5e8, many, math::log_one_plus, truth), 2.0);
    for (float x = 0x1p-149f; x < 1e38f; x *= 1.7f) {
        ASSERT_LT(ulps(math::log_one_plus(x), std::log1p(double{x})), 2.0) << x;
    }
    EXPECT_EQ(math::log_one_plus(0.0f), 0.0f);
    EXPECT_EQ(math::log_one_plus(infinity), infinity);
    EXPECT_LT(ulps(math::log_one_plus(math::largest), std::log1p(double{math::largest})), 2.0);
    EXPECT_TRUE(std::isnan(math::log_one_plus(nan_value)));
}

TEST(RoutingMath, HyperbolicTangent) {
    const auto truth = [](double x) { return std::tanh(x); };
    EXPECT_LT(worst(-1, 1, many, math::hyperbolic_tangent, truth), 2.0);
    EXPECT_LT(worst(-12, 12, many, math::hyperbolic_tangent, truth), 2.0);
    for (float x = 0x1p-140f; x < 1.0f; x *= 1.3f) {
        ASSERT_LT(ulps(math::hyperbolic_tangent(-x), std::tanh(-double{x})), 2.0) << x;
    }
    EXPECT_EQ(math::hyperbolic_tangent(infinity), 1.0f);
    EXPECT_EQ(math::hyperbolic_tangent(-math::largest), -1.0f);
    EXPECT_TRUE(std::isnan(math::hyperbolic_tangent(nan_value)));
}

TEST(RoutingMath, Sigmoid) {
    const auto truth = [](double x) {
        return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    };
    EXPECT_LT(worst(-4, 4, many, math::sigmoid, truth), 2.5);
    EXPECT_LT(worst(-103, 103, many, math::sigmoid, truth), 2.5);
    EXPECT_EQ(math::sigmoid(-math::largest), 0.0f);
    EXPECT_EQ(math::sigmoid(math::largest), 1.0f);
    EXPECT_EQ(math::sigmoid(-infinity), 0.0f);
}

TEST(RoutingMath, SqrtSoftplus) {
    const auto truth = [](double x) { return std::sqrt(x > 20 ? x : std::log1p(std::exp(x))); };
    EXPECT_LT(worst(-40, 40, many, math::sqrt_softplus, truth), 2.0);
    EXPECT_EQ(math::sqrt_softplus(25.0f), 5.0f);
    EXPECT_EQ(math::sqrt_softplus(-math::largest), 0.0f);
    EXPECT_TRUE(std::isfinite(math::sqrt_softplus(math::largest)));
}

TEST(RoutingMath, Softcap) {
    EXPECT_NEAR(math::softcap(10.0f, 30.0f), 30 * std::tanh(1.0 / 3), 4e-6);
    EXPECT_EQ(math::softcap(math::largest, 0.5f), 0.5f);
    EXPECT_EQ(math::softcap(-infinity, 30.0f), -30.0f);
    EXPECT_TRUE(std::isnan(math::softcap(nan_value, 30.0f)));
}

TEST(RoutingMath, FiniteLogit) {
    EXPECT_EQ(math::finite_logit(nan_value), -math::largest);
    EXPECT_EQ(math::finite_logit(infinity), math::largest);
    EXPECT_EQ(math::finite_logit(-infinity), -math::largest);
    EXPECT_EQ(math::finite_logit(1.5f), 1.5f);
    EXPECT_EQ(math::largest, std::numeric_limits<float>::max());
}

TEST(RoutingMath, SumsHaveOneOrder) {
    for (const int32_t n : {0, 1, 7, 32, 33, 100, 4096}) {
        std::vector<float> values(static_cast<size_t>(n));
        double truth = 0;
        for (int32_t i = 0; i < n; i++) {
            values[static_cast<size_t>(i)] = 1.0f / static_cast<float>(i + 1);
            truth += values[static_cast<size_t>(i)];
        }
        const auto term = [&](int32_t i) { return values[static_cast<size_t>(i)]; };
        EXPECT_NEAR(math::sum_in_lanes(n, term), truth, 1e-6 * truth) << n;
    }
    // 1e8 and -1e8 are in one lane, so what is added between them in other lanes is not lost.
    const auto term = [](int32_t i) { return i == 0 ? 1e8f : i == 32 ? -1e8f : 1.0f; };
    EXPECT_EQ(math::sum_in_lanes(64, term), 62.0f);
}

}  // namespace
}  // namespace moe
