// The plan: what it requires and refuses, its keys and ids, its workspace, its kernels, and what it
// says of itself.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

using Id = std::array<uint8_t, 16>;
using PlanChange = std::function<void(moe_plan_desc&)>;

// A layer with everything that may be sliced, and room to change its description.
struct PlanCase {
    PlanCase() : layer(make()), desc(layer.plan_desc(64)) {
        formats.assign(desc.formats, desc.formats + desc.n_formats);
        desc.formats = formats.data();
        runtime = make_runtime(2);
    }
    static moe_layer_desc make() {
        auto d = plain_layer(64, 48, 6, 3);
        d.shared_intermediate = 32;
        d.shared_activation = MOE_ACTIVATION_SILU;
        d.shared_is_gated = 1;
        return d;
    }
    moe_plan_desc with(const PlanChange& change) const {
        moe_plan_desc changed = desc;
        if (change) change(changed);
        return changed;
    }
    // moe_plan_create, and moe_supports which must say the same.
    moe_status create(const PlanChange& change) const {
        const auto changed = with(change);
        const moe_status supported = moe_supports(runtime.get(), &changed);
        const std::string sentence = moe_last_error();
        moe_plan* plan = nullptr;
        const moe_status status = moe_plan_create(runtime.get(), &changed, &plan);
        EXPECT_EQ(supported, status);
        EXPECT_EQ(sentence, moe_last_error());
        EXPECT_EQ(plan == nullptr, status != MOE_OK);
        moe_plan_destroy(plan);
        return status;
    }
    Plan plan(const PlanChange& change = {}) const {
        return make_plan(runtime.get(), with(change));
    }
    Id key(const PlanChange& change) const {
        const auto changed = with(change);
        Id id{};
        must(moe_plan_key(runtime.get(), &changed, id.data()), "moe_plan_key");
        return id;
    }
    Id layout(const PlanChange& change) const {
        Id id{};
        must(moe_plan_layout_id(plan(change).get(), id.data()), "moe_plan_layout_id");
        return id;
    }

    LayerCase layer;
    std::vector<const moe_format*> formats;
    moe_plan_desc desc;
    Runtime runtime;
};

TEST(PlanCreate, RequiredFieldsAreNamed) {
    PlanCase c;
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.layer = nullptr; }), bad, "layer");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.x_type = MOE_TYPE_NONE; }), bad, "x_type");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.max_tokens = 0; }), bad, "max_tokens is 0");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.max_tokens = -1; }), bad, "max_tokens is -1");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.max_tokens = INT64_MAX; }), bad, "max_tokens");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.n_formats = 0; }), bad, "router");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.formats = nullptr; }), bad, "formats");
    std::vector<const moe_format*> lacking = c.formats;
    lacking[MOE_ROLE_DOWN] = nullptr;
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.formats = lacking.data(); }), bad, "down");
}

TEST(PlanCreate, WrongFieldsAreNamed) {
    PlanCase c;
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.x_type = MOE_TYPE_I8; }), bad, "x_type");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.x_type = MOE_TYPE_F64; }), bad, "x_type");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.out_type = MOE_TYPE_F64; }), bad, "out_type");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.router_input_type = MOE_TYPE_I32; }), bad,
                     "router_input_type");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.intermediate_type = MOE_TYPE_I32; }), bad,
                     "intermediate_type");
    const auto unknown = static_cast<moe_type>(77);
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.x_type = unknown; }), bad, "x_type is unknown (77)");
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.out_type = unknown; }), bad,
                     "out_type is unknown (77)");
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.router_input_type = unknown; }), bad,
                     "router_input_type is unknown (77)");
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.intermediate_type = unknown; }), bad,
                     "intermediate_type is unknown (77)");
    for (const int32_t value : {77, -1})
        EXPECT_MOE_ERROR(c.create([&](auto& d) {
            d.activation_quantization = static_cast<moe_activation_quantization>(value);
        }),
                         bad, "activation_quantization is " + std::to_string(value));
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.stages = 32; }), bad, "stages");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.partial = 2; }), bad, "partial is 2");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.batch_invariant = -1; }), bad,
                     "batch_invariant is -1");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.unfused = 3; }), bad, "unfused is 3");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.device_index = 1; }), bad, "device_index is 1");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.device = static_cast<moe_device_kind>(9); }), bad,
                     "device is 9");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.residency = static_cast<moe_residency>(9); }), bad,
                     "residency is 9");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.max_workspace_bytes = 64; }), bad,
                     "max_workspace_bytes is 64");
    auto layer = c.layer.layer.desc;
    layer.hidden = 33;
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.layer = &layer; }), bad, "hidden is 33");
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_count = 2;
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.slice = &slice; }), bad, "partial");
    slice.expert_count = 7;
    EXPECT_MOE_ERROR(c.create([&](auto& d) {
        d.slice = &slice;
        d.partial = 1;
    }),
                     bad, "expert_count");
}

