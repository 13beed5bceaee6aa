// Packed weights in a file: the block comes back byte for byte with all that belongs to it, and
// what is damaged or belongs to another layout is refused by name.
#include "libmoe/weights/packed_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "libmoe/base/checksum.hpp"
#include "libmoe/weights/packed_file_writer.hpp"
#include "tests/formats/sources.hpp"
#include "tests/packed/packing.hpp"
#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe {
namespace {

namespace fs = std::filesystem;
using moe_test::Plan;
using test::LayerTensors;
using test::make_plan;
using test::PackedWeights;
using test::rich_layer;
using test::three_rich_experts;

class PackedFiles : public testing::Test {
  protected:
    PackedFiles() {
        folder_ = fs::temp_directory_path() /
                  ("moe-packed-" + std::to_string(::getpid()) + "-" +
                   testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::create_directories(folder_);
    }
    ~PackedFiles() override { fs::remove_all(folder_); }

    std::string path() const { return (folder_ / "layer.moe").string(); }
    void save(PackedWeights& packed) const {
        std::vector<std::byte> staging(stage_bytes_of(packed.handle.placement.bytes),
                                       std::byte{0xA5});
        SerialTeam team;
        save_block(packed.handle, packed.block, staging.data(), team, path());
    }
    void open(PackedWeights& packed) const {
        const uint64_t bytes = packed.handle.placement.bytes;
        const PackedFile file(packed.handle.runtime->memory, path(), packed.handle.layout, bytes);
        std::vector<std::byte> staging(2 * stage_bytes_of(bytes), std::byte{0xA5});
        SerialTeam team;
        file.load(packed.handle, packed.block, staging.data(), team);
    }
    std::vector<char> bytes() const {
        std::vector<char> bytes(std::filesystem::file_size(path()));
        std::ifstream(path(), std::ios::binary)
            .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return bytes;
    }
    void write(const std::vector<char>& bytes) const {
        std::ofstream(path(), std::ios::binary)
            .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    size_t files() const {
        return static_cast<size_t>(
            std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
    }
    void expect_refused(PackedWeights& packed, moe_status status, const std::string& words) const {
        try {
            open(packed);
            ADD_FAILURE() << "opened, although " << words;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), status) << error.what();
            EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
            EXPECT_NE(std::string(error.what()).find("layer.moe"), std::string::npos)
                << error.what();
        }
    }

  private:
    fs::path folder_;
};

PackedFileHeader header_of(const std::vector<char>& bytes) {
    PackedFileHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header;
}

// The file with its header changed and a checksum that fits.
template <class Change>
std::vector<char> with_header(std::vector<char> bytes, Change change) {
    PackedFileHeader header = header_of(bytes);
    change(header);
    header.checksum = 0;
    std::memcpy(bytes.data(), &header, sizeof header);
    header.checksum =
        checksum_of(reinterpret_cast<const std::byte*>(bytes.data()), header.block_offset);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

// Weights of a layer that has every tensor, loaded.
struct Loaded {
    explicit Loaded(const char* format, moe_layer_desc desc = rich_layer(128, 96))
        : layer(desc, test::padded_and_by_table(format)), plan(make_plan(layer)), packed(*plan) {
        packed.load(layer.tensors);
    }
    LayerTensors layer;
    Plan plan;
    PackedWeights packed;
};

// What lies in no array is 0x5A in a fresh block, and zero in one that came from a file.
void expect_same_weights(PackedWeights& got, PackedWeights& wanted) {
    const uint64_t n = wanted.handle.placement.bytes;
    uint64_t n_gaps = 0, n_values = 0;
    for (uint64_t i = 0; i < n; ++i) {
        const std::byte from_file = got.block.base()[i], loaded = wanted.block.base()[i];
        if (from_file != loaded) {
            ASSERT_TRUE(from_file == std::byte{0} && loaded == std::byte{0x5A}) << "byte " << i;
            ++n_gaps;
        }
        n_values += from_file != std::byte{0};
    }
    EXPECT_GT(n_values, n / 2);
    EXPECT_LT(n_gaps, n / 4);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        EXPECT_EQ(got.handle.resident.vectors[role], wanted.handle.resident.vectors[role])
            << role_name(role);
    }
    EXPECT_EQ(got.handle.resident.hash_table, wanted.handle.resident.hash_table);
}

TEST_F(PackedFiles, GiveBackEveryByteInEveryFormat) {
    for (const FormatTraits* format : test::packed_formats()) {
        SCOPED_TRACE(format->name);
        Loaded from(format->name, three_rich_experts());
        save(from.packed);
        EXPECT_EQ(files(), 1u);  // nothing else is left
        PackedWeights to(*from.plan);
        open(to);
        ASSERT_NO_FATAL_FAILURE(expect_same_weights(to, from.packed));
        EXPECT_EQ(to.values(MOE_ROLE_DOWN, 1), from.packed.values(MOE_ROLE_DOWN, 1));
        const std::vector<char> first = bytes();
        save(to);  // over the old one
        EXPECT_EQ(bytes(), first);
    }
}

TEST_F(PackedFiles, HoldTheHashTable) {
    moe_layer_desc desc = test::plain_layer(64, 96, 4, 2);
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 6;
    const LayerTensors layer(desc, {.everywhere = "nvfp4"});
    const Plan plan = make_plan(layer);
    const test::HashTable table(6, 2, {0, 1, 2, 3, 3, 0, 1, 2, 2, 0, 3, 1});
    auto tensors = layer.tensors;
    tensors.push_back(&table.tensor);
    PackedWeights from(*plan), to(*plan);
    from.load(tensors);
    save(from);
    open(to);
    expect_same_weights(to, from);
    EXPECT_TRUE(std::equal(table.ids().begin(), table.ids().end(), to.handle.device.hash_table));
}

// Whoever writes a file can make its checksums fit.
TEST_F(PackedFiles, OrdersOfColumnsAreProvedBeforeTheyAreRead) {
    const auto format = test::int_format(MOE_PACKING_GPTQ, 4, 32, MOE_TYPE_F16,
                                         MOE_ZERO_POINT_PACKED_MINUS_ONE, true);
    moe_layer_desc desc = test::plain_layer(64, 128, 2, 1);
    desc.has_gate_bias = desc.has_up_bias = 1;  // which lie in down's order, but for the host
    LayerTensors layer(desc, {.everywhere = "bf16"});
    layer.formats[MOE_ROLE_DOWN] = &format;
    const test::Source sources[] = {test::random_source(format, 64, 128, 1),
                                    test::random_source(format, 64, 128, 2)};
    std::vector<moe_tensor> downs{sources[0].tensor(), sources[1].tensor()};
    auto tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
    for (int32_t e = 0; e < 2; ++e) {
        downs[static_cast<size_t>(e)].expert = e;
        tensors.push_back(&downs[static_cast<size_t>(e)]);
    }
    const Plan plan = make_plan(layer);
    PackedWeights from(*plan), to(*plan);
    from.load(tensors);
    save(from);
    open(to);
    expect_same_weights(to, from);

    const DevicePlacement::Region& down = from.handle.placement.matrices[MOE_ROLE_DOWN];
    const uint32_t past_the_last = 128;
    std::memcpy(from.block.base() + down.columns + down.column_bytes() + 20, &past_the_last, 4);
    save(from);
    expect_refused(to, MOE_ERROR_CORRUPT_FILE, "down: a column is number 128 of 128");
}

// The id of a layout with a table of columns was once that of the same types without the table's
// revision.
TEST_F(PackedFiles, OfColumnsInAnotherFormAreRefusedInWords) {
    const auto format = test::int_format(MOE_PACKING_GPTQ, 4, 32, MOE_TYPE_F16,
                                         MOE_ZERO_POINT_PACKED_MINUS_ONE, true);
    LayerTensors layer(test::plain_layer(64, 128, 2, 1), {.everywhere = "bf16"});
    layer.formats[MOE_ROLE_DOWN] = &format;
    const test::Source source = test::random_source(format, 64, 128);
    moe_tensor downs[2] = {source.tensor(), source.tensor()};
    auto tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
    for (int32_t e = 0; e < 2; ++e) {
        downs[e].expert = e;
        tensors.push_back(&downs[e]);
    }
    const Plan plan = make_plan(layer);
    PackedWeights packed(*plan);
    packed.load(tensors);
    save(packed);
    write(with_header(bytes(), [](PackedFileHeader& header) {
        header.layout_id[3] ^= 1;
        const std::string with = " with its order in the rows of gate and up";
        std::string words = header.description;
        ASSERT_NE(words.find(with), std::string::npos) << words;
        words.erase(words.find(with), with.size());
        std::memset(header.description, 0, sizeof header.description);
        words.copy(header.description, words.size());
    }));
    expect_refused(packed, MOE_ERROR_LAYOUT_MISMATCH,
                   "down int4 gptq 1x32 f16 zeros-1 act_order; ");
    expect_refused(packed, MOE_ERROR_LAYOUT_MISMATCH,
                   "act_order with its order in the rows of gate and up");
}

TEST_F(PackedFiles, SpanChunksAndStages) {
    // Several stages, the last chunk shorter than the others.
    Loaded from("bf16", test::plain_layer(1024, 1024, 13, 2));
    const uint64_t n = from.packed.handle.placement.bytes;
    ASSERT_GT(n, 2 * stage_bytes_of(n));
    ASSERT_NE(n % packed_chunk_bytes, 0u);
    save(from.packed);
    PackedWeights to(*from.plan);
    open(to);
    expect_same_weights(to, from.packed);
}

TEST_F(PackedFiles, CanBeUpdatedOnceOpened) {
    Loaded from("nvfp4");
    save(from.packed);
    PackedWeights to(*from.plan);
    open(to);
    const Loaded other("nvfp4", rich_layer(128, 96));
    const std::vector<moe_tensor> singles = test::singles_of(other.layer);
    for (const moe_tensor& tensor : singles) {
        if (tensor.role != MOE_ROLE_UP && tensor.role != MOE_ROLE_DOWN_BIAS) continue;
        to.update(tensor);
        from.packed.update(tensor);
    }
    expect_same_weights(to, from.packed);
}

TEST_F(PackedFiles, OfAnotherLayoutAreRefusedWithBothInWords) {
    Loaded nvfp4("nvfp4");
    save(nvfp4.packed);
    Loaded mxfp4("mxfp4");
    expect_refused(mxfp4.packed, MOE_ERROR_LAYOUT_MISMATCH,
                   "down nvfp4; the plan wants hidden 128");
    expect_refused(mxfp4.packed, MOE_ERROR_LAYOUT_MISMATCH, "down mxfp4");
    Loaded wider("nvfp4", rich_layer(256, 96));
    expect_refused(wider.packed, MOE_ERROR_LAYOUT_MISMATCH, "holds hidden 128");
}

// Whoever writes such a file has other types, and its checksums fit.
TEST_F(PackedFiles, OfAnotherRevisionOfATypeAreRefusedByItsName) {
    Loaded from("nvfp4");
    save(from.packed);
    const std::vector<char> good = bytes();
    EXPECT_EQ(header_of(good).types[0].name, std::string("nvfp4"));
    EXPECT_EQ(header_of(good).types[0].revision, 1u);
    EXPECT_EQ(header_of(good).types[1].name, std::string());
    write(with_header(good, [](PackedFileHeader& header) { header.types[0].revision = 7; }));
    expect_refused(from.packed, MOE_ERROR_LAYOUT_MISMATCH,
                   "packed type nvfp4 of revision 7, this library has revision 1");
    write(with_header(good, [](PackedFileHeader& header) {
        std::memcpy(header.types[1].name, "a type of ma\xf1\x01na", 16);
    }));
    expect_refused(from.packed, MOE_ERROR_LAYOUT_MISMATCH,
                   "this library has no packed type 'a type of ma");
}

// The matrices of this layer have 96 columns, and had blocks of 32 behind those of 64.
TEST_F(PackedFiles, OfAnEarlierLayoutOfTheSameMatricesAreRefusedInWords) {
    Loaded from("nvfp4");
    save(from.packed);
    write(with_header(bytes(), [](PackedFileHeader& header) { header.layout_id[0] ^= 1; }));
    expect_refused(from.packed, MOE_ERROR_LAYOUT_MISMATCH,
                   "in another packing (an earlier version of this library");
}

TEST_F(PackedFiles, OfVersion3HaveTheFirstRevisions) {
    Loaded from("nvfp4");
    save(from.packed);
    write(with_header(bytes(), [](PackedFileHeader& header) {
        header.version = 3;
        std::memset(header.types, 'x', sizeof header.types);  // the words went on there
    }));
    PackedWeights to(*from.plan);
    open(to);
    expect_same_weights(to, from.packed);
}

TEST_F(PackedFiles, WithAnyByteOfTheHeadChangedAreRefused) {
    Loaded from("kbit3");
    save(from.packed);
    const std::vector<char> good = bytes();
    for (size_t i = 0; i < 4096; i += i < 80 || (i >= 500 && i < 540) ? 1 : 97) {
        SCOPED_TRACE(i);
        auto bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 0x10);
        write(bad);
        const bool is_version = i >= 8 && i < 16;
        expect_refused(from.packed, is_version ? MOE_ERROR_LAYOUT_MISMATCH : MOE_ERROR_CORRUPT_FILE,
                       "");
    }
}

TEST_F(PackedFiles, WithAnyChunkChangedAreRefusedByItsNumber) {
    Loaded from("bf16", test::plain_layer(1024, 1024, 3, 2));
    save(from.packed);
    const std::vector<char> good = bytes();
    const uint64_t n = from.packed.handle.placement.bytes;
    for (const uint64_t chunk : {uint64_t{0}, uint64_t{3}, n / packed_chunk_bytes}) {
        auto bad = good;
        bad[4096 + std::min(chunk * packed_chunk_bytes + 4711, n - 1)] ^= 1;
        write(bad);
        PackedWeights to(*from.plan);
        expect_refused(to, MOE_ERROR_CORRUPT_FILE,
                       "checksum of chunk " + std::to_string(chunk) + " ");
    }
}

TEST_F(PackedFiles, OfAnyOtherLengthAreRefused) {
    Loaded from("q8_0");
    save(from.packed);
    const std::vector<char> good = bytes();
    for (const size_t n : {size_t{0}, size_t{7}, size_t{511}, size_t{512}, size_t{4095},
                           size_t{4096}, good.size() / 2, good.size() - 1}) {
        write({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
        PackedWeights to(*from.plan);
        expect_refused(to, MOE_ERROR_CORRUPT_FILE, "");
    }
    auto longer = good;
    longer.push_back(0);
    write(longer);
    expect_refused(from.packed, MOE_ERROR_CORRUPT_FILE, "the beginning of the block");
}

// A block larger than the file must not lead to memory for its checksums.
TEST_F(PackedFiles, ThatClaimTooMuchAreRefusedBeforeMemoryIsTaken) {
    Loaded from("q8_0");
    save(from.packed);
    for (const uint64_t claim : {~uint64_t{0}, uint64_t{1} << 62, uint64_t{1} << 40}) {
        auto bad = bytes();
        std::memcpy(bad.data() + 32, &claim, 8);
        write(bad);
        expect_refused(from.packed, MOE_ERROR_CORRUPT_FILE, "the size of the block");
    }
}

TEST_F(PackedFiles, ThatCannotBeWrittenNameThePath) {
    Loaded from("q8_0");
    std::vector<std::byte> staging(stage_bytes_of(from.packed.handle.placement.bytes));
    SerialTeam team;
    try {
        save_block(from.packed.handle, from.packed.block, staging.data(), team,
                   "/nowhere/at/all/layer.moe");
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_IO);
        EXPECT_NE(std::string(error.what()).find("/nowhere/at/all/layer.moe"), std::string::npos);
    }
    fs::create_directories(path());  // a folder has the name
    EXPECT_THROW(save(from.packed), Error);
    EXPECT_EQ(files(), 1u);
}

// The formula of docs/layout.md, once more.
uint64_t checksum_by_words(const std::vector<std::byte>& bytes) {
    const auto step = [](uint64_t state, uint64_t word) {
        const uint64_t product = (state ^ word) * 0x9E3779B97F4A7C15u;
        return product << 29 | product >> 35;
    };
    uint64_t lanes[4] = {1, 2, 3, 4};
    for (size_t word = 0; 8 * word < bytes.size(); ++word) {
        uint64_t value = 0;
        for (size_t i = 0; i < 8 && 8 * word + i < bytes.size(); ++i)
            value |= static_cast<uint64_t>(bytes[8 * word + i]) << 8 * i;
        lanes[word % 4] = step(lanes[word % 4], value);
    }
    uint64_t sum = bytes.size();
    for (const uint64_t lane : lanes) sum = step(sum, lane);
    return sum ^ sum >> 32;
}

TEST(Checksum, IsThatOfTheDocumentation) {
    std::vector<std::byte> bytes;
    for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(checksum_of(bytes.data(), bytes.size()), checksum_by_words(bytes)) << i;
        bytes.push_back(static_cast<std::byte>(37 * i + 11));
    }
}

TEST(Checksum, SeesEveryBitAndEveryZero) {
    std::vector<std::byte> bytes(100, std::byte{0});
    const uint64_t whole = checksum_of(bytes.data(), 100);
    EXPECT_NE(checksum_of(bytes.data(), 99), whole);
    for (size_t bit = 0; bit < 800; ++bit) {
        bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        EXPECT_NE(checksum_of(bytes.data(), 100), whole) << bit;
        bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
}

}  // namespace
}  // namespace moe
