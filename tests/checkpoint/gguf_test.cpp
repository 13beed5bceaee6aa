// The GGUF reader: a valid file, every rule broken once (the known failures of other readers among
// them), every truncation.
#include "libmoe/checkpoint/gguf.hpp"

#include <functional>

#include "tests/checkpoint/files.hpp"

namespace moe::test {
namespace {

struct Result {
    Failure failure;
    Settings settings{*std::pmr::get_default_resource(), "test"};
    TensorIndex index{*std::pmr::get_default_resource()};
};

void read_gguf_file(const std::string& path, moe_io io, Result& result) {
    result.failure = failure_of([&] {
        std::vector<File> files;
        files.emplace_back(*std::pmr::get_default_resource(), path, io);
        result.settings.set_file(files[0].name());
        read_gguf(*std::pmr::get_default_resource(), files[0], 0, result.settings, result.index);
        result.index.finish(files);
    });
}

constexpr uint64_t q8_0_row = 34;

GgufWriter small_writer() {
    GgufWriter writer;
    writer.text("general.architecture", "llama");
    writer.integer("llama.expert_count", 4);
    writer.pair("i8", 1, raw<int8_t>(-3));
    writer.pair("u64", 10, raw<uint64_t>(1));
    writer.real("scale", 2.5f);
    writer.flag("norm", true);
    writer.pair("words", 9,
                raw<uint32_t>(8) + raw<uint64_t>(2) + gguf_string("a") + gguf_string("bc"));
    writer.pair("numbers", 9, raw<uint32_t>(4) + raw<uint64_t>(3) + noise(12, 9));
    writer.tensor("layer.a", {32, 3, 2}, 8, noise(q8_0_row * 6, 1));
    writer.tensor("layer.b", {5}, 0, noise(20, 2));
    return writer;
}

TEST(Gguf, ReadsAValidFile) {
    for (const uint32_t version : {2u, 3u}) {
        for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
            const Folder folder;
            GgufWriter writer = small_writer();
            writer.version = version;
            const std::string bytes = writer.file();
            Result result;
            read_gguf_file(folder.write("x.gguf", bytes), io, result);
            ASSERT_EQ(result.failure.status, MOE_OK) << result.failure.text;
            EXPECT_EQ(result.settings.find_text("general.architecture"), "llama");
            EXPECT_EQ(result.settings.find_integer({"llama.expert_count"}, 0, 9), 4);
            EXPECT_EQ(result.settings.find_integer({"i8"}, -9, 9), -3);
            EXPECT_EQ(result.settings.find_number("scale"), 2.5f);
            EXPECT_EQ(result.settings.find_flag("norm"), true);
            const TensorEntry* a = result.index.find("layer.a");
            ASSERT_TRUE(a);
            EXPECT_EQ(shape_text(a->dims()), "[2, 3, 32]");
            EXPECT_EQ(bytes.substr(a->offset, a->bytes), noise(q8_0_row * 6, 1));
            const TensorEntry* b = result.index.find("layer.b");
            ASSERT_TRUE(b);
            EXPECT_EQ(bytes.substr(b->offset, b->bytes), noise(20, 2));
        }
    }
}

TEST(Gguf, FollowsTheAlignment) {
    for (const uint32_t alignment : {1u, 8u, 4096u}) {
        const Folder folder;
        GgufWriter writer;
        writer.alignment = alignment;
        writer.integer("general.alignment", alignment);
        writer.tensor("a", {3}, 24, "abc");
        writer.tensor("b", {2}, 24, "de");
        const std::string bytes = writer.file();
        Result result;
        read_gguf_file(folder.write("x.gguf", bytes), MOE_IO_READ, result);
        ASSERT_EQ(result.failure.status, MOE_OK) << result.failure.text;
        EXPECT_EQ(bytes.substr(result.index.find("b")->offset, 2), "de");
    }
}

TEST(Gguf, ReadsAFileWithoutTensors) {
    const Folder folder;
    GgufWriter writer;
    writer.integer("x", 1);
    Result result;
    read_gguf_file(folder.write("x.gguf", writer.file()), MOE_IO_MMAP, result);
    EXPECT_EQ(result.failure.status, MOE_OK) << result.failure.text;
}

struct FileCase {
    const char* name;
    std::function<std::string()> bytes;
    moe_status status;
    const char* text;
};

std::string with_pair(std::string_view key, uint32_t type, std::string_view value) {
    GgufWriter writer;
    writer.pair(key, type, value);
    writer.tensor("layer.a", {4}, 24, "abcd");
    return writer.file();
}

std::string with_info(const std::string& info, size_t data_bytes = 4096) {
    GgufWriter writer;
    writer.infos.push_back(info);
    writer.data = noise(data_bytes, 5);
    return writer.file();
}

std::string with_shape(const Shape& ne, uint32_t type = 24) {
    return with_info(GgufWriter::info("layer.a", ne, type, 0));
}

std::string with_counts(uint64_t n_tensors, uint64_t n_pairs) {
    return "GGUF" + raw<uint32_t>(3) + raw(n_tensors) + raw(n_pairs) + noise(64, 3);
}

std::string with_version(uint32_t version) {
    GgufWriter writer = small_writer();
    writer.version = version;
    return writer.file();
}

std::string with_two(uint64_t second_offset) {
    GgufWriter writer;
    writer.infos.push_back(GgufWriter::info("layer.a", {40}, 24, 0));
    writer.infos.push_back(GgufWriter::info("layer.b", {8}, 24, second_offset));
    writer.data = noise(4096, 5);
    return writer.file();
}

// A tensor of bytes, one of a type that ggml does not have, and one of bytes.
std::string with_unknown(uint64_t second_offset, uint64_t third_offset, uint32_t type = 156) {
    GgufWriter writer;
    writer.infos.push_back(GgufWriter::info("layer.a", {40}, 24, 0));
    writer.infos.push_back(GgufWriter::info("layer.b", {33}, type, second_offset));
    writer.infos.push_back(GgufWriter::info("layer.c", {8}, 24, third_offset));
    writer.data = noise(4096, 5);
    return writer.file();
}

// Two tensors of bytes, the second where the first, padded, ends at 2^63.
std::string with_sizes(int64_t first, int64_t second) {
    GgufWriter writer;
    writer.infos.push_back(GgufWriter::info("layer.a", {first}, 24, 0));
    writer.infos.push_back(GgufWriter::info("layer.b", {second}, 24, uint64_t{1} << 63));
    writer.data = noise(4096, 5);
    return writer.file();
}

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

const std::vector<FileCase>& broken_files() {
    static const std::vector<FileCase> cases = {
        {"empty", [] { return std::string(); }, corrupt,
         "the magic at byte 0 needs 4 bytes, 0 are left"},
        {"magic", [] { return "GGML" + small_writer().file().substr(4); }, corrupt,
         "the magic is not GGUF but 'GGML'"},
        {"version_0", [] { return with_version(0); }, corrupt, "version 0"},
        {"version_1", [] { return with_version(1); }, MOE_ERROR_UNSUPPORTED, "version 1"},
        {"version_4", [] { return with_version(4); }, MOE_ERROR_UNSUPPORTED, "version 4"},
        {"big_endian", [] { return with_version(3u << 24); }, MOE_ERROR_UNSUPPORTED, "big-endian"},
        {"many_pairs", [] { return with_counts(0, uint64_t{1} << 60); }, corrupt, "the key count"},
        {"many_tensors", [] { return with_counts(uint64_t{1} << 60, 0); }, corrupt,
         "the tensor count"},
        {"most_tensors", [] { return with_counts(~uint64_t{0}, 0); }, corrupt,
         "18446744073709551615 cannot fit"},
        {"empty_key", [] { return with_pair("", 4, raw(1u)); }, corrupt, "a key is empty"},
        {"long_key", [] { return with_pair(std::string(65536, 'k'), 4, raw(1u)); }, corrupt,
         "65536 bytes is longer"},
        {"key_nul", [] { return with_pair(std::string_view("a\0b", 3), 4, raw(1u)); }, corrupt,
         "holds a NUL"},
        {"key_beyond_file",
         [] {
             return "GGUF" + raw(3u) + raw<uint64_t>(0) + raw<uint64_t>(1) + raw<uint64_t>(60000) +
                    noise(40, 1);
         },
         corrupt, "a key at byte"},
        {"duplicate_key",
         [] {
             GgufWriter w;
             w.integer("twice", 1);
             w.integer("twice", 2);
             return w.file();
         },
         corrupt, "'twice' appears twice"},
        {"value_type", [] { return with_pair("key", 13, raw(1u)); }, corrupt,
         "'key' has the unknown value type 13"},
        {"value_type_negative", [] { return with_pair("key", ~0u, raw(1u)); }, corrupt,
         "unknown value type 4294967295"},
        {"bool", [] { return with_pair("key", 7, raw<uint8_t>(2)); }, corrupt,
         "'key' is a bool that is neither 0 nor 1 but 2"},
        {"bool_in_array",
         [] { return with_pair("key", 9, raw(7u) + raw<uint64_t>(2) + "\x01\x02"); }, corrupt,
         "'key' is a bool"},
        {"string_beyond_file", [] { return with_pair("key", 8, raw<uint64_t>(1 << 29) + "abc"); },
         corrupt, "a string"},
        {"value_cut",
         [] {
             GgufWriter w;
             w.pair("key", 12, raw(1.0));
             return w.file().substr(0, 24 + 15 + 3);
         },
         corrupt, "'key': a value at byte 39 needs 8 bytes, 3 are left"},
        {"string_in_array_beyond_file",
         [] { return with_pair("key", 9, raw(8u) + raw<uint64_t>(1) + raw<uint64_t>(1 << 20)); },
         corrupt, "'key': a string at byte"},
        {"string_in_array_of_2_64",
         [] { return with_pair("key", 9, raw(8u) + raw<uint64_t>(1) + raw(~uint64_t{0})); },
         corrupt, "a string of 18446744073709551615"},
        {"string_of_2_64", [] { return with_pair("key", 8, raw(~uint64_t{0}) + "abc"); }, corrupt,
         "a string of 18446744073709551615"},
        {"array_of_arrays", [] { return with_pair("key", 9, raw(9u) + raw<uint64_t>(0)); }, corrupt,
         "'key' is an array of arrays"},
        {"array_type", [] { return with_pair("key", 9, raw(77u) + raw<uint64_t>(0)); }, corrupt,
         "'key' is an array of an unknown type: 77"},
        {"array_length", [] { return with_pair("key", 9, raw(0u) + raw(uint64_t{1} << 31)); },
         corrupt, "'key' is an array of more than 2^30 elements: 2147483648"},
        {"array_beyond_file", [] { return with_pair("key", 9, raw(12u) + raw<uint64_t>(1 << 20)); },
         corrupt, "an array"},
        {"array_of_strings_beyond_file",
         [] { return with_pair("key", 9, raw(8u) + raw<uint64_t>(1 << 20)); }, corrupt, "an array"},
        {"alignment_zero", [] { return with_pair("general.alignment", 4, raw(0u)); }, corrupt,
         "'general.alignment' is 0"},
        {"alignment_three", [] { return with_pair("general.alignment", 4, raw(3u)); }, corrupt,
         "'general.alignment' is 3"},
        {"alignment_type", [] { return with_pair("general.alignment", 10, raw<uint64_t>(32)); },
         corrupt, "'general.alignment' is not of type u32 but of type 10"},
        {"alignment_array",
         [] { return with_pair("general.alignment", 9, raw(4u) + raw<uint64_t>(1) + raw(32u)); },
         corrupt, "'general.alignment' is not of type u32 but of type 9"},
        {"alignment_twice",
         [] {
             GgufWriter w;
             w.integer("general.alignment", 32);
             w.integer("general.alignment", 64);
             return w.file();
         },
         corrupt, "'general.alignment' appears twice"},
        {"alignment_huge", [] { return with_pair("general.alignment", 4, raw(1u << 31)); }, corrupt,
         "outside the data of 0"},
        {"name_64", [] { return with_info(GgufWriter::info(std::string(64, 'n'), {4}, 24, 0)); },
         corrupt, "64 bytes is longer than 63"},
        {"name_of_2_64", [] { return with_info(raw(~uint64_t{0}) + std::string(64, 'n')); },
         corrupt, "a tensor name of 18446744073709551615 bytes is longer than 63"},
        {"offset_cut",
         [] { return with_info(GgufWriter::info("layer.a", {4}, 24, 0), 0).substr(0, 24 + 34); },
         corrupt, "'layer.a': a tensor's offset at byte 55 needs 8 bytes, 3 are left"},
        {"name_empty",
         [] {
             return with_info(GgufWriter::info("", {4, 1}, 24, 0));
         },
         corrupt, "empty name"},
        {"name_nul",
         [] { return with_info(GgufWriter::info(std::string_view("a\0b", 3), {4}, 24, 0)); },
         corrupt, "holds a NUL"},
        {"duplicate_tensor",
         [] {
             GgufWriter w;
             w.tensor("layer.a", {4}, 24, "abcd");
             w.tensor("layer.a", {4}, 24, "abcd");
             return w.file();
         },
         corrupt, "'layer.a' appears twice"},
        {"rank_0",
         [] { return with_info(GgufWriter::info("layer.a", {}, 24, 0) + std::string(32, '\0')); },
         corrupt, "'layer.a': has 0 dimensions"},
        {"rank_5",
         [] {
             return with_shape({1, 1, 1, 1, 1});
         },
         corrupt, "'layer.a': has 5 dimensions"},
        {"rank_huge",
         [] { return with_info(gguf_string("layer.a") + raw(~0u) + std::string(64, '\1')); },
         corrupt, "4294967295 dimensions"},
        {"zero_dimension",
         [] {
             return with_shape({4, 0});
         },
         corrupt, "'layer.a': dimension 1 is 0"},
        {"negative_dimension",
         [] {
             return with_shape({4, -1});
         },
         corrupt, "'layer.a': dimension 1 is 18446744073709551615"},
        {"product_overflows",
         [] {
             return with_shape({int64_t{1} << 32, int64_t{1} << 32});
         },
         corrupt, "'layer.a': the size of shape"},
        {"product_wraps_to_small",
         [] {
             return with_shape({huge, huge, huge, 4});
         },
         corrupt, "overflows"},
        {"bytes_overflow", [] { return with_shape({int64_t{1} << 62}, 28); }, corrupt, "overflows"},
        {"beyond_file", [] { return with_shape({1 << 20}); }, corrupt,
         "'layer.a': 1048576 bytes at 0 are outside"},
        {"row_not_whole_blocks", [] { return with_shape({33}, 8); }, corrupt,
         "'layer.a': rows of 33 elements"},
        {"unknown_type_overlapped", [] { return with_unknown(64, 32); }, corrupt,
         "'layer.c': the offset 32 overlaps"},
        {"unknown_type_beyond_file", [] { return with_unknown(64, 8192); }, corrupt,
         "are outside the data"},
        {"unknown_type_leaves_a_gap", [] { return with_unknown(96, 128); }, corrupt,
         "'layer.b': the offset 96 leaves a gap"},
        {"offset_unaligned", [] { return with_two(65); }, corrupt,
         "'layer.b': the offset 65 is not a multiple"},
        {"offset_gap", [] { return with_two(96); }, corrupt,
         "'layer.b': the offset 96 leaves a gap"},
        {"offset_overlap", [] { return with_two(32); }, corrupt,
         "'layer.b': the offset 32 overlaps"},
        {"offset_huge", [] { return with_two(~uint64_t{0} - 31); }, corrupt,
         "'layer.b': the offset"},
        {"padded_sum_overflows", [] { return with_sizes(huge, huge); }, corrupt,
         "'layer.b': the offset 9223372036854775808 and 9223372036854775807 bytes overflow"},
        {"align_up_wraps", [] { return with_sizes(huge, huge - 15); }, corrupt,
         "'layer.b': the offset 9223372036854775808 and 9223372036854775792 bytes overflow"},
        {"sum_at_the_edge", [] { return with_sizes(huge, huge - 31); }, corrupt,
         "'layer.a': 9223372036854775807 bytes at 0 are outside"},
    };
    return cases;
}

class BrokenGguf : public testing::TestWithParam<size_t> {};

TEST_P(BrokenGguf, IsRefused) {
    const FileCase& broken = broken_files()[GetParam()];
    const Folder folder;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        Result result;
        read_gguf_file(folder.write("broken.gguf", broken.bytes()), io, result);
        const Failure& failure = result.failure;
        EXPECT_EQ(failure.status, broken.status) << failure.text;
        EXPECT_NE(failure.text.find(broken.text), std::string::npos) << failure.text;
        EXPECT_NE(failure.text.find("broken.gguf"), std::string::npos) << failure.text;
    }
}

