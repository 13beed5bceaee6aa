// Codebooks that tensors bring along: a copy is kept as long as a matrix points to it, and an
// update replaces codes and codebook together or neither.
#include <gtest/gtest.h>

#include <deque>

#include "libmoe/formats/entries.hpp"
#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr int32_t width = 32;

// Codes of two experts with a codebook of 16 values, or with one of 256 for nested scales.
class CodebookCase {
  public:
    explicit CodebookCase(bool nested, moe_ownership ownership = MOE_OWN_COPY)
        : runtime(allocator.runtime(1)), nested_(nested), ownership_(ownership) {
        desc_.has_router = 0;
        format_ = nested ? moe::bnb_4bit_formats[1].format : clients::format_of_name("kbit4");
        format_.struct_size = sizeof format_;
        if (!nested) format_.codebook = MOE_CODEBOOK_GIVEN;
        must(moe_format_size(&format_, width, width, &data_bytes_, &scale_bytes_), "size");
        scales_.assign(scale_bytes_, std::byte{0x70});
        codebook_ = clients::Random(3).values(256);
        for (const auto role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            for (int32_t expert = 0; expert < 2; ++expert)
                tensors_.push_back(tensor(role, expert, codes(role), codebook_));
        plan = make_plan(runtime.get(), plan_desc());
        weights = load();
        workspace = make_workspace(runtime.get(), plan.get());
    }

    // Of the tensors as they now are.
    Weights load() {
        std::vector<const moe_tensor*> pointers;
        for (const auto& tensor : tensors_) pointers.push_back(&tensor);
        auto desc = sized<moe_weights_desc>();
        desc.tensors = pointers.data();
        desc.n_tensors = static_cast<uint32_t>(pointers.size());
        desc.ownership = ownership_;
        uint64_t bytes = 0;
        must(moe_weights_size(plan.get(), &desc, &bytes), "moe_weights_size");
        desc.memory = blocks_.emplace_back(bytes / 64 + 1).data();
        desc.memory_bytes = bytes;
        return load_weights(plan.get(), desc);
    }
    // Down of expert 0 with other codes and another codebook.
    moe_status update(uint64_t seed) {
        moe_tensor& down = tensors_[4];
        const moe_tensor before = down;
        down = tensor(MOE_ROLE_DOWN, 0, codes(seed), clients::Random(seed).values(256));
        const moe_status status = moe_weights_update(weights.get(), &down, nullptr);
        if (status != MOE_OK) down = before;
        return status;
    }
    moe_status update_to_the_first_codebook() {
        moe_tensor& down = tensors_[4];
        down = tensor(MOE_ROLE_DOWN, 0, codes(5), codebook_);
        return moe_weights_update(weights.get(), &down, nullptr);
    }
    Floats forward(const Weights& with) const {
        const Floats x = clients::Random(1).values(width);
        Floats out(width);
        const int32_t id = 0;
        const float weight = 1;
        auto args = forward_args(1, x.data(), out.data());
        args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        args.ids = &id;
        args.weights = &weight;
        must(moe_forward(plan.get(), with.get(), workspace.get(), &args), "moe_forward");
        return out;
    }
    Floats forward() const { return forward(weights); }
    uint64_t bookkeeping() const {
        auto report = sized<moe_memory_report>();
        must(moe_weights_memory(weights.get(), &report), "moe_weights_memory");
        return report.bookkeeping_bytes;
    }

    TestAllocator allocator;
    Runtime runtime;
    Plan plan;
    Weights weights;
    Workspace workspace;

  private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };

