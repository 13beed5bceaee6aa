// The codebooks that the host keeps are those of the block, and what is noted of them needs no byte
// from the device: after a load, an update, an update that fails, and from a file.
#include "libmoe/weights/codebook_tables.hpp"

#include <gtest/gtest.h>

#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using test::LayerTensors;
using test::make_plan;
using test::PackedWeights;
using test::rich_layer;

// A layer whose matrices have one codebook, given by the tensors. The shared expert has the routed
// ones' shape, so that it follows them.
struct GivenCodebook {
    explicit GivenCodebook(const char* format_name)
        : layer(desc(), {.everywhere = format_name}),
          format(test::format_named(format_name).format),
          codebook(size_t{1} << format.bits) {
        format.codebook = MOE_CODEBOOK_GIVEN;
        for (size_t i = 0; i < codebook.size(); ++i)
            codebook[i] = 0.1f + static_cast<float>(i) / 16.0f;
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN, MOE_ROLE_SHARED_GATE,
                                    MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN}) {
            moe_tensor& tensor = layer.stack(role).tensor;
            tensor.format = layer.formats[role] = &format;
            tensor.codebook = codebook.data();
            tensor.codebook_bytes = codebook.size() * sizeof(float);
        }
        plan = make_plan(layer);
    }
    static moe_layer_desc desc() {
        moe_layer_desc desc = rich_layer(64, 96);
        desc.shared_intermediate = 96;
        return desc;
    }

    LayerTensors layer;
    moe_format format;
    std::vector<float> codebook;
    Plan plan;
};

bool is_one(PackedWeights& packed, moe_role role) {
    note_codebooks(packed.handle);
    return packed.handle.device.matrices[role].has_one_codebook;
}

void expect_as_in_block(PackedWeights& packed) {
    const DevicePlacement& placement = packed.handle.placement;
    int n_roles = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const DevicePlacement::Region& region = placement.matrices[i];
        if (!region.codebooks) continue;
        ++n_roles;
        const auto role = static_cast<moe_role>(i);
        const CodebookPair* kept = packed.handle.codebook_tables.of(role);
        ASSERT_NE(kept, nullptr) << role_name(role);
        EXPECT_EQ(std::memcmp(kept, packed.block.base() + region.codebooks,
                              static_cast<size_t>(region.count) * sizeof(CodebookPair)),
                  0)
            << role_name(role);
    }
    EXPECT_GT(n_roles, 0);
}

