// index.json and config.json: every truncation, sizes and counts at their limits, names that do not
// belong into a sentence.
#include "libmoe/checkpoint/json.hpp"

#include "libmoe/checkpoint/safetensors.hpp"
#include "tests/checkpoint/models.hpp"

namespace moe::test {
namespace {

std::pmr::memory_resource& memory() {
    return *std::pmr::get_default_resource();
}

Failure index_failure(std::string_view text) {
    return failure_of([&] { read_shard_index(memory(), text, "index.json"); });
}

Failure config_failure(std::string_view text) {
    return failure_of([&] {
        Settings settings(memory(), "config.json");
        read_settings_json(text, "config.json", settings);
    });
}

void expect_corrupt(const Failure& failure, const char* text) {
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text;
}

TEST(Json, EveryTruncationIsRefused) {
    const std::string index = R"({"metadata":{"total_size":1},"weight_map":{"a":"b","c":"d"}})";
    ASSERT_EQ(index_failure(index).text, "");
    for (size_t n = 0; n < index.size(); ++n)
        expect_corrupt(index_failure(index.substr(0, n)), "index.json: not valid JSON at byte");
    const std::string config = R"({"model_type":"x","a":[1,-2,3.5,true,null],"b":{"c":1e3}})";
    ASSERT_EQ(config_failure(config).text, "");
    for (size_t n = 0; n < config.size(); ++n)
        expect_corrupt(config_failure(config.substr(0, n)), "config.json: not valid JSON at byte");
}

// As Python writes them: a file may have them, and a number they are not.
TEST(Json, NumbersThatJsonHasNot) {
    Settings settings(memory(), "config.json");
    read_settings_json(R"({"a":[0.0,Infinity],"b":-Infinity,"c":NaN,"d":2,"e":"\\\"NaN, \\",)"
                       R"("f":"Infinity"})",
                       "config.json", settings);
    EXPECT_EQ(settings.find_number("d"), 2.0f);
    EXPECT_EQ(settings.find_text("e"), "\\\"NaN, \\");
    EXPECT_EQ(settings.find_text("f"), "Infinity");
    for (const char* key : {"a.1", "b", "c"})
        expect_corrupt(failure_of([&] { (void)settings.find_number(key); }), key);
}

TEST(Json, ConfigsThatAreNoneAreRefused) {
    const struct {
        const char* config;
        const char* text;
    } cases[] = {
        {"[]", "config.json: the JSON is not an object"},
        {"1", "config.json: the JSON is not an object"},
        {"\"a\"", "config.json: the JSON is not an object"},
        {"{\"a\":\"\xff\"}", "not valid JSON"},
        {R"({"a":"\ud800"})", "not valid JSON"},
        {R"({"a":Nan})", "not valid JSON"},
        {R"({"a":+Infinity})", "not valid JSON"},
        {R"({"a":1e999})", "not valid JSON"},
        {"{} {}", "not valid JSON"},
    };
    for (const auto& c : cases) expect_corrupt(config_failure(c.config), c.text);
    expect_corrupt(config_failure("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}"),
                   "nested deeper than 32");
    // Depth costs nothing.
    expect_corrupt(config_failure(std::string(1 << 20, '[')), "not an object");
    expect_corrupt(config_failure("{\"a\":" + std::string(1 << 20, '[')), "nested deeper than 32");
}

// Every value below a long key has that key in its name: a few bytes of the file for each.
TEST(Json, LongKeysOfManyValuesAreRefused) {
    std::string config = "{\"" + std::string(1 << 20, 'k') + "\":[1";
    for (int i = 0; i < 1000; ++i) config += ",1";
    expect_corrupt(config_failure(config + "]}"),
                   "config.json: names and texts of more than 67108864 bytes, up to 'kkk");
}

TEST(Json, TooManyValuesAreRefused) {
    std::string config = "{\"a\":[1";
    for (int i = 0; i < 1 << 20; ++i) config += ",1";
    expect_corrupt(config_failure(config + "]}"),
                   "config.json: more than 1048576 values, up to 'a.1048576'");
}

TEST(Json, TooManyShardsAreRefused) {
    std::string map;
    for (int i = 0; i <= 10000; ++i) {
        const std::string n = std::to_string(i);
        map += (i ? ",\"t" : "\"t") + n + "\":\"s" + n + "\"";
    }
    expect_corrupt(index_failure("{\"weight_map\":{" + map + "}}"),
                   "index.json: tensor 't10000': 's10000' is one file more than 10000");
}

TEST(Json, TooManyTensorsAreRefused) {
    TensorIndex index(memory());
    TensorEntry entry;
    entry.element = safetensors_element("U8");
    for (size_t i = 0; i < TensorIndex::max_tensors; ++i) {
        const std::string name = std::to_string(i);
        entry.name = name;
        index.add(entry, "x.safetensors");
    }
    entry.name = "more";
    expect_corrupt(failure_of([&] { index.add(entry, "x.safetensors"); }),
                   "x.safetensors: more than 2097152 tensors");
}

TEST(Json, TooLargeFilesAreRefused) {
    const struct {
        const char* name;
        uint64_t limit;
        const char* text;
    } cases[] = {
        {"config.json", uint64_t{16} << 20, "config.json: 16777217 bytes are more than 16777216"},
        {"model.safetensors.index.json", uint64_t{256} << 20,
         "model.safetensors.index.json: 268435457 bytes are more than 268435456"},
    };
    for (const auto& c : cases) {
        const Folder folder;
        mixtral().write(folder);
        folder.write(c.name, "{");
        std::filesystem::resize_file(folder.path(c.name), c.limit + 1);  // sparse
        expect_corrupt(failure_of([&] { open_path(folder.path()); }), c.text);
    }
}

// Names come from files: of shards through the index, of files through the folder.
TEST(Json, NamesOfFilesAreCleanInSentences) {
    const Folder folder;
    mixtral().write(folder);
    std::filesystem::rename(folder.path("model.safetensors"), folder.path("a\nb.safetensors"));
    folder.write("model.safetensors.index.json", R"({"weight_map":{"none":"a\nb.safetensors"}})");
    expect_corrupt(failure_of([&] { open_path(folder.path()); }),
                   "tensor 'none' should be in a?b.safetensors and is not");
    folder.write("a\nb.safetensors", "short");
    expect_corrupt(failure_of([&] { open_path(folder.path()); }),
                   "a?b.safetensors: 5 bytes are too few");
}

TEST(Json, TwoBlocksOfOneLayerAreRefusedByName) {
    Model model = mixtral();
    model.add("model.layers.00.block_sparse_moe.experts.0.w1.weight", "BF16", {width, hidden});
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("model.safetensors: layer 0 has experts under"), std::string::npos)
        << failure.text;
}

}  // namespace
}  // namespace moe::test