    moe_plan_desc plan_desc() {
        for (const auto role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            formats_[role] = &format_;
        auto desc = sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.x_type = MOE_TYPE_F32;
        desc.layer = &desc_;
        desc.formats = formats_;
        desc.n_formats = MOE_ROLE_COUNT;
        desc.max_tokens = 1;
        return desc;
    }
    Bytes codes(uint64_t seed) const {
        const Floats values = clients::Random(seed).values(static_cast<int64_t>(data_bytes_));
        Bytes bytes(data_bytes_);
        for (size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<std::byte>(static_cast<int>(values[i] * 1000) & 255);
        return bytes;
    }
    moe_tensor tensor(moe_role role, int32_t expert, const Bytes& codes, const Floats& codebook) {
        auto tensor = sized<moe_tensor>();
        tensor.role = role;
        tensor.expert = expert;
        tensor.format = &format_;
        tensor.rows = tensor.columns = width;
        tensor.data = data_.emplace_back(codes).data();
        tensor.data_bytes = data_bytes_;
        tensor.scales = scales_.data();
        tensor.scale_bytes = scale_bytes_;
        const Floats& kept = codebooks_.emplace_back(codebook);
        tensor.codebook = nested_ ? nullptr : kept.data();
        tensor.codebook_bytes = nested_ ? 0 : 64;
        tensor.nested_codebook = nested_ ? kept.data() : nullptr;
        tensor.nested_scales = nested_ ? ones_.data() : nullptr;
        tensor.nested_scale_bytes = nested_ ? ones_.size() * sizeof(float) : 0;
        return tensor;
    }

    bool nested_;
    moe_ownership ownership_;
    moe_layer_desc desc_ = plain_layer(width, width, 2, 1);
    moe_format format_;
    const moe_format* formats_[MOE_ROLE_COUNT] = {};
    uint64_t data_bytes_ = 0, scale_bytes_ = 0;
    Bytes scales_;
    Floats ones_ = Floats(8, 1.0f), codebook_;
    std::deque<Bytes> data_;
    std::deque<Floats> codebooks_;
    std::deque<std::vector<Line>> blocks_;
    std::vector<moe_tensor> tensors_;
};

TEST(Codebooks, UpdateThatGetsNoMemoryChangesNothing) {
    for (const bool nested : {false, true})
        for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_CALLER, MOE_OWN_BORROW}) {
            SCOPED_TRACE(testing::Message() << "nested " << nested << " ownership " << ownership);
            CodebookCase c(nested, ownership);
            const Floats before = c.forward();
            const uint64_t live = c.allocator.live_bytes();
            int64_t n = 1;
            for (bool refused = true; refused; ++n) {
                c.allocator.refuse(n);
                const moe_status status = c.update(50);
                refused = c.allocator.refused();
                c.allocator.refuse(0);
                if (!refused) break;
                EXPECT_EQ(status, MOE_ERROR_OUT_OF_MEMORY) << "request " << n;
                EXPECT_TRUE(same_bits(c.forward(), before)) << "request " << n;
                EXPECT_EQ(c.allocator.live_bytes(), live) << "request " << n;
            }
            EXPECT_GT(n, 2);
            EXPECT_FALSE(same_bits(c.forward(), before)) << "an update that succeeds does";
        }
}

TEST(Codebooks, ThatNoMatrixPointsToAnyMoreAreGivenBack) {
    for (const bool nested : {false, true}) {
        SCOPED_TRACE(testing::Message() << "nested " << nested);
        CodebookCase c(nested);
        const uint64_t live = c.allocator.live_bytes(), bookkeeping = c.bookkeeping();
        ASSERT_MOE_OK(c.update(100));
        const uint64_t live_of_two = c.allocator.live_bytes();
        const uint64_t bookkeeping_of_two = c.bookkeeping();
        EXPECT_GT(live_of_two, live) << "the other matrices still have the first";
        EXPECT_EQ(live_of_two - live, bookkeeping_of_two - bookkeeping);
        for (uint64_t seed = 101; seed < 150; ++seed) ASSERT_MOE_OK(c.update(seed));
        EXPECT_EQ(c.allocator.live_bytes(), live_of_two);
        EXPECT_EQ(c.bookkeeping(), bookkeeping_of_two);
        EXPECT_TRUE(same_bits(c.forward(), c.forward(c.load()))) << "as loaded anew";
        ASSERT_MOE_OK(c.update_to_the_first_codebook());
        EXPECT_EQ(c.allocator.live_bytes(), live);
        EXPECT_TRUE(same_bits(c.forward(), c.forward(c.load())));
    }
}

}  // namespace
}  // namespace moe_test
