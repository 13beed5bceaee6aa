// Packed weights of the CPU: what a load makes, saved and opened, is the same, and a file whose
// bytes would lead a kernel astray is refused.
#include "libmoe/weights/host_block.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "libmoe/base/checksum.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/formats/entries.hpp"
#include "libmoe/weights/packed_file_header.hpp"
#include "tests/formats/sources.hpp"
#include "tests/weights/layers.hpp"

namespace moe {
namespace {

namespace fs = std::filesystem;
using moe_test::Plan;
using moe_test::Weights;
using test::LayerTensors;
using test::rich_layer;
using test::three_rich_experts;

class HostBlocks : public testing::Test {
  protected:
    HostBlocks() {
        folder_ = fs::temp_directory_path() /
                  ("moe-host-" + std::to_string(::getpid()) + "-" +
                   testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::create_directories(folder_);
    }
    ~HostBlocks() override { fs::remove_all(folder_); }

    std::string path() const { return (folder_ / "layer.moe").string(); }
    void save(const Weights& weights) const {
        EXPECT_MOE_OK(moe_weights_save(weights.get(), path().c_str()));
    }
    Weights open(const Plan& plan) const {
        moe_weights* weights = nullptr;
        EXPECT_MOE_OK(moe_weights_open(plan.get(), path().c_str(), &weights));
        return Weights(weights);
    }
    void expect_refused(const Plan& plan, moe_status status, const std::string& words) const {
        moe_weights* weights = nullptr;
        EXPECT_MOE_ERROR(moe_weights_open(plan.get(), path().c_str(), &weights), status, words);
        EXPECT_EQ(weights, nullptr);
    }
    std::vector<char> bytes() const {
        std::vector<char> bytes(fs::file_size(path()));
        std::ifstream(path(), std::ios::binary)
            .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return bytes;
    }
    void write(const std::vector<char>& bytes) const {
        std::ofstream(path(), std::ios::binary)
            .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    // Writes a file with bytes of its block changed, and checksums that fit.
    void write_with(std::vector<char> bytes, uint64_t offset, const void* value,
                    size_t size) const {
        PackedFileHeader header;
        std::memcpy(&header, bytes.data(), sizeof header);
        char* block = bytes.data() + header.block_offset;
        std::memcpy(block + offset, value, size);
        for (uint64_t chunk = 0; chunk < chunk_count(header.block_bytes); ++chunk) {
            const uint64_t begin = chunk * packed_chunk_bytes;
            const uint64_t sum =
                checksum_of(reinterpret_cast<const std::byte*>(block + begin),
                            std::min(packed_chunk_bytes, header.block_bytes - begin));
            std::memcpy(bytes.data() + sizeof header + 8 * chunk, &sum, sizeof sum);
        }
        header.checksum = 0;
        std::memcpy(bytes.data(), &header, sizeof header);
        header.checksum =
            checksum_of(reinterpret_cast<const std::byte*>(bytes.data()), header.block_offset);
        std::memcpy(bytes.data(), &header, sizeof header);
        write(bytes);
    }

  private:
    fs::path folder_;
};

Plan packed_plan(const LayerTensors& layer, const moe_slice* slice = nullptr) {
    return test::make_plan(layer, {.slice = slice, .residency = MOE_RESIDENCY_PACKED});
}

moe_weights_desc desc_of(const std::vector<const moe_tensor*>& tensors) {
    auto desc = moe_test::sized<moe_weights_desc>();
    desc.tensors = tensors.data();
    desc.n_tensors = static_cast<uint32_t>(tensors.size());
    return desc;
}
Weights load(const Plan& plan, const std::vector<const moe_tensor*>& tensors) {
    const auto desc = desc_of(tensors);
    moe_weights* weights = nullptr;
    EXPECT_MOE_OK(moe_weights_load(plan.get(), &desc, &weights));
    return Weights(weights);
}

const FormatTraits* traits_named(std::string_view name) {
    if (name == "nvfp4_pre_quant") return &nvfp4_pre_quant_formats[0];
    if (name == "nvfp4_divide") return &nvfp4_divide_format;
    for (const FormatTraits& traits : kbit_given_formats)
        if (traits.name == name) return &traits;
    return nullptr;
}

std::vector<float> decoded(const Matrix& matrix) {
    std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.columns));
    for (int64_t row = 0; row < matrix.rows; ++row)
        cpu::decode_row(matrix, row, values.data() + row * matrix.columns);
    return values;
}
// Random scales may be NaN.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
void expect_same(const moe_weights& got, const moe_weights& wanted) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        SCOPED_TRACE(role_name(role));
        EXPECT_EQ(got.resident.vectors[role], wanted.resident.vectors[role]);
        const auto &of_file = got.resident.matrices[role], &loaded = wanted.resident.matrices[role];
        ASSERT_EQ(of_file.size(), loaded.size());
        for (size_t e = 0; e < loaded.size(); ++e) {
            EXPECT_EQ(of_file[e].interleaving, loaded[e].interleaving);
            EXPECT_EQ(of_file[e].global_scale, loaded[e].global_scale);
            ASSERT_TRUE(same_bits(decoded(of_file[e]), decoded(loaded[e]))) << "expert " << e;
        }
    }
    EXPECT_EQ(got.resident.hash_table, wanted.resident.hash_table);
}

