// The safetensors reader: a valid file, every rule broken once, and every truncation.
#include "libmoe/checkpoint/safetensors.hpp"

#include "tests/checkpoint/files.hpp"

namespace moe::test {
namespace {

Failure read_safetensors_file(const std::string& path, moe_io io, TensorIndex& index) {
    return failure_of([&] {
        std::vector<File> files;
        files.emplace_back(*std::pmr::get_default_resource(), path, io);
        read_safetensors(*std::pmr::get_default_resource(), files[0], 0, index);
        index.finish(files);
    });
}

Failure read_bytes(const std::string& bytes, moe_io io = MOE_IO_MMAP) {
    const Folder folder;
    TensorIndex index(*std::pmr::get_default_resource());
    return read_safetensors_file(folder.write("broken.safetensors", bytes), io, index);
}

std::string small_file() {
    SafetensorsWriter writer;
    writer.add("b.weight", "BF16", {2, 3}, noise(12, 1));
    writer.add("scalar", "F32", {}, noise(4, 2));
    writer.add("empty", "U8", {0, 7}, "");
    writer.add("a.weight", "F8_E4M3", {5}, noise(5, 3));
    return writer.file();
}

TEST(Safetensors, ReadsAValidFile) {
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        const Folder folder;
        TensorIndex index(*std::pmr::get_default_resource());
        const std::string bytes = small_file();
        const Failure failure =
            read_safetensors_file(folder.write("x.safetensors", bytes), io, index);
        ASSERT_EQ(failure.status, MOE_OK) << failure.text;
        ASSERT_EQ(index.entries().size(), 4u);
        const TensorEntry* b = index.find("b.weight");
        ASSERT_TRUE(b);
        EXPECT_STREQ(b->element->name, "BF16");
        EXPECT_EQ(shape_text(b->dims()), "[2, 3]");
        EXPECT_EQ(bytes.substr(b->offset, b->bytes), noise(12, 1));
        const TensorEntry* a = index.find("a.weight");
        ASSERT_TRUE(a);
        EXPECT_EQ(bytes.substr(a->offset, a->bytes), noise(5, 3));
        EXPECT_EQ(index.find("scalar")->rank, 0u);
        EXPECT_EQ(index.find("a.weigh"), nullptr);
        EXPECT_EQ(index.find("a.weightx"), nullptr);
    }
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
    const char* headers[] = {
        "{}", "{}   ", "{\"__metadata__\":{}}", "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\"}}",
        "{ \"a\" : {\"shape\":[], \"extra\":[1,2], \"data_offsets\":[0,0], \"dtype\":\"U8\"}}"};
    for (const char* header : {headers[0], headers[1], headers[2], headers[3]}) {
        const Failure failure = read_bytes(safetensors_file(header, ""));
        EXPECT_EQ(failure.status, MOE_OK) << header << ": " << failure.text;
    }
    // A scalar has one element: no bytes are too few, one is right, whatever the extra field says.
    EXPECT_EQ(read_bytes(safetensors_file(headers[4], "")).status, MOE_ERROR_CORRUPT_FILE);
    std::string header = headers[4];
    header.replace(header.find("[0,0]"), 5, "[0,1]");
    const Failure failure = read_bytes(safetensors_file(header, "x"));
    EXPECT_EQ(failure.status, MOE_OK) << failure.text;
    // Two codes of four bits.
    EXPECT_EQ(read_bytes(
                  safetensors_file(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "x"))
                  .status,
              MOE_OK);
}

struct HeaderCase {
    const char* name;
    std::string header;
    uint64_t data_bytes;
    const char* text;  // the sentence must have it
};

std::string tensor(const std::string& fields) {
    return "{\"layer.w\":{" + fields + "}}";
}

const std::vector<HeaderCase>& broken_headers() {
    static const std::vector<HeaderCase> cases = {
        {"not_object", "[1]", 0, "does not start with '{' but with '['"},
        {"leading_space", " {}", 0, "does not start with '{' but with ' '"},
        {"byte_order_mark", "\xef\xbb\xbf{}", 0, "does not start with '{' but with '?'"},
        {"only_spaces", "    ", 0, "does not start with '{'"},
        {"trailing_bytes", "{}x", 0, "does not end with '}' and spaces but with 'x'"},
        {"trailing_newline", "{}\n", 0, "does not end"},
        {"trailing_nul", std::string("{}\0", 3), 0, "does not end"},
        {"second_value", "{}{}", 0, "not valid JSON"},
        {"unfinished", "{\"a\":}", 0, "not valid JSON"},
        {"comment", "{/* */}", 0, "not valid JSON"},
        {"raw_invalid_utf8", "{\"a\xff\":{}}", 0, "not valid JSON"},
        {"overlong_utf8", "{\"a\xc0\xaf\":{}}", 0, "not valid JSON"},
        {"raw_surrogate", "{\"a\xed\xa0\x80\":{}}", 0, "not valid JSON"},
        {"utf8_beyond_unicode", "{\"a\xf4\x90\x80\x80\":{}}", 0, "not valid JSON"},
        {"utf8_cut", "{\"a\xe2\x82\":{}}", 0, "not valid JSON"},
        {"surrogate_escape", R"({"a\ud800":{}})", 0, "not valid JSON"},
        {"low_surrogate_escape", R"({"a\udc00":{}})", 0, "not valid JSON"},
        {"nested_too_deep", R"({"layer.w":{"x":[[1]]}})", 0, "nested deeper than 3"},
        {"tensor_is_number", R"({"layer.w":1})", 0, "'layer.w': is not an object but 1"},
        {"tensor_is_array", R"({"layer.w":[]})", 0, "'layer.w': is an array"},
        {"no_dtype", tensor(R"("shape":[0],"data_offsets":[0,0])"), 0, "'layer.w': has no dtype"},
        {"no_shape", tensor(R"("dtype":"U8","data_offsets":[0,0])"), 0, "'layer.w': has no shape"},
        {"no_offsets", tensor(R"("dtype":"U8","shape":[0])"), 0, "'layer.w': has no data_offsets"},
        {"unknown_dtype", tensor(R"("dtype":"F5","shape":[0],"data_offsets":[0,0])"), 0,
         "unknown dtype 'F5'"},
        {"dtype_number", tensor(R"("dtype":5,"shape":[0],"data_offsets":[0,0])"), 0,
         "'layer.w': dtype is not a text but 5"},
        {"dtype_array", tensor(R"("dtype":["U8"],"shape":[0],"data_offsets":[0,0])"), 0,
         "'layer.w': dtype is not a text but an array"},
        {"shape_text", tensor(R"("dtype":"U8","shape":"1","data_offsets":[0,1])"), 1,
         "'layer.w': shape is not an array but '1'"},
        {"shape_object", tensor(R"("dtype":"U8","shape":{"a":1},"data_offsets":[0,1])"), 1,
         "'layer.w': shape is not an array but an object"},
        {"shape_negative", tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), 1,
         "negative number -1"},
        {"shape_fraction", tensor(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])"), 1,
         "'layer.w': shape has a value that is not an integer: 1.5"},
        {"shape_exponent", tensor(R"("dtype":"U8","shape":[1e0],"data_offsets":[0,1])"), 1,
         "not an integer"},
        {"shape_null", tensor(R"("dtype":"U8","shape":[null],"data_offsets":[0,1])"), 1,
         "not an integer: null"},
        {"shape_minus_zero", tensor(R"("dtype":"U8","shape":[-0],"data_offsets":[0,0])"), 0,
         "negative number 0"},
        {"shape_word", tensor(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])"), 1,
         "not an integer: '1'"},
        {"shape_flag", tensor(R"("dtype":"U8","shape":[true],"data_offsets":[0,1])"), 1,
         "not an integer: true"},
        {"shape_too_large",
         tensor(R"("dtype":"U8","shape":[281474976710657],"data_offsets":[0,1])"), 1,
         "281474976710657, more than 2^48"},
        {"shape_beyond_64_bits",
         tensor(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1])"), 1,
         "not an integer: 1e+20"},
        {"shape_overflow",
         tensor(R"("dtype":"U8","shape":[281474976710656,281474976710656],"data_offsets":[0,1])"),
         1, "overflows"},
        {"shape_overflow_in_bits",
         tensor(R"("dtype":"F64","shape":[281474976710656,8192],"data_offsets":[0,1])"), 1,
         "overflows"},
        {"rank", tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1,
         "more than 8 dimensions"},
        {"part_of_a_byte", tensor(R"("dtype":"F6_E2M3","shape":[3],"data_offsets":[0,2])"), 2,
         "'layer.w': F6_E2M3 of shape [3] is not a whole number of bytes"},
        {"half_byte", tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1,
         "whole number of bytes"},
        {"offsets_text", tensor(R"("dtype":"U8","shape":[1],"data_offsets":"0")"), 1,
         "data_offsets is not an array but '0'"},
        {"offsets_fraction", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1.25])"), 1,
         "data_offsets has a value that is not an integer: 1.25"},
        {"offsets_exponent", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1e0])"), 1,
         "data_offsets has a value that is not an integer: 1"},
        {"offsets_too_large",
         tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,281474976710657])"), 1,
         "data_offsets has 281474976710657, more than 2^48"},
        {"offsets_beyond_64_bits",
         tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616])"), 1,
         "data_offsets has a value that is not an integer: 1.8446744073709552e+19"},
        {"offsets_empty", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[])"), 1,
         "has 0 numbers"},
        {"offsets_one", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1,
         "has 1 numbers"},
        {"offsets_three", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"), 1,
         "more than two"},
        {"offsets_negative", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])"), 1,
         "negative number -1"},
        {"offsets_backwards", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1,
         "after their end"},
        {"offsets_outside", tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])"), 1,
         "end at 2, but the data has 1"},
        {"size_mismatch", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
         "span 4 bytes, but F32 of shape [2] takes 8"},
        {"gap_at_front", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
         "leaves a gap"},
        {"bytes_at_end", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 3,
         "2 bytes follow the last tensor"},
        {"data_without_tensors", "{}", 3, "3 bytes follow the last tensor"},
        {"gap",
         R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"layer.w":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
         3, "'layer.w': leaves a gap"},
        {"overlap",
         R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"layer.w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
         3, "'layer.w': overlaps"},
        {"empty_inside_another",
         R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"layer.w":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
         2, "'layer.w': overlaps the tensor before it (begins at 1, 2 is wanted)"},
        {"same_bytes_twice",
         R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
         2, "overlaps"},
        {"duplicate_tensor",
         R"({"layer.w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"layer.w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
         2, "'layer.w' appears twice"},
        {"duplicate_by_escape",
         R"({"layer.w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"layer.\u0077":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
         2, "'layer.w' appears twice"},
        {"many_fields",
         tensor(R"("a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,)"
                R"("n":1,"dtype":"U8","shape":[1],"data_offsets":[0,1])"),
         1, "'layer.w': has more than 16 fields"},
        {"duplicate_field", tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"),
         1, "the field 'dtype' appears twice"},
        {"duplicate_extra_field",
         tensor(R"("x":1,"x":1,"dtype":"U8","shape":[1],"data_offsets":[0,1])"), 1,
         "the field 'x' appears twice"},
        {"empty_name", R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "empty name"},
        {"nul_in_name", R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
         "holds a NUL"},
        {"long_name",
         "{\"" + std::string(4097, 'n') + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
         1, "4097 bytes"},
        {"metadata_number", R"({"__metadata__":{"a":1}})", 0,
         "__metadata__ has a value that is not a text: 'a' is 1"},
        {"metadata_null", R"({"__metadata__":{"b":null}})", 0,
         "__metadata__ has a value that is not a text: 'b' is null"},
        {"metadata_array", R"({"__metadata__":{"a":["b"]}})", 0,
         "__metadata__ has a value that is not a text: 'a' is an array"},
        {"metadata_object", R"({"__metadata__":{"a":{}}})", 0,
         "__metadata__ has a value that is not a text: 'a' is an object"},
        {"metadata_twice", R"({"__metadata__":{},"__metadata__":{}})", 0,
         "__metadata__ appears twice"},
        {"metadata_key_twice", R"({"__metadata__":{"a":"b","a":"c"}})", 0,
         "__metadata__ has a key twice: 'a'"},
        {"metadata_text", R"({"__metadata__":"a"})", 0, "is not an object"},
    };
    return cases;
}

