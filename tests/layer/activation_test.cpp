// Activations against computed values, in float and in double, and at the ends of the range.
#include "libmoe/layer/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moe {
namespace {

struct Golden {
    const char* name;
    Activation activation;
    double expected[3];
};

constexpr double gates[3] = {8.5, -1.5, 12};
constexpr double ups[3] = {-9, 2, 11};

Activation of(moe_activation kind) {
    Activation activation;
    activation.kind = kind;
    return activation;
}

Activation clamped_silu(float gate_limit, float up_limit, float post_limit) {
    Activation activation = of(MOE_ACTIVATION_SILU);
    activation.gate_limit = gate_limit;
    activation.up_limit = up_limit;
    activation.post_limit = post_limit;
    return activation;
}

Activation gpt_oss() {
    Activation activation = clamped_silu(7, 7, Activation::no_limit);
    activation.alpha = 1.702f;
    activation.up_offset = 1;
    return activation;
}

Activation situ() {
    Activation activation = of(MOE_ACTIVATION_SITU);
    activation.situ_beta = 4;
    activation.situ_beta_up = 25;
    return activation;
}

const Golden goldens[] = {
    {"silu", of(MOE_ACTIVATION_SILU), {-76.48443784, -.54727657, 131.99918897}},
    {"gpt_oss", gpt_oss(), {-41.99971877, -.32501340, 55.99962503}},
    {"clamped",
     clamped_silu(10, 10, Activation::no_limit),
     {-76.48443784, -.54727657, 99.99546021}},
    {"step", clamped_silu(Activation::no_limit, 7, 7), {-49, -.54727657, 49}},
    {"situ", situ(), {-33.54358607, -.52187543, 41.15963395}},
    {"gelu_tanh", of(MOE_ACTIVATION_GELU_TANH), {-76.5, -.20085685, 132}},
    {"gelu_erf", of(MOE_ACTIVATION_GELU_ERF), {-76.5, -.20042160, 132}},
};

template <class Real>
void check_goldens(double relative) {
    for (const Golden& golden : goldens) {
        for (int i = 0; i < 3; i++) {
            const Real value = activate(golden.activation, Real(gates[i]), Real(ups[i]));
            const double bound = relative * std::fabs(golden.expected[i]) + 6e-9;
            EXPECT_NEAR(double{value}, golden.expected[i], bound) << golden.name << " " << i;
        }
    }
}

TEST(Activation, GoldenInDouble) {
    // gpt-oss: alpha is 1.702 rounded to float32, which moves the eighth digit.
    check_goldens<double>(1e-8);
}

TEST(Activation, GoldenInFloat) {
    check_goldens<float>(4e-7);
}

TEST(Activation, WithoutGateUpTakesItsPart) {
    Activation relu2 = of(MOE_ACTIVATION_RELU2);
    relu2.gated = false;
    EXPECT_EQ(activate(relu2, std::nanf(""), 8.5f), 72.25f);
    EXPECT_EQ(activate(relu2, 5.0f, -1.5f), 0.0f);
    EXPECT_EQ(activate(relu2, 5.0, 12.0), 144.0);
    Activation silu = of(MOE_ACTIVATION_SILU);
    silu.gated = false;
    EXPECT_NEAR(activate(silu, 3.0, 8.5), 8.5 / (1 + std::exp(-8.5)), 1e-14);
    silu.post_limit = 7;
    EXPECT_EQ(activate(silu, 3.0, 8.5), 7.0);
    silu.gate_limit = 2;
    EXPECT_NEAR(activate(silu, 3.0, 8.5), 2 / (1 + std::exp(-2.0)), 1e-14);
}

template <class Real>
void check_saturation() {
    const Real infinity = std::numeric_limits<Real>::infinity();
    for (const moe_activation kind :
         {MOE_ACTIVATION_SILU, MOE_ACTIVATION_GELU_TANH, MOE_ACTIVATION_GELU_ERF}) {
        for (const Real g : {Real(-1000), Real(-1e30), -infinity}) {
            EXPECT_EQ(activate(of(kind), g, Real(3)), Real(0)) << kind << " " << g;
        }
        EXPECT_EQ(activate(of(kind), Real(1000), Real(2)), Real(2000)) << kind;
        EXPECT_TRUE(std::isnan(activate(of(kind), Real(NAN), Real(1)))) << kind;
    }
    EXPECT_EQ(activate(situ(), Real(-1000), Real(3)), Real(0));
    EXPECT_NEAR(double{activate(situ(), Real(1000), Real(1000))}, 100.0, 1e-4);
}

TEST(Activation, Saturates) {
    check_saturation<float>();
    check_saturation<double>();
}

TEST(Activation, LimitsKeepNan) {
    const Activation limited = clamped_silu(7, 7, 7);
    EXPECT_TRUE(std::isnan(activate(limited, std::nanf(""), 1.0f)));
    EXPECT_TRUE(std::isnan(activate(limited, 1.0f, std::nanf(""))));
}

// The tails are small numbers, not differences of ones.
TEST(Activation, GeluTailsKeepTheirDigits) {
    for (double g = -6; g < -2; g += 0.25) {
        for (const moe_activation kind : {MOE_ACTIVATION_GELU_TANH, MOE_ACTIVATION_GELU_ERF}) {
            const double exact = activate(of(kind), g, 1.0);
            const double single = activate(of(kind), static_cast<float>(g), 1.0f);
            EXPECT_NEAR(single / exact, 1.0, 2e-5) << kind << " " << g;
        }
    }
}

}  // namespace
}  // namespace moe