TEST_F(HostBlocks, GiveBackWhatWasLoadedInEveryFormat) {
    int n_interleaved = 0;
    for (const FormatTraits& traits : all_formats()) {
        SCOPED_TRACE(traits.name);
        const LayerTensors layer(three_rich_experts(), test::padded_and_by_table(traits.name));
        const Plan plan = packed_plan(layer), source = test::make_plan(layer);
        const Weights loaded = load(plan, layer.tensors);
        const Weights as_given = load(source, layer.tensors);
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            ASSERT_EQ(decoded(loaded->resident.matrix(role, 2)),
                      decoded(as_given->resident.matrix(role, 2)));
        n_interleaved += loaded->resident.matrix(MOE_ROLE_DOWN, 2).interleaving != nullptr;
        save(loaded);
        const Weights opened = open(plan);
        ASSERT_NO_FATAL_FAILURE(expect_same(*opened, *loaded));
        const std::vector<char> first = bytes();
        save(opened);  // over the file that is mapped
        EXPECT_EQ(bytes(), first);
    }
    EXPECT_GE(n_interleaved, 12);
}

TEST_F(HostBlocks, KeepFormatsThatAreCopiedWhole) {
    for (const moe_format& format : test::whole_formats()) {
        SCOPED_TRACE(format_name(format).text);
        LayerTensors layer(test::plain_layer(64, 192, 2, 1), {.everywhere = "bf16"});
        layer.formats[MOE_ROLE_DOWN] = &format;
        const test::Source source = test::random_source(format, 64, 192);
        moe_tensor downs[2] = {source.tensor(), source.tensor()};
        auto tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
        for (int32_t e = 0; e < 2; ++e) {
            downs[e].expert = e;
            tensors.push_back(&downs[e]);
        }
        const Plan plan = packed_plan(layer);
        const Weights loaded = load(plan, tensors);
        save(loaded);
        const Weights opened = open(plan);
        ASSERT_NO_FATAL_FAILURE(expect_same(*opened, *loaded));
        if (!format.act_order) continue;
        // Whoever writes a file can make its checksums fit.
        const Matrix& down = loaded->resident.matrix(MOE_ROLE_DOWN, 1);
        const auto at = static_cast<uint64_t>(
            reinterpret_cast<const std::byte*>(down.permutation + 5) - loaded->copies);
        const int32_t far = 1 << 20;
        write_with(bytes(), at, &far, sizeof far);
        expect_refused(plan, MOE_ERROR_CORRUPT_FILE,
                       "layer.moe: down: a column is of a group that there is not");
    }
}