TEST(PlanCreate, WhatIsNotInThisVersionNamesItself) {
    PlanCase c;
    EXPECT_MOE_ERROR(
        c.create([](auto& d) { d.activation_quantization = MOE_ACTIVATION_QUANTIZATION_FP8; }),
        MOE_ERROR_UNSUPPORTED, "activation_quantization");
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.tuning_path = "table.json"; }), MOE_ERROR_UNSUPPORTED,
                     "tuning_path");
    auto blocks = sized<moe_format>();
    blocks.type = MOE_TYPE_GGUF;
    blocks.block_id = 29;  // IQ1_M
    auto formats = c.formats;
    formats[MOE_ROLE_DOWN] = &blocks;
    EXPECT_MOE_ERROR(c.create([&](auto& d) { d.formats = formats.data(); }), MOE_ERROR_UNSUPPORTED,
                     "gguf type 29");
}

// Of six experts, index = role * 6 + expert.
TEST(PlanCreate, ExpertsMayHaveFormatsOfTheirOwn) {
    PlanCase c;
    auto q8_0 = sized<moe_format>(), iq1_m = sized<moe_format>();
    q8_0.type = iq1_m.type = MOE_TYPE_GGUF;
    q8_0.block_id = 8;
    iq1_m.block_id = 29;
    std::vector<const moe_format*> own(MOE_ROLE_COUNT * 6);
    const auto with = [&](const PlanChange& more = {}) {
        return [&, more](moe_plan_desc& d) {
            d.formats_per_expert = own.data();
            d.n_formats_per_expert = static_cast<uint32_t>(own.size());
            if (more) more(d);
        };
    };
    // What every expert has anyway changes nothing.
    own[MOE_ROLE_UP * 6 + 2] = c.desc.formats[MOE_ROLE_UP];
    EXPECT_EQ(c.key(with()), c.key({}));
    EXPECT_EQ(c.create(with([](auto& d) { d.residency = MOE_RESIDENCY_PACKED; })), MOE_OK);
    own[MOE_ROLE_UP * 6 + 2] = own[MOE_ROLE_UP * 6 + 4] = &q8_0;
    EXPECT_EQ(c.create(with()), MOE_OK);
    EXPECT_NE(c.key(with()), c.key({}));
    EXPECT_NE(c.layout(with()), c.layout({}));
    const Plan plan = c.plan(with());
    uint64_t size = 0;
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_TEXT, nullptr, 0, &size));
    std::string text(size, ' ');
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_TEXT, text.data(), size, nullptr));
    EXPECT_NE(text.find("up f32, q8_0 of 2 experts x6"), std::string::npos) << text;

    EXPECT_MOE_ERROR(c.create(with([](auto& d) { d.residency = MOE_RESIDENCY_PACKED; })),
                     MOE_ERROR_UNSUPPORTED, "residency MOE_RESIDENCY_PACKED: formats_per_expert");
    EXPECT_MOE_ERROR(c.create(with([](auto& d) { d.formats_per_expert = nullptr; })),
                     MOE_ERROR_INVALID_ARGUMENT,
                     "formats_per_expert is NULL, n_formats_per_expert is");
    EXPECT_MOE_ERROR(c.create(with([](auto& d) { d.n_formats_per_expert = 1000; })),
                     MOE_ERROR_INVALID_ARGUMENT, "n_formats_per_expert is 1000");
    own[MOE_ROLE_UP * 6 + 3] = &iq1_m;
    EXPECT_MOE_ERROR(c.create(with()), MOE_ERROR_UNSUPPORTED, "gguf type 29");
    own[MOE_ROLE_UP * 6 + 3] = nullptr;
    own[MOE_ROLE_SHARED_UP * 6] = &q8_0;
    EXPECT_MOE_ERROR(c.create(with()), MOE_ERROR_INVALID_ARGUMENT, "single experts have gate");
    own[MOE_ROLE_SHARED_UP * 6] = nullptr;
    own[MOE_ROLE_DOWN * 6 + 1] = &q8_0;  // of 48 columns
    EXPECT_MOE_ERROR(c.create(with()), MOE_ERROR_INVALID_ARGUMENT,
                     "down has 48 columns, q8_0 needs a multiple of 32");
}

