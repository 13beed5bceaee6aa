// Patterns of configurations against names of modules. What they match was taken from Python's re.
#include "libmoe/checkpoint/name_pattern.hpp"

#include <gtest/gtest.h>

#include <string>

namespace moe::test {
namespace {

using Where = NamePattern::Where;

std::optional<NamePattern> parse(std::string_view text) {
    return NamePattern::parse(*std::pmr::get_default_resource(), text);
}

bool matches(std::string_view text, std::string_view name, Where where = Where::AtStart) {
    const auto pattern = parse(text);
    EXPECT_TRUE(pattern.has_value()) << text;
    size_t steps = 0;
    const auto found = pattern ? pattern->matches(name, where, steps) : std::nullopt;
    EXPECT_TRUE(found.has_value()) << text;
    return found.value_or(false);
}

TEST(NamePattern, MatchesAsPythonDoes) {
    const struct {
        const char* pattern;
        const char* name;
        bool at_start, anywhere;
    } cases[] = {
        {"", "", true, true},
        {"a", "ab", true, true},
        {"b", "ab", false, true},
        {"a$", "ab", false, false},
        {"^b", "ab", false, false},
        {"b$", "ab", false, true},
        {R"(.*\.18\..*gate.*)", "model.layers.18.mlp.experts.3.gate_proj", true, true},
        {R"(.*\.18\..*gate.*)", "model.layers.8.mlp.experts.18.up_proj", false, false},
        {R"(model\.layers\.(0|1|2)\.mlp)", "model.layers.1.mlp.up", true, true},
        {R"(model\.layers\.(0|1|2)\.mlp)", "model.layers.3.mlp.up", false, false},
        {R"(model\.layers\.(0|1|2)\.mlp)", "x.model.layers.2.mlp", false, true},
        {R"(.*layers\.[0-9]\.)", "model.layers.7.mlp", true, true},
        {R"(.*layers\.[0-9]\.)", "model.layers.77.mlp", false, false},
        {R"(.*layers\.\d+\.mlp\.experts\.\d{1,2}\.)", "layers.77.mlp.experts.12.up", true, true},
        {R"(.*layers\.\d+\.mlp\.experts\.\d{1,2}\.)", "layers.7.mlp.experts.123.up", false, false},
        {"(ab){2}$", "abab", true, true},
        {"(ab){2}$", "ababab", false, true},
        {"(ab){2,}$", "ababab", true, true},
        {"(a|bc)*d", "abcbcad", true, true},
        {"(a|bc)*d", "abcbad", false, true},
        {"(a*)*b", "aaaac", false, false},
        {"x?y+z*?$", "yyz", true, true},
        {"(?:up|gate)_proj$", "gate_proj", true, true},
        {"^(?!.*experts).*$", "model.layers.0.mlp.gate", true, true},
        {"^(?!.*experts).*$", "model.layers.0.mlp.experts.0.up_proj", false, false},
        {".*(?=down)", "experts.1.down_proj", true, true},
        {".*(?=down)", "experts.1.up_proj", false, false},
        {"[^.]+$", "up_proj", true, true},
        {"[^.]+$", "0.up_proj", false, true},
        {R"([\w.-]+:)", "a-b.c:", true, true},
        {"[]x]", "]", true, true},
        {"a|", "b", true, true},
        {"(|a)b", "b", true, true},
        {"a{0}b", "b", true, true},
    };
    for (const auto& c : cases) {
        EXPECT_EQ(matches(c.pattern, c.name), c.at_start) << c.pattern << " of " << c.name;
        EXPECT_EQ(matches(c.pattern, c.name, Where::Anywhere), c.anywhere)
            << c.pattern << " in " << c.name;
    }
}

TEST(NamePattern, WhatIsNotUnderstoodIsRefused) {
    for (const char* text :
         {"(",     ")",        "(a",          "a)",      "[a",     "[b-a]", "*",      "a**",
          "a++",   "a{2",      "a{3,2}",      "a{1001}", "a{,2}",  R"(\1)", R"(\bx)", "(?<!a)b",
          "(?i)x", "(?P<n>x)", "[[:alpha:]]", "^*",      "(?=a)*", "\\"})
        EXPECT_FALSE(parse(text).has_value()) << text;
    EXPECT_FALSE(parse(std::string(100, '(') + std::string(100, ')')).has_value());
    EXPECT_FALSE(parse("((((a{1000}){1000}){1000}){1000})").has_value());
}

TEST(NamePattern, WorkIsLimited) {
    const std::string name(4096, 'a');
    const auto pattern = parse("(?=.*(?=.*(?=.*b)))c");
    ASSERT_TRUE(pattern.has_value());
    size_t steps = 0;
    EXPECT_FALSE(pattern->matches(name, Where::Anywhere, steps).has_value());
    // What was taken counts on: a list of patterns has the limit of one.
    EXPECT_FALSE(parse("b")->matches("b", Where::Anywhere, steps).has_value());
    EXPECT_FALSE(matches("(a|aa|a?)*b", std::string(200, 'a')));
}

}  // namespace
}  // namespace moe::test