TEST_F(HostBlocks, OfSlicesHoldThePartsThatThePlanNeeds) {
    for (const char* format : {"q4_k", "nvfp4", "fp8_128x128", "mxfp4", "kbit4"}) {
        SCOPED_TRACE(format);
        const LayerTensors layer(rich_layer(256, 512), {.everywhere = format});
        auto slice = moe_test::sized<moe_slice>();
        slice.has_expert_range = 1;
        slice.expert_begin = 1;
        slice.expert_count = 3;
        slice.has_intermediate_range = 1;
        slice.intermediate_begin = 256;
        slice.intermediate_count = 256;
        const Plan plan = packed_plan(layer, &slice);
        const Weights loaded = load(plan, layer.tensors);
        const Weights as_given = load(test::make_plan(layer, {.slice = &slice}), layer.tensors);
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            ASSERT_EQ(decoded(loaded->resident.matrix(role, 2)),
                      decoded(as_given->resident.matrix(role, 2)));
        save(loaded);
        ASSERT_NO_FATAL_FAILURE(expect_same(*open(plan), *loaded));
        EXPECT_EQ(loaded->resident.matrices[MOE_ROLE_GATE].size(), 3u);
        expect_refused(packed_plan(layer), MOE_ERROR_LAYOUT_MISMATCH, "the plan wants for the CPU");
    }
}

// The rows of up begin inside a group of scales.
TEST_F(HostBlocks, KeepTheHalvesOfAFusedMatrix) {
    for (const char* format : {"fp8_128x128", "q8_0", "nvfp4"}) {
        SCOPED_TRACE(format);
        const LayerTensors layer(test::plain_layer(256, 192, 4, 2),
                                 {.everywhere = format, .fused = MOE_GATE_UP_GATE_FIRST});
        const Plan plan = packed_plan(layer);
        const Weights loaded = load(plan, layer.tensors);
        const Weights as_given = load(test::make_plan(layer), layer.tensors);
        ASSERT_EQ(decoded(loaded->resident.matrix(MOE_ROLE_UP, 1)),
                  decoded(as_given->resident.matrix(MOE_ROLE_UP, 1)));
        save(loaded);
        ASSERT_NO_FATAL_FAILURE(expect_same(*open(plan), *loaded));
    }
}

// A codebook that was given, and factors of columns.
TEST_F(HostBlocks, KeepWhatIsBesideTheCodes) {
    for (const char* format : {"kbit3_given", "nvfp4_pre_quant", "nvfp4_divide"}) {
        SCOPED_TRACE(format);
        const FormatTraits* traits = traits_named(format);
        ASSERT_TRUE(traits);
        constexpr int64_t rows = 64, columns = 256;
        moe_format own = traits->format;
        own.struct_size = sizeof own;
        // Factors of columns do not change the bytes.
        const test::TensorStack stack(own.pre_quant_scale ? nvfp4_format : *traits, 2, rows,
                                      columns);
        const std::vector<float> factors = test::gaussian(columns, 5);
        LayerTensors layer(test::plain_layer(rows, columns, 2, 1), {.everywhere = "bf16"});
        layer.formats[MOE_ROLE_DOWN] = &own;
        moe_tensor down = stack.tensor;
        down.role = MOE_ROLE_DOWN;
        down.format = &own;
        if (own.pre_quant_scale) {
            down.pre_quant_scale = factors.data();
            down.pre_quant_scale_bytes = factors.size() * sizeof(float);
        }
        auto tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
        tensors.push_back(&down);
        const Plan plan = packed_plan(layer);
        const Weights loaded = load(plan, tensors);
        save(loaded);
        const Weights opened = open(plan);
        ASSERT_NO_FATAL_FAILURE(expect_same(*opened, *loaded));
        const Matrix& matrix = opened->resident.matrix(MOE_ROLE_DOWN, 1);
        EXPECT_EQ(matrix.pre_quant_scale != nullptr, own.pre_quant_scale != 0);
        EXPECT_EQ(matrix.codebook != nullptr, own.type == MOE_TYPE_CODEBOOK);
    }
}