// moe_device_count: MOE_OK with a device, else what a plan for CUDA is answered too.
moe_status cuda_status() {
    int32_t count = 0;
    return moe_device_count(MOE_DEVICE_CUDA, &count);
}

TEST(PlanDevice, AnAbsentOneIsNotReplaced) {
    PlanCase c;
    const moe_status status = cuda_status();
    if (status == MOE_OK) GTEST_SKIP() << "there is a CUDA device";
    EXPECT_MOE_ERROR(c.create([](auto& d) { d.device = MOE_DEVICE_CUDA; }), status, "CUDA");
}

TEST(PlanDevice, AutoSaysWhy) {
    PlanCase c;
    if (cuda_status() == MOE_OK) GTEST_SKIP() << "there is a CUDA device";
    for (const auto asked : {MOE_DEVICE_AUTO, MOE_DEVICE_CPU}) {
        const Plan plan = c.plan([&](auto& d) { d.device = asked; });
        moe_device_kind kind{};
        int32_t index = -1;
        const char* reason = nullptr;
        EXPECT_MOE_OK(moe_plan_device(plan.get(), &kind, &index, &reason));
        EXPECT_EQ(kind, MOE_DEVICE_CPU);
        EXPECT_EQ(index, 0);
        EXPECT_EQ(std::strstr(reason, "CUDA") != nullptr, asked == MOE_DEVICE_AUTO) << reason;
        EXPECT_MOE_OK(moe_plan_device(plan.get(), &kind, &index, nullptr));
    }
}

// ---- keys and ids

struct Difference {
    const char* name;
    bool in_key, in_layout;
    PlanChange change;
};

moe_slice experts_of(int32_t begin, int32_t count) {
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_begin = begin;
    slice.expert_count = count;
    return slice;
}

