// The writer of JSON against a library that keeps a tree.
#include "libmoe/plan/json_writer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonWriter, WritesWhatATreeWrites) {
    JsonWriter json;
    json.object([&] {
        json.member("flags", true);
        json.member("none", nullptr);
        json.object("empty", [] {});
        json.array("nothing", [] {});
        json.array("mixed", [&] {
            json.value(INT64_MIN);
            json.object([&] { json.member("most", UINT64_MAX); });
            json.object([] {});
            json.value(false);
            json.value("text");
        });
        json.object("in", [&] { json.array("side", [&] { json.value(int32_t{-1}); }); });
        json.member("last", std::string("x"));
    });
    // As a text: a tree of initialiser lists takes the compiler half a minute.
    const Json tree = Json::parse(R"({"flags": true, "none": null, "empty": {}, "nothing": [],
        "mixed": [-9223372036854775808, {"most": 18446744073709551615}, {}, false, "text"],
        "in": {"side": [-1]}, "last": "x"})");
    EXPECT_EQ(json.take(), tree.dump(2));
}

TEST(JsonWriter, AnObjectOfNothing) {
    JsonWriter json;
    json.object([] {});
    EXPECT_EQ(json.take(), "{}");
}

TEST(JsonWriter, EscapesWhatJsonCannotHold) {
    for (int c = 0; c < 0x80; ++c) {
        const std::string text = {'a', static_cast<char>(c), 'z'};
        JsonWriter json;
        json.object([&] { json.member(text, text); });
        EXPECT_EQ(json.take(), Json({{text, text}}).dump(2)) << c;
    }
    JsonWriter json;
    json.value("\u00e9\u20ac");
    EXPECT_EQ(json.take(), Json("\u00e9\u20ac").dump(2));
}

}  // namespace
}  // namespace moe
