// The vectors of the activations of every instruction family against the functions of
// layer/activation.hpp in double, and the same values in any place of a vector.
#include "libmoe/layer/activation.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "libmoe/cpu/round.hpp"
#include "tests/cpu/gemv_cases.hpp"

namespace moe::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<Activation> activations() {
    std::vector<Activation> all;
    for (const auto kind : {MOE_ACTIVATION_SILU, MOE_ACTIVATION_GELU_TANH, MOE_ACTIVATION_GELU_ERF,
                            MOE_ACTIVATION_RELU2, MOE_ACTIVATION_NONE})
        for (const bool gated : {true, false}) {
            all.emplace_back().kind = kind;
            all.back().gated = gated;
        }
    Activation gpt_oss = all.front();
    gpt_oss.alpha = 1.702f;
    gpt_oss.up_offset = 1;
    gpt_oss.gate_limit = gpt_oss.up_limit = 7;
    all.push_back(gpt_oss);
    all.push_back(all.front());
    all.back().post_limit = all.back().up_limit = 2.5f;
    return all;
}

GateActivation as_kernels_take(const Activation& a, bool round_to_bf16) {
    return {a.kind,       a.gated,    round_to_bf16, a.alpha,
            a.gate_limit, a.up_limit, a.up_offset,   a.post_limit};
}

std::vector<float> run(Arithmetic arithmetic, const Activation& activation,
                       const std::vector<float>& gates, const std::vector<float>& ups,
                       bool round_to_bf16 = false) {
    const size_t n = gates.size(), step = activation_step;
    std::vector<float> g = gates, u = ups, out(n + step);
    g.resize(n + step);
    u.resize(n + step);
    gemv_family(arithmetic)
        ->activate(as_kernels_take(activation, round_to_bf16), g.data(), u.data(),
                   static_cast<int64_t>(n), out.data());
    out.resize(n);
    return out;
}

std::vector<float> all_magnitudes() {
    std::vector<float> all;
    for (float x = 1e-30f; x < 1e30f; x *= 1.0371f) all.insert(all.end(), {x, -x});
    for (float x = 0.001f; x < 30; x += 0.00173f) all.insert(all.end(), {x, -x});
    return all;
}

// Relative to the exact function of the float32 arguments, where the result is a normal number. The
// arguments of gelu_tanh and of silu with an alpha are rounded, which counts as often as they are
// large.
TEST(Activations, KeepTheBoundOfTheirFunctions) {
    const std::vector<float> gates = all_magnitudes();
    std::vector<float> ups = gates;
    std::rotate(ups.begin(), ups.begin() + 1234, ups.end());
    for (const Arithmetic arithmetic : families())
        for (const Activation& activation : activations()) {
            const std::vector<float> got = run(arithmetic, activation, gates, ups);
            double worst = 0;
            for (size_t i = 0; i < got.size(); ++i) {
                const double right = activate<double>(activation, double{gates[i]}, double{ups[i]});
                const double in_floats = double{activate<float>(activation, gates[i], ups[i])};
                if (!(std::fabs(right) > 1e-36 && std::fabs(right) < 1e38)) continue;
                const double error = std::fabs(got[i] - right) / std::fabs(right);
                const double of_floats = std::fabs(in_floats - right) / std::fabs(right);
                worst = std::max(worst, error - of_floats);
            }
            EXPECT_LT(worst, 1e-6) << activation.kind << " gated " << activation.gated;
        }
}

TEST(Activations, EndsOfTheRangeAreThoseOfTheReference) {
    std::vector<float> gates, ups;
    const float ends[] = {0.0f,   -0.0f,   1e-44f,  -1e-44f,  3e38f,     -3e38f,       200.0f,
                          -90.0f, -103.9f, -200.0f, infinity, -infinity, std::nanf("")};
    for (const float gate : ends)
        for (const float up : ends) {
            gates.push_back(gate);
            ups.push_back(up);
        }
    for (const Arithmetic arithmetic : families())
        for (const Activation& activation : activations()) {
            const std::vector<float> got = run(arithmetic, activation, gates, ups);
            for (size_t i = 0; i < got.size(); ++i) {
                const float right = activate<float>(activation, gates[i], ups[i]);
                if (std::isnan(right))
                    EXPECT_TRUE(std::isnan(got[i])) << gates[i] << " " << ups[i];
                else if (std::isinf(right))
                    EXPECT_EQ(got[i], right) << gates[i] << " " << ups[i];
                else
                    EXPECT_NEAR(got[i], right, 1e-6 * std::fabs(right) + 1e-37)
                        << activation.kind << " " << gates[i] << " " << ups[i];
            }
        }
}

TEST(Activations, AValueHasTheSameBitsInAnyPlaceAndFamily) {
    const std::vector<float> gates = gaussian(333, 3), ups = gaussian(333, 4);
    for (const Activation& activation : activations()) {
        const std::vector<float> all = run(families().front(), activation, gates, ups);
        for (const Arithmetic arithmetic : families())
            for (size_t first = 0; first < gates.size(); first += 29) {
                const auto from = static_cast<int64_t>(first);
                const std::vector<float> part =
                    run(arithmetic, activation, {gates.begin() + from, gates.end()},
                        {ups.begin() + from, ups.end()});
                EXPECT_EQ(std::memcmp(part.data(), all.data() + first, part.size() * 4), 0);
            }
    }
}

TEST(Activations, RoundToBfloat16AsTheReferenceDoes) {
    std::vector<float> gates = gaussian(500, 3), ups = gaussian(500, 4);
    gates[7] = std::nanf("");
    ups[9] = infinity;
    for (const Arithmetic arithmetic : families())
        for (const Activation& activation : activations()) {
            const std::vector<float> all = run(arithmetic, activation, gates, ups);
            const std::vector<float> rounded = run(arithmetic, activation, gates, ups, true);
            for (size_t i = 0; i < all.size(); ++i) {
                const float right = round_to(all[i], MOE_TYPE_BF16);
                EXPECT_EQ(std::memcmp(&rounded[i], &right, 4), 0) << all[i];
            }
        }
}

}  // namespace
}  // namespace moe::cpu