TEST(PlanIds, DependOnWhatTheHeaderSays) {
    PlanCase c;
    auto routed_scale = c.layer.layer.desc, wider = routed_scale, activation = routed_scale;
    routed_scale.has_routed_scale = 1;
    routed_scale.routed_scale = 2;
    wider.intermediate = 64;
    activation.activation = MOE_ACTIVATION_GELU_ERF;
    const auto first = experts_of(0, 3), second = experts_of(3, 3);
    auto half = sized<moe_slice>(), half_shared = half;
    half.has_intermediate_range = 1;
    half.intermediate_count = 16;
    half_shared.has_shared_range = 1;
    half_shared.shared_count = 16;
    const moe_format bf16 = clients::format_of_name("bf16");
    auto formats = c.formats;
    formats[MOE_ROLE_UP] = &bf16;
    auto sliced = [](const moe_slice& slice) {
        return [&slice](moe_plan_desc& d) {
            d.partial = 1;
            d.slice = &slice;
        };
    };
    const std::vector<Difference> differences = {
        {"max_tokens", true, false, [](auto& d) { d.max_tokens = 65; }},
        {"x_type", true, false, [](auto& d) { d.x_type = MOE_TYPE_BF16; }},
        {"out_type", true, false, [](auto& d) { d.out_type = MOE_TYPE_F16; }},
        {"router_input_type", true, false, [](auto& d) { d.router_input_type = MOE_TYPE_F16; }},
        {"intermediate_type", true, false, [](auto& d) { d.intermediate_type = MOE_TYPE_BF16; }},
        {"batch_invariant", true, false, [](auto& d) { d.batch_invariant = 1; }},
        {"unfused", true, false, [](auto& d) { d.unfused = 1; }},
        {"max_workspace_bytes", true, false, [](auto& d) { d.max_workspace_bytes = 1 << 20; }},
        {"kernel_filter", true, false,
         [](auto& d) { d.kernel_filter = "cpu_any_f32_experts_ref"; }},
        {"partial", true, false, [](auto& d) { d.partial = 1; }},
        {"routed_scale", true, false, [&](auto& d) { d.layer = &routed_scale; }},
        {"activation", true, false, [&](auto& d) { d.layer = &activation; }},
        {"intermediate", true, true, [&](auto& d) { d.layer = &wider; }},
        {"residency", true, true, [](auto& d) { d.residency = MOE_RESIDENCY_PACKED; }},
        {"stages", true, true, [](auto& d) { d.stages = MOE_STAGE_EXPERTS; }},
        {"formats", true, true, [&](auto& d) { d.formats = formats.data(); }},
        {"first experts", true, true, sliced(first)},
        {"second experts", true, true, sliced(second)},
        {"half the intermediate", true, true, sliced(half)},
        {"half the shared", true, true, sliced(half_shared)},
    };
    const Id key = c.key({}), layout = c.layout({});
    EXPECT_EQ(key, c.key({}));
    EXPECT_EQ(layout, c.layout({}));
    std::set<Id> keys{key}, layouts{layout};
    for (const auto& difference : differences) {
        SCOPED_TRACE(difference.name);
        EXPECT_EQ(keys.insert(c.key(difference.change)).second, difference.in_key);
        const Id changed = c.layout(difference.change);
        EXPECT_EQ(changed != layout, difference.in_layout);
        EXPECT_EQ(layouts.insert(changed).second, difference.in_layout) << "two are alike";
    }
}

// Entries of a hash table go up to the number of all experts, which without a router nothing else
// of the layout tells.
TEST(PlanIds, OfHashTablesTellTheNumberOfAllExperts) {
    PlanCase c;
    auto hash = c.layer.layer.desc;
    hash.has_router = 0;
    hash.selection = MOE_SELECT_HASH;
    hash.hash_vocabulary = 8;
    auto identity = hash;
    identity.n_identity_experts = 2;
    const auto layout = [&](const moe_layer_desc& layer, uint32_t stages) {
        return c.layout([&](auto& d) {
            d.layer = &layer;
            d.stages = stages;
        });
    };
    EXPECT_NE(layout(hash, 0), layout(identity, 0));
    EXPECT_EQ(layout(hash, MOE_STAGE_EXPERTS), layout(identity, MOE_STAGE_EXPERTS))
        << "no table, no difference";
}

TEST(PlanIds, KeysAreEqualWhereThePlansAre) {
    PlanCase c;
    const Id key = c.key({});
    EXPECT_EQ(key, c.key([](auto& d) { d.out_type = MOE_TYPE_F32; })) << "0 means x_type";
    EXPECT_EQ(key, c.key([](auto& d) { d.router_input_type = MOE_TYPE_F32; }));
    EXPECT_EQ(key, c.key([](auto& d) { d.intermediate_type = MOE_TYPE_F32; }));
    EXPECT_EQ(key, c.key([](auto& d) { d.residency = MOE_RESIDENCY_SOURCE; }));
    EXPECT_EQ(key, c.key([](auto& d) { d.stages = 31; }));
    const auto whole = experts_of(0, 6);
    EXPECT_EQ(key, c.key([&](auto& d) { d.slice = &whole; }));
    const LayerCase other(PlanCase::make(), "f32", 99);
    EXPECT_EQ(key, c.key([&](auto& d) { d.layer = &other.layer.desc; }));
}

