// Lists of cases: what is read, and what is refused by name.
#include "bench/case_list.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace moe::bench {
namespace {

const char* const model =
    R"({"name": "of-8", "hidden": 64, "intermediate": 48, "n_experts": 8, "top_k": 2})";

std::string list_of(const std::string& models, const std::string& cases) {
    return "{\"models\": [" + models + "], \"cases\": [" + cases + "]}";
}

std::string case_with(const std::string& more) {
    return R"({"model": "of-8", "format": "bf16", "mode": "ids", "n_tokens": 4)" + more + "}";
}

TEST(CaseList, EveryFieldArrives) {
    const CaseList list = parse_cases(list_of(
        model,
        case_with(
            R"(, "zipf": 1.2, "unfused": true, "kernels": "-experts:sm90_*,a_b", "stages": true,)"
            R"( "x_type": "f16", "intermediate_type": "f16")")));
    ASSERT_EQ(list.cases.size(), 1u);
    const Case& one = list.cases[0];
    EXPECT_EQ(one.model, &list.models[0]);
    EXPECT_EQ(one.model->hidden, 64);
    EXPECT_EQ(one.model->intermediate, 48);
    EXPECT_EQ(one.model->n_experts, 8);
    EXPECT_EQ(one.model->top_k, 2);
    EXPECT_EQ(one.model->shared_intermediate, 0);
    EXPECT_EQ(one.mode, Mode::ids);
    EXPECT_TRUE(one.unfused);
    EXPECT_TRUE(one.stages);
    EXPECT_EQ(one.x_type, MOE_TYPE_F16);
    EXPECT_EQ(one.intermediate_type, MOE_TYPE_F16);
    EXPECT_EQ(one.name(),
              "of-8/bf16/ids/T4/zipf1.2/unfused/x_f16/intermediate_f16/-experts:sm90_*,a_b");
}

TEST(CaseList, WhatIsNotGivenIsPlain) {
    const CaseList list = parse_cases(
        R"({"cases": [{"model": "mixtral", "format": "nvfp4", "mode": "layer", "n_tokens": 1}]})");
    ASSERT_EQ(list.cases.size(), 1u);
    EXPECT_EQ(list.cases[0].model, find_model("mixtral"));
    EXPECT_EQ(list.cases[0].name(), "mixtral/nvfp4/layer/T1/uniform");
    EXPECT_FALSE(list.cases[0].stages);
    EXPECT_EQ(list.cases[0].x_type, MOE_TYPE_BF16);
    EXPECT_EQ(list.cases[0].intermediate_type, MOE_TYPE_BF16);
}

TEST(CaseList, CasesKeepTheirModelsWhenTheListMoves) {
    CaseList list = parse_cases(list_of(model, case_with("")));
    const CaseList moved = std::move(list);
    EXPECT_EQ(moved.cases[0].model, &moved.models[0]);
}

struct Wrong {
    std::string text;
    std::string names;  // what the message must name
};

TEST(CaseList, WrongListsAreRefusedByName) {
    const std::string other_model = R"({"name": "mixtral", "hidden": 64, "intermediate": 48,)"
                                    R"( "n_experts": 8, "top_k": 2})";
    const Wrong all[] = {
        {"{", "no JSON"},
        {"[]", "the list of cases is no object"},
        {R"({"models": []})", "has no cases"},
        {R"({"cases": {}})", "cases is no list"},
        {R"({"cases": [], "seed": 1})", "seed"},
        {list_of("1", ""), "model 1 is no object"},
        {list_of(std::string(model) + "," + model, ""), "model 2 name is of-8 again"},
        {list_of(other_model, ""), "mixtral again"},
        {list_of(R"({"name": "a/b"})", ""), "a/b"},
        {list_of(R"({"name": "a", "hidden": 0})", ""), "hidden is 0"},
        {list_of(R"({"name": "a", "hidden": 64, "intermediate": 48, "n_experts": 2, "top_k": 3})",
                 ""),
         "top_k is 3, not an integer in 1 .. 2"},
        {list_of(model, R"({"model": "of-9"})"), "case 1 model is of-9"},
        {list_of(model, R"({"model": "of-8"})"), "case 1 has no format"},
        {list_of(model, case_with("") + "," + case_with(R"(, "n_tokens": 0)")), "case 2 n_tokens"},
        {list_of(model, case_with(R"(, "n_tokens": 1.5)")), "n_tokens is 1.5"},
        {list_of(model, case_with(R"(, "mode": "graph")")), "mode is graph"},
        {list_of(model, case_with(R"(, "zipf": 0.25)")), "zipf is 0.25"},
        {list_of(model, case_with(R"(, "zipf": -1)")), "zipf is -1"},
        {list_of(model, case_with(R"(, "zipf": "2")")), "zipf is \"2\""},
        {list_of(model, case_with(R"(, "unfused": 1)")), "unfused"},
        {list_of(model, case_with(R"(, "kernels": "a b")")), "a b"},
        {list_of(model, case_with(R"(, "x_type": "f32")")), "x_type is f32"},
        {list_of(model, case_with(R"(, "intermediate_type": 1)")),
         "intermediate_type is no string"},
        {list_of(model, case_with(R"(, "fused": true)")), "fused"},
    };
    for (const Wrong& wrong : all) try {
            parse_cases(wrong.text);
            ADD_FAILURE() << "accepted: " << wrong.text;
        } catch (const std::runtime_error& error) {
            EXPECT_NE(std::string(error.what()).find(wrong.names), std::string::npos)
                << error.what() << " does not name " << wrong.names;
        }
}

TEST(CaseList, AMissingFileIsNamed) {
    try {
        read_cases("/nowhere/cases.json");
        FAIL() << "read";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("/nowhere/cases.json"), std::string::npos);
    }
}

}  // namespace
}  // namespace moe::bench
