// What other programs measured: what is read, what is refused by name, and how it is merged.
#include "bench/peers/peer_list.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace moe::bench {
namespace {

const char* const fields[] = {"peer", "version", "model", "format", "n_tokens", "us", "note"};
const char* const values[] = {R"("Other, 2 products")",
                              R"("1.2+cu3")",
                              R"("qwen3-30b")",
                              R"("nvfp4")",
                              "8",
                              "20.5",
                              R"("no sum")"};

// An object without the field `left_out`, or with another value of it where `other` is one.
std::string object(const std::string& left_out = "", const std::string& other = "") {
    std::string text;
    for (size_t i = 0; i < std::size(fields); ++i) {
        if (fields[i] == left_out && other.empty()) continue;
        text += (text.empty() ? "{\"" : ", \"") + std::string(fields[i]) +
                "\": " + (fields[i] == left_out ? other : values[i]);
    }
    return text + "}";
}

std::string problem_of_peers(const std::string& text) {
    try {
        parse_peers(text);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "none";
}

TEST(PeerList, EveryFieldArrives) {
    const auto list = parse_peers("[" + object() + "]");
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(list[0].peer, "Other, 2 products");
    EXPECT_EQ(list[0].version, "1.2+cu3");
    EXPECT_EQ(list[0].model, "qwen3-30b");
    EXPECT_EQ(list[0].format, "nvfp4");
    EXPECT_EQ(list[0].n_tokens, 8);
    EXPECT_EQ(list[0].us, 20.5);
    EXPECT_EQ(list[0].note, "no sum");
    EXPECT_TRUE(parse_peers("[]").empty());
}

TEST(PeerList, EveryFieldIsNeededAndChecked) {
    for (const char* field : fields) {
        EXPECT_EQ(problem_of_peers("[" + object(field) + "]"),
                  "result 1 has no " + std::string(field));
        for (const char* wrong : {"null", "[]", "-1", "\"\"", "\"a | b\"", "\"a\\nb\""})
            EXPECT_NE(problem_of_peers("[" + object(field, wrong) + "]"), "none") << field << wrong;
    }
    const std::string good = object();
    EXPECT_EQ(problem_of_peers("[" + good + ", " + good.substr(0, good.size() - 1) +
                               R"(, "floor_us": 1}])"),
              "result 2 has a field floor_us, which is not known");
    for (const char* text : {"", "{}", "[1]", "[", "{\"results\": []}"})
        EXPECT_NE(problem_of_peers(text), "none") << text;
}

PeerResult made(const char* peer, const char* model, int64_t n_tokens, double floor_us) {
    return {peer, "1", model, "bf16", n_tokens, 10.0, "a note", floor_us};
}

TEST(PeerList, OthersGetTheFloorOfTheirLayer) {
    std::vector<PeerResult> results{made("ours", "a", 1, 2.0), made("ours", "a", 8, 3.0)};
    merge_peers(results, {made("theirs", "a", 8, 0.0), made("theirs", "a", 1, 0.0)});
    ASSERT_EQ(results.size(), 4u);
    EXPECT_EQ(results[2].floor_us, 3.0);
    EXPECT_EQ(results[3].floor_us, 2.0);
    EXPECT_THROW(merge_peers(results, {made("theirs", "a", 1, 0.0)}), std::runtime_error);
    EXPECT_THROW(merge_peers(results, {made("ours", "a", 8, 0.0)}), std::runtime_error);
    EXPECT_THROW(merge_peers(results, {made("theirs", "b", 1, 0.0)}), std::runtime_error);
    EXPECT_EQ(results.size(), 4u);
}

}  // namespace
}  // namespace moe::bench
