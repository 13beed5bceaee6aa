// Experts of one role in different formats: each is read in its own, by every instruction set, in
// slices and after updates.
#include <gtest/gtest.h>

#include "libmoe/cpu/features.hpp"
#include "libmoe/formats/format.hpp"
#include "tests/support/instruction_set.hpp"
#include "tests/support/layer_case.hpp"
#include "tests/support/matrices.hpp"

namespace moe_test::mixed_experts {
namespace {

constexpr int32_t n_experts = 6, top_k = 2, hidden = 256, intermediate = 256;
constexpr moe_role expert_roles[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN};

// Expert e is in the format e % 3.
using Formats = std::array<const char*, 3>;
constexpr Formats mixes[] = {{"q4_k", "q6_k", "bf16"},
                             {"q4_0", "q8_0", "iq4_nl"},
                             {"nvfp4", "fp8_128x128", "f32"},
                             {"kbit4", "q5_1", "f16"}};

class MixedExperts {
  public:
    struct Options {
        int32_t n_threads = 2;
        moe_ownership ownership = MOE_OWN_COPY;
        const moe_slice* slice = nullptr;
        const moe_tensor* update = nullptr;
    };

    explicit MixedExperts(const Formats& names) {
        const auto desc = moe::test::plain_layer(hidden, intermediate, n_experts, top_k);
        for (const char* name : names)
            layers_.push_back(std::make_unique<moe::test::LayerTensors>(
                desc, moe::test::LayerChoices{.everywhere = name,
                                              .formats = {{MOE_ROLE_ROUTER, "f32"}}}));
        formats_.resize(MOE_ROLE_COUNT * n_experts);
        for (const moe_role role : expert_roles)
            for (int32_t e = 0; e < n_experts; ++e) {
                tensors_.push_back(of_format(e % 3).stack(role).single(e));
                formats_[static_cast<size_t>(role * n_experts + e)] = tensors_.back().format;
            }
        for (const moe_tensor& tensor : tensors_) pointers_.push_back(&tensor);
        pointers_.push_back(&layers_[0]->stack(MOE_ROLE_ROUTER).tensor);
    }

    const moe::test::LayerTensors& of_format(int32_t index) const {
        return *layers_[static_cast<size_t>(index)];
    }
    moe_tensor tensor(moe_role role, int32_t expert) const {
        return of_format(expert % 3).stack(role).single(expert);
    }
    moe_plan_desc plan_desc(moe_type type) const {
        auto desc = sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.layer = &layers_[0]->layer.desc;
        desc.x_type = type;
        desc.formats = layers_[0]->formats;
        desc.n_formats = MOE_ROLE_COUNT;
        desc.max_tokens = 64;
        desc.formats_per_expert = formats_.data();
        desc.n_formats_per_expert = static_cast<uint32_t>(formats_.size());
        return desc;
    }
    moe_weights_desc weights_desc() const {
        auto desc = sized<moe_weights_desc>();
        desc.tensors = pointers_.data();
        desc.n_tensors = static_cast<uint32_t>(pointers_.size());
        return desc;
    }
    Floats run(const char* set, moe_type type, const Floats& x, const std::vector<int32_t>& ids,
               const Options& options) const {
        auto desc = plan_desc(type);
        desc.slice = options.slice;
        desc.partial = options.slice != nullptr;
        return run_plan(set, desc, weights_desc(), x, ids, options);
    }
    // The layer whose experts are all of one of the formats.
    Floats run_of_one(int32_t format, const Floats& x, const std::vector<int32_t>& ids) const {
        auto desc = plan_desc(MOE_TYPE_F32);
        desc.formats = of_format(format).formats;
        desc.formats_per_expert = nullptr;
        desc.n_formats_per_expert = 0;
        auto weights = sized<moe_weights_desc>();
        weights.tensors = of_format(format).tensors.data();
        weights.n_tensors = static_cast<uint32_t>(of_format(format).tensors.size());
        return run_plan("scalar", desc, weights, x, ids, {});
    }

  private:
    static Floats run_plan(const char* set, const moe_plan_desc& desc, moe_weights_desc from,
                           const Floats& x, const std::vector<int32_t>& ids,
                           const Options& options) {
        const moe::test::InstructionSet most(set);
        const Runtime runtime = make_runtime(options.n_threads);
        const Plan plan = make_plan(runtime.get(), desc);
        from.ownership = options.ownership;
        const Weights weights = load_weights(plan.get(), from);
        if (options.update)
            must(moe_weights_update(weights.get(), options.update, nullptr), "moe_weights_update");
        const Workspace workspace = make_workspace(runtime.get(), plan.get());
        const Bytes packed = pack(x, desc.x_type);
        Bytes out(packed.size(), std::byte{0xFF});
        const Floats routing_weights(ids.size(), 0.5f);
        auto args =
            forward_args(static_cast<int64_t>(ids.size()) / top_k, packed.data(), out.data());
        args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        args.ids = ids.data();
        args.weights = routing_weights.data();
        must(moe_forward(plan.get(), weights.get(), workspace.get(), &args), "moe_forward");
        return unpack(out, desc.x_type);
    }

    std::vector<std::unique_ptr<moe::test::LayerTensors>> layers_;
    std::vector<moe_tensor> tensors_;
    std::vector<const moe_tensor*> pointers_;
    std::vector<const moe_format*> formats_;
};

std::vector<int32_t> ids_of(int32_t n) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; ++i)
        ids.insert(ids.end(), {i % n_experts, (i * i + i + 1) % n_experts});
    for (int32_t i = 0; i < n; ++i)
        if (ids[2 * i] == ids[2 * i + 1]) ids[2 * i + 1] = (ids[2 * i] + 1) % n_experts;
    return ids;
}