// Stages whose weights no range cuts need workspaces by the range all the same.
TEST(PlanIds, KeysTellRangesThatTheLayoutDoesNot) {
    PlanCase c;
    auto first = sized<moe_slice>(), second = first, shared = first;
    first.has_intermediate_range = second.has_intermediate_range = 1;
    first.intermediate_count = second.intermediate_count = second.intermediate_begin = 16;
    shared.has_shared_range = 1;
    shared.shared_count = 16;
    for (const uint32_t stages :
         {uint32_t{MOE_STAGE_ROUTE}, uint32_t{MOE_STAGE_DISPATCH}, uint32_t{MOE_STAGE_COMBINE}}) {
        std::set<Id> keys, layouts;
        for (const moe_slice* slice : {(const moe_slice*)nullptr, (const moe_slice*)&first,
                                       (const moe_slice*)&second, (const moe_slice*)&shared}) {
            const PlanChange change = [&](auto& d) {
                d.partial = 1;
                d.stages = stages;
                d.slice = slice;
            };
            keys.insert(c.key(change));
            layouts.insert(c.layout(change));
        }
        EXPECT_EQ(keys.size(), 4u) << stages;
        EXPECT_EQ(layouts.size(), 1u) << "weights go with all of them";
    }
}

TEST(PlanIds, KeyIsThatOfThePlan) {
    PlanCase c;
    const Plan plan = c.plan();
    uint64_t size = 0;
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_JSON, nullptr, 0, &size));
    std::string text(size, '\0');
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_JSON, text.data(), size, nullptr));
    std::string hex;
    for (const uint8_t byte : c.key({})) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", byte);
        hex += two;
    }
    EXPECT_NE(text.find(hex), std::string::npos);
}

// ---- workspace

TEST(WorkspaceSize, IsMonotoneAndEndsAtMaxTokens) {
    PlanCase c;
    for (const uint64_t budget : {uint64_t{0}, uint64_t{64} << 10}) {
        const Plan plan = c.plan([&](auto& d) { d.max_workspace_bytes = budget; });
        uint64_t last = 0;
        for (int64_t n = 0; n <= 70; ++n) {
            const auto need = need_of(plan.get(), n);
            EXPECT_GE(need.host_bytes, last) << n;
            EXPECT_EQ(need.device_bytes, 0u);
            EXPECT_EQ(need.alignment & (need.alignment - 1), 0u);
            last = need.host_bytes;
        }
        EXPECT_EQ(need_of(plan.get(), INT64_MAX).host_bytes, need_of(plan.get(), 64).host_bytes);
        EXPECT_TRUE(!budget || last <= budget) << last;
    }
    auto need = sized<moe_workspace_need>();
    EXPECT_MOE_ERROR(moe_plan_workspace_size(c.plan().get(), -1, &need), MOE_ERROR_INVALID_ARGUMENT,
                     "n_tokens is -1");
}

TEST(WorkspaceCreate, FieldsAreNamed) {
    PlanCase c;
    const Plan plan = c.plan();
    moe_workspace* workspace = nullptr;
    alignas(64) std::byte memory[256];
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    auto create = [&](const std::function<void(moe_workspace_desc&)>& change) {
        auto desc = sized<moe_workspace_desc>();
        desc.plan = plan.get();
        change(desc);
        return moe_workspace_create(c.runtime.get(), &desc, &workspace);
    };
    EXPECT_MOE_ERROR(create([](auto& d) { d.device = MOE_DEVICE_CUDA; }),
                     cuda_status() == MOE_ERROR_NOT_BUILT ? MOE_ERROR_NOT_BUILT : bad, "device");
    EXPECT_MOE_ERROR(create([](auto& d) { d.device_index = 2; }), bad, "device_index is 2");
    EXPECT_MOE_ERROR(create([](auto& d) { d.device_bytes = 64; }), bad, "device_bytes is 64");
    EXPECT_MOE_ERROR(create([](auto& d) { d.plan = nullptr; }), bad, "host_bytes");
    EXPECT_MOE_ERROR(create([&](auto& d) { d.host_memory = memory + 8; }), bad, "host_memory");
    EXPECT_EQ(workspace, nullptr);
    EXPECT_MOE_OK(create([](auto& d) {
        d.plan = nullptr;
        d.host_bytes = 4096;
    }));
    moe_workspace_destroy(workspace);
}