TEST_F(HostBlocks, FitTheMemoryOfTheCaller) {
    const LayerTensors layer(rich_layer(), {.everywhere = "q4_k"});
    const Plan plan = packed_plan(layer);
    auto desc = desc_of(layer.tensors);
    uint64_t bytes = 0;
    EXPECT_MOE_OK(moe_weights_size(plan.get(), &desc, &bytes));
    std::vector<std::byte> memory(bytes + 64 + 256, std::byte{0x5A});
    auto* begin = memory.data();
    while (reinterpret_cast<uintptr_t>(begin) % 64) ++begin;
    desc.ownership = MOE_OWN_CALLER;
    desc.memory_space = MOE_SPACE_HOST;
    desc.memory = begin;
    desc.memory_bytes = bytes;
    moe_weights* weights = nullptr;
    EXPECT_MOE_OK(moe_weights_load(plan.get(), &desc, &weights));
    const Weights of_caller(weights), loaded = load(plan, layer.tensors);
    expect_same(*of_caller, *loaded);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(begin[bytes + i], std::byte{0x5A});
    save(of_caller);
    ASSERT_NO_FATAL_FAILURE(expect_same(*open(plan), *loaded));
}

TEST_F(HostBlocks, CanBeUpdatedAndTheFileStays) {
    const LayerTensors layer(rich_layer(128, 256), {.everywhere = "q8_0"});
    const LayerTensors other(rich_layer(128, 256), {.everywhere = "q8_0", .seed = 77});
    const Plan plan = packed_plan(layer);
    const Weights loaded = load(plan, layer.tensors);
    save(loaded);
    const std::vector<char> first = bytes();
    const Weights opened = open(plan);
    for (const moe_tensor* tensor : other.tensors) {
        EXPECT_MOE_OK(moe_weights_update(loaded.get(), tensor, nullptr));
        EXPECT_MOE_OK(moe_weights_update(opened.get(), tensor, nullptr));
    }
    expect_same(*opened, *loaded);
    EXPECT_EQ(bytes(), first);
    const Weights again = open(plan);
    EXPECT_NE(decoded(again->resident.matrix(MOE_ROLE_UP, 2)),
              decoded(opened->resident.matrix(MOE_ROLE_UP, 2)));
}

TEST_F(HostBlocks, AreReadInPlace) {
    const LayerTensors layer(rich_layer(), {.everywhere = "q4_k"});
    const Plan plan = packed_plan(layer);
    const Weights loaded = load(plan, layer.tensors);
    save(loaded);
    const Weights opened = open(plan);
    auto of_load = moe_test::sized<moe_memory_report>(), of_file = of_load;
    EXPECT_MOE_OK(moe_weights_memory(loaded.get(), &of_load));
    EXPECT_MOE_OK(moe_weights_memory(opened.get(), &of_file));
    EXPECT_EQ(of_load.borrowed_bytes, 0u);
    EXPECT_GT(of_load.host_bytes, of_file.borrowed_bytes);
    EXPECT_EQ(of_load.host_bytes, of_file.borrowed_bytes + of_file.host_bytes);
    EXPECT_GT(of_file.borrowed_bytes, 10 * of_file.host_bytes);
}

TEST_F(HostBlocks, WithoutAPackedPlanAreRefused) {
    const LayerTensors layer(rich_layer(), {.everywhere = "q4_k"});
    const Plan plan = packed_plan(layer), source = test::make_plan(layer);
    save(load(plan, layer.tensors));
    expect_refused(source, MOE_ERROR_UNSUPPORTED, "MOE_RESIDENCY_SOURCE");
    const Weights as_given = load(source, layer.tensors);
    EXPECT_MOE_ERROR(moe_weights_save(as_given.get(), path().c_str()), MOE_ERROR_UNSUPPORTED,
                     "not packed");
    auto desc = desc_of(layer.tensors);
    desc.ownership = MOE_OWN_BORROW;
    moe_weights* weights = nullptr;
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_UNSUPPORTED,
                     "packed weights are a copy");
}