INSTANTIATE_TEST_SUITE_P(Gguf, BrokenGguf, testing::Range<size_t>(0, broken_files().size()),
                         [](const auto& info) {
                             return std::string(broken_files()[info.param].name);
                         });

// Files of forks have them. Their size is that up to the next tensor, or to the end of the file.
TEST(Gguf, TensorsOfUnknownTypesAreListedAndDisturbNoOthers) {
    const Folder folder;
    for (const uint32_t type : {4u, 156u, 997u, ~0u}) {
        Result result;
        read_gguf_file(folder.write("u.gguf", with_unknown(64, 192, type)), MOE_IO_MMAP, result);
        ASSERT_EQ(result.failure.status, MOE_OK) << result.failure.text;
        ASSERT_EQ(result.index.entries().size(), 3u);
        const TensorEntry& unknown = *result.index.find("layer.b");
        EXPECT_EQ(unknown.bytes, 128u);
        EXPECT_EQ(unknown.type_name(), "GGML_TYPE_" + std::to_string(type));
        const TensorEntry& next = *result.index.find("layer.c");
        EXPECT_EQ(next.offset, unknown.offset + 128);
        EXPECT_EQ(next.bytes, 8u);

        GgufWriter writer;
        writer.infos.push_back(GgufWriter::info("layer.a", {40}, 24, 0));
        writer.infos.push_back(GgufWriter::info("layer.b", {33}, type, 64));
        writer.data = noise(200, 5);
        Result last;
        read_gguf_file(folder.write("l.gguf", writer.file()), MOE_IO_MMAP, last);
        ASSERT_EQ(last.failure.status, MOE_OK) << last.failure.text;
        EXPECT_EQ(last.index.find("layer.b")->bytes, 200u - 64);
    }
}

TEST(Gguf, RefusesEveryTruncation) {
    const std::string bytes = small_writer().file();
    const Folder folder;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        for (size_t n = 0; n < bytes.size(); ++n) {
            Result result;
            read_gguf_file(folder.write("t.gguf", std::string_view(bytes).substr(0, n)), io,
                           result);
            ASSERT_EQ(result.failure.status, MOE_ERROR_CORRUPT_FILE) << n << result.failure.text;
        }
    }
}

TEST(Gguf, SurvivesEveryChangedByte) {
    const std::string bytes = small_writer().file();
    const Folder folder;
    for (size_t n = 0; n < bytes.size(); ++n) {
        for (const int change : {0x01, 0x40, 0xff}) {
            std::string changed = bytes;
            changed[n] = static_cast<char>(changed[n] ^ change);
            Result result;
            read_gguf_file(folder.write("c.gguf", changed), MOE_IO_MMAP, result);
            if (result.failure.status != MOE_OK) continue;
            for (const TensorEntry& entry : result.index.entries()) {
                ASSERT_LE(entry.offset + entry.bytes, bytes.size()) << n;
            }
        }
    }
}

}  // namespace
}  // namespace moe::test