// ---- kernels

TEST(Candidates, EndAndOneIsChosenPerStage) {
    PlanCase c;
    for (const auto intermediate : {MOE_TYPE_F32, MOE_TYPE_F64}) {
        const Plan plan = c.plan([&](auto& d) { d.intermediate_type = intermediate; });
        std::map<moe_stage, std::string> chosen;
        int32_t last_stage = 0;
        uint32_t index = 0;
        moe_candidate candidate;
        for (;; ++index) {
            candidate = sized<moe_candidate>();
            const moe_status status = moe_candidates(plan.get(), index, &candidate);
            if (status == MOE_ERROR_NOT_FOUND) break;
            ASSERT_EQ(status, MOE_OK);
            EXPECT_GE(candidate.stage, last_stage) << "stages in order";
            last_stage = candidate.stage;
            EXPECT_STRNE(candidate.reason, "");
            EXPECT_EQ(candidate.chosen, std::string(candidate.reason_code) == "chosen");
            if (!candidate.chosen) continue;
            EXPECT_EQ(candidate.applicable, 1);
            EXPECT_TRUE(chosen.insert({candidate.stage, candidate.kernel}).second);
        }
        EXPECT_EQ(moe_candidates(plan.get(), UINT32_MAX, &candidate), MOE_ERROR_NOT_FOUND);
        EXPECT_EQ(chosen.size(), 5u);
        for (const auto& [stage, kernel] : chosen) {
            const char* name = nullptr;
            EXPECT_MOE_OK(moe_plan_kernel(plan.get(), stage, 1, &name));
            EXPECT_EQ(name, kernel);
        }
    }
    const char* name = nullptr;
    const Plan plan = c.plan();
    for (const int stage : {0, 3, 32})
        EXPECT_MOE_ERROR(moe_plan_kernel(plan.get(), static_cast<moe_stage>(stage), 1, &name),
                         MOE_ERROR_INVALID_ARGUMENT, "stage is " + std::to_string(stage));
    EXPECT_MOE_ERROR(moe_plan_kernel(plan.get(), MOE_STAGE_ROUTE, 65, &name),
                     MOE_ERROR_INVALID_ARGUMENT, "n_tokens is 65");
}

std::string experts_kernel(const Plan& plan) {
    const char* name = nullptr;
    must(moe_plan_kernel(plan.get(), MOE_STAGE_EXPERTS, 1, &name), "moe_plan_kernel");
    return name;
}