TEST_F(HostBlocks, OfAnotherFormatAreRefusedWithBothInWords) {
    const LayerTensors q4_k(rich_layer(), {.everywhere = "q4_k"});
    const LayerTensors q6_k(rich_layer(), {.everywhere = "q6_k"});
    save(load(packed_plan(q4_k), q4_k.tensors));
    expect_refused(packed_plan(q6_k), MOE_ERROR_LAYOUT_MISMATCH,
                   "holds for the CPU (revision 1), hidden 256");
    expect_refused(packed_plan(q6_k), MOE_ERROR_LAYOUT_MISMATCH, "down q6_k");
}

// The matrices are mapped unread; all else is checked.
TEST_F(HostBlocks, WithAnotherByteOutsideTheMatricesAreRefused) {
    const LayerTensors layer(rich_layer(256, 512), {.everywhere = "nvfp4"});
    const Plan plan = packed_plan(layer);
    const Weights loaded = load(plan, layer.tensors);
    save(loaded);
    const std::vector<char> good = bytes();
    const HostPlacement placement = lay_out_on_host(loaded->layout);
    const uint64_t block = good.size() - placement.bytes;
    struct Damage {
        uint64_t at;
        const char* words;
    };
    for (const Damage& one :
         {Damage{0, "is no file of packed weights"}, Damage{100, "the checksum of the header"},
          Damage{block - 4096 + 600, "the checksum of the header"},
          Damage{block + placement.vectors[MOE_ROLE_UP_BIAS], "chunk"},
          Damage{block + placement.records[MOE_ROLE_GATE], "chunk"},
          Damage{good.size() - 65, "chunk"}}) {
        auto bad = good;
        bad[one.at] = static_cast<char>(bad[one.at] ^ 4);
        write(bad);
        expect_refused(plan, MOE_ERROR_CORRUPT_FILE, one.words);
    }
    for (const size_t n : {size_t{0}, size_t{511}}) {
        write({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
        expect_refused(plan, MOE_ERROR_CORRUPT_FILE, "too few for packed weights");
    }
    for (const size_t n : {good.size() / 2, good.size() - 1}) {
        write({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
        expect_refused(plan, MOE_ERROR_CORRUPT_FILE, "the file has");
    }
}

TEST_F(HostBlocks, WithAScaleOutsideItsGroupAreRefused) {
    const LayerTensors layer(rich_layer(256, 512), {.everywhere = "fp8_128x128"});
    const Plan plan = packed_plan(layer);
    const Weights loaded = load(plan, layer.tensors);
    save(loaded);
    const std::vector<char> good = bytes();
    const HostPlacement placement = lay_out_on_host(loaded->layout);
    for (const size_t field :
         {offsetof(MatrixRecord, scale_row_phase), offsetof(MatrixRecord, scale_column_phase)})
        for (const int32_t phase : {-1, 1, 128}) {
            write_with(good, placement.records[MOE_ROLE_UP] + field, &phase, sizeof phase);
            expect_refused(plan, MOE_ERROR_CORRUPT_FILE,
                           "up: a matrix does not begin at its place in a group of scales");
        }
}

TEST_F(HostBlocks, WithAnExpertThatThereIsNotInTheHashTableAreRefused) {
    moe_layer_desc desc = test::plain_layer(64, 96, 4, 2);
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 6;
    const LayerTensors layer(desc, {.everywhere = "nvfp4"});
    const Plan plan = packed_plan(layer);
    const test::HashTable table(6, 2, {0, 1, 2, 3, 3, 0, 1, 2, 2, 0, 3, 1});
    auto tensors = layer.tensors;
    tensors.push_back(&table.tensor);
    const Weights loaded = load(plan, tensors);
    save(loaded);
    ASSERT_NO_FATAL_FAILURE(expect_same(*open(plan), *loaded));
    EXPECT_EQ(loaded->resident.hash_table.size(), table.ids().size());
    const int32_t past_the_last = 4;
    write_with(bytes(), lay_out_on_host(loaded->layout).hash_table + 8, &past_the_last, 4);
    expect_refused(plan, MOE_ERROR_CORRUPT_FILE, "hash_table: an entry");
}

}  // namespace
}  // namespace moe
