// The struct_size rule, for every sized struct that some call takes or fills. A struct in is cut at
// every field boundary, with zeros beyond the cut, and must do what the whole struct does; a tail
// of zeros is accepted and any other is not. A struct out gets what fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/api/struct_calls.hpp"
#include "tests/support/header_structs.hpp"

namespace moe_test {
namespace {

constexpr uint32_t tail = 64;

// A struct as a caller of another version has it: `size` bytes, then a wall of other bytes.
class Foreign {
  public:
    Foreign(const void* whole, uint32_t known, uint32_t size) : bytes_(size + 16) {
        std::memset(bytes_.data(), 0, size);
        std::memset(bytes_.data() + size, 0x5A, 16);
        std::memcpy(bytes_.data(), whole, std::min(known, size));
        set_size(size);
    }
    void set_size(uint32_t size) {
        std::memcpy(bytes_.data(), &size, std::min<size_t>(4, bytes_.size()));
    }
    std::byte* data() { return bytes_.data(); }
    std::byte& operator[](size_t i) { return bytes_[i]; }

  private:
    std::vector<std::byte> bytes_;
};

class StructIn : public testing::TestWithParam<size_t> {
  protected:
    InStruct in_ = in_structs()[GetParam()];
    uint32_t size_ = static_cast<uint32_t>(in_.whole.size());
};

// What a prefix does is what the whole struct does with zeros where the prefix ends.
TEST_P(StructIn, SmallerIsZerosBeyond) {
    SCOPED_TRACE(in_.name);
    ASSERT_EQ(in_.call(in_.whole.data()), MOE_OK) << moe_last_error();
    size_t n_accepted = 0;
    for (uint32_t size : header_structs().at(in_.struct_name()).boundaries) {
        std::vector<std::byte> zeroed = in_.whole;
        std::fill(zeroed.begin() + size, zeroed.end(), std::byte{0});
        const moe_status wanted = in_.call(zeroed.data());
        const std::string sentence = moe_last_error();
        Foreign prefix(in_.whole.data(), size_, size);
        EXPECT_EQ(in_.call(prefix.data()), wanted) << size << ": " << moe_last_error();
        EXPECT_EQ(moe_last_error(), sentence) << size;
        EXPECT_NE(wanted, MOE_ERROR_ABI) << size;
        n_accepted += wanted == MOE_OK;
    }
    EXPECT_GE(n_accepted, 1u) << "the whole struct is one of them";
}

TEST_P(StructIn, LargerMustBeZeroBeyond) {
    SCOPED_TRACE(in_.name);
    Foreign zero(in_.whole.data(), size_, size_ + tail);
    EXPECT_MOE_OK(in_.call(zero.data()));
    for (uint32_t at : {size_, size_ + 7, size_ + tail - 1}) {
        Foreign newer(in_.whole.data(), size_, size_ + tail);
        newer[at] = std::byte{1};
        EXPECT_MOE_ERROR(in_.call(newer.data()), MOE_ERROR_ABI, in_.struct_name());
    }
}

TEST_P(StructIn, ReservedMustBeZero) {
    SCOPED_TRACE(in_.name);
    for (uint32_t at : header_structs().at(in_.struct_name()).reserved) {
        Foreign used(in_.whole.data(), size_, size_);
        used[at] = std::byte{1};
        EXPECT_MOE_ERROR(in_.call(used.data()), MOE_ERROR_INVALID_ARGUMENT, "reserved");
    }
}

TEST(StructSize, SomeHaveReservedFields) {
    size_t n = 0;
    for (const auto& [name, fields] : header_structs()) n += fields.reserved.size();
    EXPECT_EQ(n, 22u);
}

TEST_P(StructIn, SizesThatCannotBeAreRefused) {
    SCOPED_TRACE(in_.name);
    for (uint32_t size : {0u, 3u, 70000u, 0xFFFFFFFFu}) {
        Foreign wrong(in_.whole.data(), size_, size_);
        wrong.set_size(size);
        EXPECT_MOE_ERROR(in_.call(wrong.data()), MOE_ERROR_ABI, std::to_string(size));
    }
}

std::string in_name(const testing::TestParamInfo<size_t>& info) {
    std::string name = in_structs()[info.param].name;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(Every, StructIn, testing::Range(size_t{0}, in_structs().size()), in_name);

// Structs out.

class StructOut : public testing::TestWithParam<size_t> {
  protected:
    OutStruct out_ = out_structs()[GetParam()];

    std::vector<std::byte> whole() {
        std::vector<std::byte> bytes(out_.size);
        std::memcpy(bytes.data(), &out_.size, 4);
        EXPECT_MOE_OK(out_.call(bytes.data()));
        return bytes;
    }
};

TEST_P(StructOut, SmallerGetsWhatFits) {
    SCOPED_TRACE(out_.name);
    const auto full = whole();
    for (uint32_t size = 4; size <= out_.size; size += 4) {
        std::vector<std::byte> bytes(size + 16, std::byte{0x5A});
        std::memcpy(bytes.data(), &size, 4);
        const std::vector<std::byte> before = bytes;
        const bool fits = std::all_of(full.begin() + size, full.end(),
                                      [](std::byte byte) { return byte == std::byte{0}; });
        EXPECT_EQ(out_.call(bytes.data()), fits ? MOE_OK : MOE_ERROR_ABI) << size;
        EXPECT_EQ(std::memcmp(bytes.data(), &size, 4), 0) << "struct_size is kept";
        if (fits)
            EXPECT_TRUE(std::equal(full.begin() + 4, full.begin() + size, bytes.begin() + 4));
        else
            EXPECT_EQ(bytes, before) << "a call that fails writes nothing";
        EXPECT_TRUE(std::equal(bytes.begin() + size, bytes.end(), before.begin() + size))
            << "wrote beyond struct_size " << size;
    }
}

TEST_P(StructOut, LargerGetsZerosBeyond) {
    SCOPED_TRACE(out_.name);
    const auto full = whole();
    const uint32_t size = out_.size + tail;
    std::vector<std::byte> bytes(size + 16, std::byte{0x5A});
    std::memcpy(bytes.data(), &size, 4);
    EXPECT_MOE_OK(out_.call(bytes.data()));
    EXPECT_EQ(std::memcmp(bytes.data(), &size, 4), 0) << "struct_size is kept";
    EXPECT_TRUE(std::equal(full.begin() + 4, full.end(), bytes.begin() + 4));
    EXPECT_EQ(std::count(bytes.begin() + out_.size, bytes.begin() + size, std::byte{0}), tail);
    EXPECT_EQ(bytes[size], std::byte{0x5A});
}

TEST_P(StructOut, SizesThatCannotBeAreRefused) {
    SCOPED_TRACE(out_.name);
    for (uint32_t size : {0u, 3u, 70000u}) {
        std::vector<std::byte> bytes(out_.size);
        std::memcpy(bytes.data(), &size, 4);
        const auto before = bytes;
        EXPECT_MOE_ERROR(out_.call(bytes.data()), MOE_ERROR_ABI, std::to_string(size));
        EXPECT_EQ(bytes, before);
    }
}

std::string out_name(const testing::TestParamInfo<size_t>& info) {
    return out_structs()[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(Every, StructOut, testing::Range(size_t{0}, out_structs().size()),
                         out_name);

TEST(StructSize, EveryStructOfTheHeaderIsHere) {
    std::set<std::string> tested;
    for (const auto& in : in_structs()) {
        tested.insert(in.struct_name());
        EXPECT_EQ(in.whole.size(), header_structs().at(in.struct_name()).size) << in.name;
    }
    for (const auto& out : out_structs()) {
        tested.insert(out.name);
        EXPECT_EQ(out.size, header_structs().at(out.name).size) << out.name;
    }
    for (const auto& [name, fields] : header_structs()) {
        EXPECT_TRUE(tested.count(name)) << name;
        EXPECT_EQ(fields.boundaries.at(0), 4u) << name << " begins with struct_size";
    }
    EXPECT_EQ(tested.size(), header_structs().size());
}

// What did not fit is not lost: faults are forgotten only when they have been told.
TEST(StructOut, FaultsThatDoNotFitAreKept) {
    World& w = World::get();
    const std::vector<int32_t> ids = {0, 99, 1, 2};
    auto args = forward_args(2, w.x.data(), w.out.data());
    args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    args.ids = ids.data();
    args.weights = w.weights.data();
    ASSERT_MOE_OK(w.run.forward(args));
    moe_workspace_faults small{};
    small.struct_size = offsetof(moe_workspace_faults, n_skipped);
    EXPECT_EQ(moe_workspace_status(w.run.workspace.get(), &small), MOE_ERROR_ABI);
    const auto faults = faults_of(w.run.workspace);
    EXPECT_EQ(faults.faults, uint32_t{MOE_FAULT_ID_OUT_OF_RANGE});
    EXPECT_EQ(faults.n_skipped, 1);
}

}  // namespace
}  // namespace moe_test
