// moe_checkpoint_options.overrides: what they change, what they cannot, and what is said of text
// that is none.
#include <gtest/gtest.h>

#include "tests/checkpoint/models.hpp"

namespace moe::test {
namespace {

moe_checkpoint_options with_overrides(const char* text) {
    moe_checkpoint_options options{};
    options.overrides = text;
    return options;
}

moe_layer_desc overridden(const char* text, const Model& model = mixtral()) {
    const Folder folder;
    return open_model(folder, model, with_overrides(text))->layer_desc(0);
}

void expect_refused(const char* text, const char* sentence) {
    const Failure failure = layer_failure(mixtral(), 0, with_overrides(text));
    EXPECT_EQ(failure.status, MOE_ERROR_INVALID_ARGUMENT) << text;
    EXPECT_NE(failure.text.find(std::string("options.overrides: ") + sentence), std::string::npos)
        << text << ": " << failure.text;
}

TEST(Overrides, ReplaceFieldsAndNothingElse) {
    const moe_layer_desc plain = overridden(nullptr);
    const moe_layer_desc desc = overridden(
        " top_k=3, routed_scale = 2.5,renormalize=sum_clamp,renormalize_eps=1e-20,"
        "score=sigmoid,gate_limit=7 ,");
    EXPECT_EQ(plain.top_k, 2);
    EXPECT_EQ(plain.has_routed_scale, 0);
    EXPECT_EQ(desc.top_k, 3);
    EXPECT_EQ(desc.has_routed_scale, 1);
    EXPECT_EQ(desc.routed_scale, 2.5f);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_CLAMP);
    EXPECT_EQ(desc.renormalize_eps, 1e-20f);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.has_gate_limit, 1);
    EXPECT_EQ(desc.gate_limit, 7.0f);
    moe_layer_desc back = desc;
    back.top_k = plain.top_k;
    back.has_routed_scale = back.has_gate_limit = 0;
    back.routed_scale = back.gate_limit = 0;
    back.renormalize = plain.renormalize;
    back.renormalize_eps = plain.renormalize_eps;
    back.score = plain.score;
    EXPECT_EQ(std::memcmp(&back, &plain, sizeof plain), 0);
}

// A key that nobody reads and that says what the file says otherwise, too.
TEST(Overrides, ASecondKeyOfTheSameValueStays) {
    Model model = gpt_oss(false);
    const moe_layer_desc plain = overridden(nullptr, model);
    model.config.insert(1, "\"experts_per_token\":" + std::to_string(plain.top_k) + ",");
    EXPECT_EQ(overridden("top_k=1", model).top_k, 1);
    Model other = gpt_oss(false);
    other.config.insert(1, "\"experts_per_token\":9,");
    const Failure failure = layer_failure(other, 0, with_overrides("top_k=1"));
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED) << failure.text;
}

TEST(Overrides, TakeAwayByNone) {
    const moe_layer_desc plain = overridden(nullptr, gpt_oss(false));
    ASSERT_EQ(plain.has_gate_limit, 1);
    ASSERT_NE(plain.gate_limit, 0.0f);
    const moe_layer_desc desc = overridden("gate_limit=none,activation_alpha=1.5", gpt_oss(false));
    EXPECT_EQ(desc.has_gate_limit, 0);
    EXPECT_EQ(desc.gate_limit, 0.0f);
    EXPECT_EQ(desc.activation_alpha, 1.5f);
    EXPECT_EQ(desc.up_limit, plain.up_limit);
}

TEST(Overrides, AreRefusedByName) {
    expect_refused("top_k", "'top_k' is not NAME=VALUE");
    expect_refused("top_k=2,,score=sigmoid", "'' is not NAME=VALUE");
    expect_refused("topk=2", "'topk' is none of top_k ");
    expect_refused("hidden=32", "'hidden' cannot be overridden: the tensors");
    expect_refused("has_router=0", "'has_router' cannot be overridden");
    expect_refused("top_k=2.5", "top_k is '2.5', must be a whole number");
    expect_refused("top_k=none", "top_k is 'none', must be a whole number");
    expect_refused("top_k=", "top_k is '', must be a whole number");
    expect_refused("top_k=99999999999", "top_k is '99999999999'");
    expect_refused("gate_limit=inf", "gate_limit is 'inf', must be a number or none");
    expect_refused("gate_limit=7x", "gate_limit is '7x'");
    expect_refused("renormalize=sum",
                   "renormalize is 'sum', must be one of none sum_add sum_clamp");
    expect_refused("top_k=1,top_k=3", "top_k is given twice, the second time as '3'");
}

// Each is well formed, and no layer is so.
TEST(Overrides, MustMakeALayer) {
    expect_refused("top_k=5", "top_k is 5");
    expect_refused("n_group=3", "n_group is 3");
    expect_refused("round_logits=2", "round_logits is 2");
}

TEST(Overrides, NeedNoFamilyToBeWrong) {
    const Folder folder;
    mixtral().write(folder);
    const Failure failure =
        failure_of([&] { open_path(folder.path(), with_overrides("top_k=x")); });
    EXPECT_EQ(failure.status, MOE_ERROR_INVALID_ARGUMENT) << "open says it, before a layer";
}

TEST(Overrides, GoWithAFamilyNamedByHand) {
    Model model = mixtral();
    model.config.replace(model.config.find("mixtral"), 7, "newname");
    const Folder folder;
    moe_checkpoint_options options = with_overrides("top_k=1");
    options.family = "mixtral";
    EXPECT_EQ(open_model(folder, model, options)->layer_desc(0).top_k, 1);
}

}  // namespace
}  // namespace moe::test