class BrokenHeader : public testing::TestWithParam<size_t> {};

TEST_P(BrokenHeader, IsRefused) {
    const HeaderCase& broken = broken_headers()[GetParam()];
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        const std::string bytes =
            safetensors_file(broken.header, std::string(broken.data_bytes, 'd'));
        const Failure failure = read_bytes(bytes, io);
        EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE) << failure.text;
        EXPECT_NE(failure.text.find(broken.text), std::string::npos) << failure.text;
        EXPECT_NE(failure.text.find("broken.safetensors"), std::string::npos) << failure.text;
    }
}

INSTANTIATE_TEST_SUITE_P(Safetensors, BrokenHeader,
                         testing::Range<size_t>(0, broken_headers().size()), [](const auto& info) {
                             return std::string(broken_headers()[info.param].name);
                         });

TEST(Safetensors, RefusesBrokenHeaderLengths) {
    const struct {
        std::string bytes;
        const char* text;
    } cases[] = {
        {"", "0 bytes are too few"},
        {"1234567", "7 bytes are too few"},
        {raw<uint64_t>(0) + "{}", "header length is 0"},
        {raw<uint64_t>(3) + "{}", "more than the file has left (2)"},
        {raw<uint64_t>(100'000'001) + "{}", "100000001"},
        {raw<uint64_t>(~uint64_t{0}) + "{}", "18446744073709551615"},
        {raw<uint64_t>(~uint64_t{0} - 7) + "{}", "header length"},
    };
    for (const auto& c : cases) {
        const Failure failure = read_bytes(c.bytes);
        EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE) << failure.text;
        EXPECT_NE(failure.text.find(c.text), std::string::npos) << failure.text;
    }
}