TEST(KernelFilter, ForcesForbidsAndRefuses) {
    PlanCase c;
    auto filtered = [](const char* filter) {
        return [=](moe_plan_desc& d) { d.kernel_filter = filter; };
    };
    const std::string ref = "cpu_any_f32_experts_ref";
    const std::string best = experts_kernel(c.plan());
    for (const char* filter :
         {"cpu_any_f32_experts_ref", "+cpu_any_f32_experts_ref", " , +cpu_any_f32_experts_ref ,",
          "-avx512_dense_f32_experts,-avx2_dense_f32_experts,-*_gemv_*", "-*_dense_*,-*_gemv_*",
          "experts:*_f32_*_ref", "experts:cpu_*_f32_*,-avx*"})
        EXPECT_EQ(experts_kernel(c.plan(filtered(filter))), ref) << filter;
    for (const char* filter : {"", "-finish:*_dense_*", "finish:*_f32_finish_ref"})
        EXPECT_EQ(experts_kernel(c.plan(filtered(filter))), best) << filter;
    if (best != ref) {
        EXPECT_EQ(experts_kernel(c.plan(filtered("-cpu_any_f32_experts_ref"))), best);
    }
    EXPECT_MOE_ERROR(c.create(filtered("no_such_kernel")), MOE_ERROR_INVALID_ARGUMENT,
                     "no_such_kernel");
    EXPECT_MOE_ERROR(c.create(filtered("-no_such_kernel")), MOE_ERROR_INVALID_ARGUMENT,
                     "no_such_kernel");
    EXPECT_MOE_ERROR(c.create(filtered("-route:avx*")), MOE_ERROR_INVALID_ARGUMENT, "avx*");
    EXPECT_MOE_ERROR(c.create(filtered("cpu_any_f64_experts_ref")), MOE_ERROR_UNSUPPORTED,
                     "cpu_any_f64_experts_ref");
    EXPECT_MOE_ERROR(c.create(filtered("cpu_*_f64_*")), MOE_ERROR_UNSUPPORTED,
                     "forces cpu_any_f64_experts_ref, which does not apply");
    EXPECT_MOE_ERROR(c.create(filtered("-dispatch:*")), MOE_ERROR_UNSUPPORTED,
                     "no candidate for stage dispatch");
    EXPECT_MOE_ERROR(c.create(filtered("*_ref,-*_f32_experts_ref")), MOE_ERROR_INVALID_ARGUMENT,
                     "forces cpu_any_f32_experts_ref and forbids it");
    EXPECT_MOE_ERROR(c.create(filtered("-cpu_any_f32_dispatch_ref")), MOE_ERROR_UNSUPPORTED,
                     "dispatch");
}

// ---- explain

TEST(Explain, JsonSaysWhatTheQueriesSay) {
    PlanCase c;
    const Plan plan = c.plan([](auto& d) { d.max_workspace_bytes = 64 << 10; });
    uint64_t size = 0;
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_JSON, nullptr, 0, &size));
    std::string text(size, '\0');
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_JSON, text.data(), size, nullptr));
    const auto json = nlohmann::json::parse(text.c_str());
    EXPECT_EQ(json["schema"], "libmoe.explain.1");
    EXPECT_EQ(json["device"]["n_threads"], 2);
    EXPECT_EQ(json["workspace"]["host_bytes"], need_of(plan.get(), 64).host_bytes);
    EXPECT_LT(json["workspace"]["chunk_tokens"], 64);
    EXPECT_EQ(json["layer"]["top_k"], 3);
    size_t n_candidates = 0;
    for (const auto& stage : json["stages"]) n_candidates += stage["candidates"].size();
    auto candidate = sized<moe_candidate>();
    EXPECT_MOE_OK(moe_candidates(plan.get(), static_cast<uint32_t>(n_candidates - 1), &candidate));
    EXPECT_EQ(moe_candidates(plan.get(), static_cast<uint32_t>(n_candidates), &candidate),
              MOE_ERROR_NOT_FOUND);
    const auto weights = c.layer.tensors.weights_desc();
    uint64_t bytes = 0;
    ASSERT_MOE_OK(moe_weights_size(plan.get(), &weights, &bytes));
    EXPECT_EQ(json["weights"]["bytes"], bytes);
}

TEST(Explain, TextNamesTheKernels) {
    PlanCase c;
    const Plan plan = c.plan();
    uint64_t size = 0;
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_TEXT, nullptr, 0, &size));
    std::string text(size, '\0');
    ASSERT_MOE_OK(moe_plan_explain(plan.get(), MOE_EXPLAIN_TEXT, text.data(), size, nullptr));
    for (const auto stage : {MOE_STAGE_ROUTE, MOE_STAGE_DISPATCH, MOE_STAGE_EXPERTS,
                             MOE_STAGE_COMBINE, MOE_STAGE_FINISH}) {
        const char* name = nullptr;
        ASSERT_MOE_OK(moe_plan_kernel(plan.get(), stage, 1, &name));
        EXPECT_NE(text.find(name), std::string::npos) << name;
    }
    EXPECT_MOE_ERROR(
        moe_plan_explain(plan.get(), static_cast<moe_explain_form>(5), nullptr, 0, &size),
        MOE_ERROR_INVALID_ARGUMENT, "form is 5");
}

}  // namespace
}  // namespace moe_test