Floats x_of(int32_t n) {
    return moe::test::gaussian(int64_t{n} * hidden, 9);
}

TEST(MixedExperts, AreReadEachInItsOwnFormat) {
    for (const Formats& names : mixes) {
        const MixedExperts mixed(names);
        for (int32_t format = 0; format < 3; ++format) {
            const std::vector<int32_t> ids = {format, format + 3, format + 3, format};
            const Floats x = x_of(2);
            const Floats got = mixed.run("scalar", MOE_TYPE_F32, x, ids, {});
            EXPECT_TRUE(same_bits(got, mixed.run_of_one(format, x, ids))) << names[format];
            EXPECT_GT(worst_row_error(got, mixed.run_of_one((format + 1) % 3, x, ids), hidden),
                      1e-3)
                << "the formats give the same";
        }
    }
}

TEST(MixedExperts, KernelsAgreeWithTheReference) {
    std::vector<const char*> sets;
    if (moe::cpu::has_avx512bf16()) sets.push_back("avx512bf16");
    if (moe::cpu::has_avx512vnni()) sets.push_back("avx512vnni");
    if (moe::cpu::has_avx2()) sets.push_back("avx2");
    if (moe::cpu::has_neon()) sets.push_back("neon");
    for (const Formats& names : mixes) {
        const MixedExperts mixed(names);
        for (const int32_t n : {1, 5, 64})  // one row of an expert, few, and enough for panels
            for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16}) {
                const auto ids = ids_of(n);
                const Floats x = x_of(n), wanted = mixed.run("scalar", type, x, ids, {});
                for (const char* set : sets)
                    EXPECT_LT(worst_row_error(mixed.run(set, type, x, ids, {}), wanted, hidden),
                              type == MOE_TYPE_F32 ? 1e-5 : 6e-3)
                        << set << " " << names[0] << ", " << n << " tokens, "
                        << moe::type_name(type);
            }
    }
}

TEST(MixedExperts, AreBorrowedCopiedAndUpdated) {
    const MixedExperts mixed(mixes[0]);
    const auto ids = ids_of(5);
    const Floats x = x_of(5), wanted = mixed.run("scalar", MOE_TYPE_F32, x, ids, {});
    EXPECT_TRUE(same_bits(mixed.run("scalar", MOE_TYPE_F32, x, ids, {.ownership = MOE_OWN_BORROW}),
                          wanted));
    const moe_tensor same = mixed.tensor(MOE_ROLE_DOWN, 4);
    EXPECT_TRUE(same_bits(mixed.run("scalar", MOE_TYPE_F32, x, ids, {.update = &same}), wanted));
    // Expert 4 is q6_k, and so is expert 1.
    moe_tensor another = mixed.tensor(MOE_ROLE_DOWN, 1);
    another.expert = 4;
    EXPECT_GT(worst_row_error(mixed.run("scalar", MOE_TYPE_F32, x, ids, {.update = &another}),
                              wanted, hidden),
              1e-2);
}

TEST(MixedExperts, ATensorOfAnotherFormatIsRefusedByNumber) {
    const MixedExperts mixed(mixes[1]);
    const Plan plan = make_plan(nullptr, mixed.plan_desc(MOE_TYPE_F32));
    TensorList list(mixed.weights_desc());
    moe_tensor wrong = mixed.of_format(0).stack(MOE_ROLE_UP).single(1);
    list.find(MOE_ROLE_UP, 1) = wrong;
    moe_weights* weights = nullptr;
    const auto desc = list.desc();
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_LAYOUT_MISMATCH,
                     "up of expert 1 is q4_0, the plan has up as q8_0");
}

void expect_sum(const MixedExperts& mixed, const moe_slice& first, const moe_slice& second) {
    const auto ids = ids_of(7);
    const Floats x = x_of(7), wanted = mixed.run("scalar", MOE_TYPE_F32, x, ids, {});
    Floats sum = mixed.run("avx2", MOE_TYPE_F32, x, ids, {.slice = &first});
    EXPECT_GT(worst_row_error(sum, wanted, hidden), 0.1) << "it is a part";
    const Floats rest = mixed.run("avx2", MOE_TYPE_F32, x, ids, {.slice = &second});
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rest[i];
    EXPECT_LT(worst_row_error(sum, wanted, hidden), 1e-5);
}

TEST(MixedExperts, SlicesSumToTheWhole) {
    auto low = sized<moe_slice>(), high = sized<moe_slice>();
    low.has_expert_range = high.has_expert_range = 1;
    low.expert_count = high.expert_begin = 2;
    high.expert_count = 4;
    expect_sum(MixedExperts(mixes[0]), low, high);
    auto left = sized<moe_slice>(), right = sized<moe_slice>();
    left.has_intermediate_range = right.has_intermediate_range = 1;
    left.intermediate_count = right.intermediate_begin = 96;
    right.intermediate_count = 160;
    expect_sum(MixedExperts(mixes[1]), left, right);
    // Blocks of 256 columns, which some of the experts have, allow no cut.
    const MixedExperts blocks(mixes[0]);
    auto desc = blocks.plan_desc(MOE_TYPE_F32);
    desc.slice = &left;
    desc.partial = 1;
    moe_plan* plan = nullptr;
    EXPECT_MOE_ERROR(moe_plan_create(nullptr, &desc, &plan), MOE_ERROR_INVALID_ARGUMENT, "96");
}

}  // namespace
}  // namespace moe_test::mixed_experts