TEST(Safetensors, RefusesEveryTruncation) {
    const std::string bytes = small_file();
    const Folder folder;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        for (size_t n = 0; n < bytes.size(); ++n) {
            TensorIndex index(*std::pmr::get_default_resource());
            const std::string path =
                folder.write("t.safetensors", std::string_view(bytes).substr(0, n));
            ASSERT_EQ(read_safetensors_file(path, io, index).status, MOE_ERROR_CORRUPT_FILE) << n;
        }
    }
}

// Any single byte may change: the reader must answer, not crash, and entries must stay inside the
// file.
TEST(Safetensors, SurvivesEveryChangedByte) {
    const std::string bytes = small_file();
    const Folder folder;
    for (size_t n = 0; n < bytes.size(); ++n) {
        for (const int change : {0x01, 0x20, 0x80}) {
            std::string changed = bytes;
            changed[n] = static_cast<char>(changed[n] ^ change);
            TensorIndex index(*std::pmr::get_default_resource());
            const Failure failure =
                read_safetensors_file(folder.write("c.safetensors", changed), MOE_IO_MMAP, index);
            if (failure.status != MOE_OK) continue;
            for (const TensorEntry& entry : index.entries()) {
                ASSERT_LE(entry.offset + entry.bytes, bytes.size()) << n;
            }
        }
    }
}