TEST(CodebookTables, ALoadKeepsThemAndReadsNothingBack) {
    GivenCodebook given("kbit3");
    LayerTensors& layer = given.layer;
    ASSERT_TRUE(given.plan);
    PackedWeights packed(*given.plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
    ASSERT_TRUE(packed.handle.placement.shared_follows);
    EXPECT_TRUE(is_one(packed, MOE_ROLE_GATE));
    EXPECT_TRUE(is_one(packed, MOE_ROLE_DOWN));
    EXPECT_TRUE(is_one(packed, MOE_ROLE_SHARED_DOWN));
    EXPECT_EQ(packed.block.n_reads, 0);
    expect_as_in_block(packed);
}

TEST(CodebookTables, AnUpdateChangesThoseOfItsHalf) {
    GivenCodebook given("kbit4");
    LayerTensors& layer = given.layer;
    ASSERT_TRUE(given.plan);
    PackedWeights packed(*given.plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
    moe_tensor up = layer.stack(MOE_ROLE_UP).single(3);
    std::vector<float> other = given.codebook;
    other[5] = 0.75f;
    const float* first = std::exchange(up.codebook, other.data());
    ASSERT_NO_FATAL_FAILURE(packed.update(up));
    EXPECT_EQ(packed.block.n_reads, 1) << "the gate's half of the tiles is read back";
    EXPECT_FALSE(is_one(packed, MOE_ROLE_GATE));
    EXPECT_TRUE(is_one(packed, MOE_ROLE_DOWN));
    ASSERT_NO_FATAL_FAILURE(expect_as_in_block(packed));
    EXPECT_EQ(packed.handle.codebook_tables.of(MOE_ROLE_GATE)[3][0][5], first[5]);
    EXPECT_EQ(packed.handle.codebook_tables.of(MOE_ROLE_GATE)[3][1][5], 0.75f);
    up.codebook = first;
    ASSERT_NO_FATAL_FAILURE(packed.update(up));
    EXPECT_TRUE(is_one(packed, MOE_ROLE_GATE));
    expect_as_in_block(packed);
}

// The shared expert's codebook counts among those of the routed experts that it follows.
TEST(CodebookTables, TheFollowingExpertIsCompared) {
    GivenCodebook given("kbit4");
    LayerTensors& layer = given.layer;
    ASSERT_TRUE(given.plan);
    PackedWeights packed(*given.plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
    moe_tensor down = layer.stack(MOE_ROLE_SHARED_DOWN).tensor;
    std::vector<float> other = given.codebook;
    other[0] = 0.5f;
    down.codebook = other.data();
    ASSERT_NO_FATAL_FAILURE(packed.update(down));
    EXPECT_FALSE(is_one(packed, MOE_ROLE_DOWN));
    EXPECT_TRUE(is_one(packed, MOE_ROLE_SHARED_DOWN)) << "one is the same as itself";
    EXPECT_TRUE(is_one(packed, MOE_ROLE_GATE));
    expect_as_in_block(packed);
}

// A device that refuses writes.
class RefusingBlock final : public DeviceBlock {
  public:
    void write(uint64_t, const void*, uint64_t) override { fail(MOE_ERROR_DEVICE, "refused"); }
    void read(void*, uint64_t, uint64_t) override { FAIL() << "nothing is read"; }
    void fetch(void*, const void*, uint64_t) override { FAIL() << "nothing is fetched"; }
    void synchronize() override {}
};

TEST(CodebookTables, AnUpdateThatFailsChangesNone) {
    GivenCodebook given("kbit4");
    LayerTensors& layer = given.layer;
    ASSERT_TRUE(given.plan);
    PackedWeights packed(*given.plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
    moe_tensor down = layer.stack(MOE_ROLE_DOWN).single(2);
    const std::vector<float> other(16, 0.125f);
    down.codebook = other.data();
    const uint64_t each = PackedLoader::staging_bytes(packed.handle.placement, false);
    std::vector<std::byte> staging(2 * each);
    RefusingBlock block;
    const LoadRequest request;
    PackedLoader loader(packed.handle, request, block, staging.data(), each,
                        TensorReader::Purpose::update);
    loader.add(down);
    EXPECT_THROW(loader.pack(), Error);
    EXPECT_TRUE(is_one(packed, MOE_ROLE_DOWN));
    expect_as_in_block(packed);
}

// A file's chunks end anywhere in a table.
TEST(CodebookTables, WritesOfAnyBytesAreObserved) {
    GivenCodebook given("kbit2");
    LayerTensors& layer = given.layer;
    ASSERT_TRUE(given.plan);
    PackedWeights packed(*given.plan), copy(*given.plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
    const DevicePlacement& placement = packed.handle.placement;
    CodebookTables& tables = copy.handle.codebook_tables;
    tables.resize(placement);
    CodebookObserver observer(copy.block, placement, tables);
    constexpr uint64_t step = 72;
    for (uint64_t offset = 0; offset < placement.bytes; offset += step)
        observer.write(offset, packed.block.base() + offset,
                       std::min(step, placement.bytes - offset));
    observer.synchronize();
    ASSERT_NO_FATAL_FAILURE(expect_as_in_block(copy));
    EXPECT_EQ(copy.block.n_reads, 0);
    EXPECT_NE(tables.of(MOE_ROLE_DOWN)[4][1][3], 0.0f) << "zeros prove nothing";
    EXPECT_TRUE(is_one(copy, MOE_ROLE_DOWN));
}

}  // namespace
}  // namespace moe