TEST(File, NamesThePathAndTheReason) {
    const Folder folder;
    const auto open = [&](const std::string& path) {
        return failure_of([&] { File(*std::pmr::get_default_resource(), path, MOE_IO_MMAP); });
    };
    const Failure missing = open(folder.path("none"));
    EXPECT_EQ(missing.status, MOE_ERROR_IO);
    EXPECT_NE(missing.text.find("none"), std::string::npos) << missing.text;
    EXPECT_NE(missing.text.find("No such file"), std::string::npos) << missing.text;
    const Failure directory = open(folder.path());
    EXPECT_EQ(directory.status, MOE_ERROR_IO);
    EXPECT_NE(directory.text.find("regular"), std::string::npos) << directory.text;
}

TEST(File, ReadsOnlyInside) {
    const Folder folder;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        const File file(*std::pmr::get_default_resource(), folder.write("f", "0123456789"), io);
        char out[4] = {};
        file.read(6, 4, out);
        EXPECT_EQ(std::string(out, 4), "6789");
        EXPECT_EQ(failure_of([&] { file.read(7, 4, out); }).status, MOE_ERROR_IO);
        EXPECT_EQ(failure_of([&] { file.read(~uint64_t{0}, 4, out); }).status, MOE_ERROR_IO);
    }
}

TEST(File, TellsWhenItShrank) {
    const Folder folder;
    const std::string path = folder.write("f", "0123456789");
    const File file(*std::pmr::get_default_resource(), path, MOE_IO_READ);
    std::filesystem::resize_file(path, 5);
    char out[10];
    const Failure failure = failure_of([&] { file.read(0, 10, out); });
    EXPECT_EQ(failure.status, MOE_ERROR_IO);
    EXPECT_NE(failure.text.find("shrank from 10 to 5 bytes"), std::string::npos) << failure.text;
}

}  // namespace
}  // namespace moe::test
