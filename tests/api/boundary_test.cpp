// What holds for every entry point: status names, the last error, text out, and what handles are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <set>
#include <thread>

#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

TEST(Version, NumberTextAndAbiAgree) {
    EXPECT_EQ(moe_version(), MOE_VERSION_NUMBER);
    EXPECT_EQ(moe_abi_version(), MOE_ABI_VERSION);
    const std::string text = std::to_string(MOE_VERSION_MAJOR) + "." +
                             std::to_string(MOE_VERSION_MINOR) + "." +
                             std::to_string(MOE_VERSION_PATCH);
    EXPECT_EQ(moe_version_string(), text);
    EXPECT_EQ(std::string(moe_build_info()).find("version=" + text + "\n"), 0u);
    for (const char* key : {"compiler=", "backends=", "isa="})
        EXPECT_NE(std::string(moe_build_info()).find(key), std::string::npos) << key;
}

TEST(StatusName, IsTotal) {
    std::set<std::string> names;
    for (moe_status status = MOE_OK; status >= MOE_ERROR_INTERNAL; --status) {
        const std::string name = moe_status_name(status);
        EXPECT_NE(name, "MOE_ERROR_UNKNOWN") << status;
        EXPECT_TRUE(names.insert(name).second) << name;
    }
    EXPECT_EQ(*names.begin(), "MOE_ERROR_ABI");
    for (moe_status status : {1, MOE_ERROR_INTERNAL - 1, INT32_MIN, INT32_MAX})
        EXPECT_STREQ(moe_status_name(status), "MOE_ERROR_UNKNOWN");
    EXPECT_STREQ(moe_status_name(MOE_ERROR_BUSY), "MOE_ERROR_BUSY");
}

void make_an_error() {
    EXPECT_MOE_ERROR(moe_layer_validate(nullptr), MOE_ERROR_INVALID_ARGUMENT, "moe_layer_desc");
}

void make_a_success() {
    auto format = sized<moe_format>();
    EXPECT_MOE_OK(moe_format_by_name("f32", &format));
}

TEST(LastError, IsClearedBySuccess) {
    make_an_error();
    EXPECT_STRNE(moe_last_error(), "");
    make_a_success();
    EXPECT_STREQ(moe_last_error(), "");
}

// A callback may call the library, and such a call may fail.
TEST(LastError, OfACallbackDoesNotOutliveACallThatSucceeds) {
    const LayerCase layer(plain_layer(32, 16, 4, 2));
    const Plan plan = make_plan(nullptr, layer.plan_desc(4));
    auto desc = layer.tensors.weights_desc();
    desc.progress = [](uint64_t, uint64_t, void*) -> int32_t {
        make_an_error();
        return 0;
    };
    moe_weights* weights = nullptr;
    EXPECT_MOE_OK(moe_weights_load(plan.get(), &desc, &weights));
    EXPECT_STREQ(moe_last_error(), "");
    moe_weights_destroy(weights);
    desc.progress = [](uint64_t, uint64_t, void*) -> int32_t {
        make_a_success();
        return 1;
    };
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_CANCELLED,
                     "cancelled");
}

TEST(LastError, SurvivesCallsWithoutStatus) {
    make_an_error();
    const std::string before = moe_last_error();
    moe_version();
    moe_status_name(MOE_OK);
    moe_format_name_at(0);
    moe_plan_destroy(nullptr);
    EXPECT_EQ(moe_last_error(), before);
}

TEST(LastError, BelongsToTheThread) {
    make_an_error();
    const std::string before = moe_last_error();
    std::thread other([] {
        EXPECT_STREQ(moe_last_error(), "");
        auto format = sized<moe_format>();
        EXPECT_MOE_ERROR(moe_format_by_name("f99", &format), MOE_ERROR_NOT_FOUND, "f99");
    });
    other.join();
    EXPECT_EQ(moe_last_error(), before);
}

// The "Text out" rule of a function, with the text it must give; `call` takes buffer, capacity and
// size.
template <class Call>
void check_text_out(Call call, const std::string& text) {
    uint64_t size = 0;
    EXPECT_EQ(call(nullptr, 0, &size), MOE_OK);
    ASSERT_EQ(size, text.size() + 1);
    std::vector<char> buffer(size + 8, '#');
    EXPECT_EQ(call(buffer.data(), size, nullptr), MOE_OK);
    EXPECT_EQ(std::string(buffer.data()), text);
    EXPECT_EQ(buffer[size], '#') << "wrote past the end";
    std::fill(buffer.begin(), buffer.end(), '#');
    uint64_t needed = 0;
    EXPECT_EQ(call(buffer.data(), size - 1, &needed), MOE_ERROR_BUFFER_TOO_SMALL);
    EXPECT_EQ(needed, size);
    EXPECT_EQ(std::count(buffer.begin(), buffer.end(), '#'), static_cast<long>(buffer.size()))
        << "a buffer that is too small gets nothing";
    EXPECT_EQ(call(buffer.data(), 0, &needed), MOE_ERROR_BUFFER_TOO_SMALL);
    EXPECT_EQ(call(nullptr, 0, nullptr), MOE_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(call(nullptr, size, &needed), MOE_ERROR_INVALID_ARGUMENT);
}

TEST(TextOut, LastErrorCopy) {
    make_an_error();
    const std::string text = moe_last_error();
    check_text_out(moe_last_error_copy, text);
    EXPECT_EQ(moe_last_error(), text) << "copying does not change it";
    make_a_success();
    check_text_out(moe_last_error_copy, "");
}

TEST(TextOut, PlanExplain) {
    const LayerCase layer(plain_layer(32, 16, 4, 2));
    const Plan plan = make_plan(nullptr, layer.plan_desc(4));
    for (const auto form : {MOE_EXPLAIN_TEXT, MOE_EXPLAIN_JSON}) {
        auto call = [&](char* buffer, uint64_t capacity, uint64_t* size) {
            return moe_plan_explain(plan.get(), form, buffer, capacity, size);
        };
        uint64_t size = 0;
        ASSERT_MOE_OK(call(nullptr, 0, &size));
        std::string text(size, '\0');
        ASSERT_MOE_OK(call(text.data(), size, &size));
        text.pop_back();
        check_text_out(call, text);
    }
}

// ---- handles

struct Handles {
    Handles()
        : layer(plain_layer(32, 16, 4, 2)),
          runtime(make_runtime(1)),
          run(layer, layer.plan_desc(4), runtime.get()),
          x(layer.x(2)),
          out(64) {}
    LayerCase layer;
    Runtime runtime;
    LayerRun run;
    Floats x, out;
};

// Every call that takes a plan, weights and workspace, with these three handles.
void call_all(const moe_plan* plan, moe_weights* weights, moe_workspace* workspace, Handles& h,
              const char* name) {
    auto add = [&](const char* call, moe_status status) {
        EXPECT_EQ(status, MOE_ERROR_INVALID_ARGUMENT) << call;
        EXPECT_NE(std::string(moe_last_error()).find(name), std::string::npos)
            << call << ": " << moe_last_error();
    };
    const auto forward = forward_args(2, h.x.data(), h.out.data());
    add("forward", moe_forward(plan, weights, workspace, &forward));
    add("spmd", moe_forward_spmd(plan, weights, workspace, &forward, 0, 1));
    const auto route = sized<moe_route_args>();
    add("route", moe_route(plan, weights, workspace, &route));
    const auto experts = sized<moe_experts_args>();
    add("experts", moe_experts(plan, weights, workspace, &experts));
    const auto finish = sized<moe_finish_args>();
    add("finish", moe_finish(plan, weights, workspace, &finish));
}

void call_plan_queries(const moe_plan* plan, Handles& h) {
    uint8_t id[16];
    moe_device_kind kind;
    int32_t index;
    const char* text;
    auto need = sized<moe_workspace_need>();
    auto candidate = sized<moe_candidate>();
    uint64_t size;
    moe_weights* weights = nullptr;
    const auto desc = h.layer.tensors.weights_desc();
    const auto dispatch = sized<moe_dispatch_args>();
    const auto combine = sized<moe_combine_args>();
    auto workspace = sized<moe_workspace_desc>();
    workspace.plan = plan;
    moe_workspace* made = nullptr;
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    EXPECT_MOE_ERROR(moe_plan_layout_id(plan, id), bad, "plan");
    EXPECT_MOE_ERROR(moe_plan_device(plan, &kind, &index, &text), bad, "plan");
    EXPECT_MOE_ERROR(moe_plan_workspace_size(plan, 1, &need), bad, "plan");
    EXPECT_MOE_ERROR(moe_plan_kernel(plan, MOE_STAGE_ROUTE, 1, &text), bad, "plan");
    EXPECT_MOE_ERROR(moe_candidates(plan, 0, &candidate), bad, "plan");
    EXPECT_MOE_ERROR(moe_plan_explain(plan, MOE_EXPLAIN_TEXT, nullptr, 0, &size), bad, "plan");
    EXPECT_MOE_ERROR(moe_weights_size(plan, &desc, &size), bad, "plan");
    EXPECT_MOE_ERROR(moe_weights_load(plan, &desc, &weights), bad, "plan");
    EXPECT_MOE_ERROR(moe_dispatch(plan, h.run.workspace.get(), &dispatch), bad, "plan");
    EXPECT_MOE_ERROR(moe_combine(plan, h.run.workspace.get(), &combine), bad, "plan");
    if (plan) EXPECT_MOE_ERROR(moe_workspace_create(nullptr, &workspace, &made), bad, "plan");
}

TEST(Handles, NullIsNamed) {
    Handles h;
    const LayerRun& r = h.run;
    call_all(nullptr, r.weights.get(), r.workspace.get(), h, "plan is NULL");
    call_all(r.plan.get(), nullptr, r.workspace.get(), h, "weights is NULL");
    call_all(r.plan.get(), r.weights.get(), nullptr, h, "workspace is NULL");
    call_plan_queries(nullptr, h);
    auto report = sized<moe_memory_report>();
    auto faults = sized<moe_workspace_faults>();
    auto info = sized<moe_checkpoint_info>();
    uint8_t id[16];
    int32_t layer;
    moe_weights* weights = nullptr;
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    EXPECT_MOE_ERROR(moe_weights_memory(nullptr, &report), bad, "weights");
    EXPECT_MOE_ERROR(moe_weights_layout_id(nullptr, id), bad, "weights");
    EXPECT_MOE_ERROR(moe_weights_update(nullptr, nullptr, nullptr), bad, "weights");
    EXPECT_MOE_ERROR(moe_workspace_status(nullptr, &faults), bad, "workspace");
    EXPECT_MOE_ERROR(moe_checkpoint_get_info(nullptr, &info), bad, "checkpoint");
    EXPECT_MOE_ERROR(moe_checkpoint_layer_at(nullptr, 0, &layer), bad, "checkpoint");
    EXPECT_MOE_ERROR(moe_weights_load_checkpoint(r.plan.get(), nullptr, 0, nullptr, &weights), bad,
                     "checkpoint");
}

template <class To, class From>
To* as(From* handle) {
    return reinterpret_cast<To*>(const_cast<std::remove_const_t<From>*>(handle));
}

TEST(Handles, OfAnotherKindAreRefused) {
    Handles h;
    const LayerRun& r = h.run;
    call_all(as<moe_plan>(r.weights.get()), r.weights.get(), r.workspace.get(), h,
             "plan is not a living plan");
    call_all(r.plan.get(), as<moe_weights>(r.plan.get()), r.workspace.get(), h,
             "weights is not a living weights");
    call_all(r.plan.get(), r.weights.get(), as<moe_workspace>(h.runtime.get()), h,
             "workspace is not a living workspace");
    call_plan_queries(as<const moe_plan>(h.runtime.get()), h);
    moe_plan* plan = nullptr;
    const auto desc = h.layer.plan_desc(1);
    EXPECT_MOE_ERROR(moe_plan_create(as<moe_runtime>(r.weights.get()), &desc, &plan),
                     MOE_ERROR_INVALID_ARGUMENT, "runtime is not a living runtime");
    EXPECT_EQ(plan, nullptr);
    // Destroying through the wrong type does nothing.
    moe_weights_destroy(as<moe_weights>(r.plan.get()));
    moe_plan_destroy(as<moe_plan>(r.workspace.get()));
    EXPECT_LE(error_of(forward(r, h.x), h.layer.reference(h.x), 32), f32_tolerance);
}

// Memory that stays readable after release, so that a stale handle can be looked at.
void* MOE_CALL keep_allocate(uint64_t bytes, uint64_t alignment, moe_space, void*, void* kept) {
    void* memory = ::operator new(bytes, std::align_val_t(alignment));
    static_cast<std::vector<std::pair<void*, uint64_t>>*>(kept)->push_back({memory, alignment});
    return memory;
}
void MOE_CALL keep_release(void*, uint64_t, uint64_t, moe_space, void*, void*) {}

TEST(Handles, DestroyedOnesAreNotLiving) {
    std::vector<std::pair<void*, uint64_t>> kept;
    auto allocator = sized<moe_allocator>();
    allocator.allocate = keep_allocate;
    allocator.release = keep_release;
    allocator.user_data = &kept;
    auto desc = sized<moe_runtime_desc>();
    desc.allocator = &allocator;
    desc.n_threads = 1;
    Handles h;
    Runtime runtime = make_runtime(desc);
    {
        LayerRun stale(h.layer, h.layer.plan_desc(4), runtime.get());
        moe_plan* plan = stale.plan.get();
        moe_weights* weights = stale.weights.get();
        moe_workspace* workspace = stale.workspace.get();
        stale.plan.reset();
        stale.weights.reset();
        stale.workspace.reset();
        const LayerRun& r = h.run;
        call_all(plan, r.weights.get(), r.workspace.get(), h, "not a living plan");
        call_all(r.plan.get(), weights, r.workspace.get(), h, "not a living weights");
        call_all(r.plan.get(), r.weights.get(), workspace, h, "not a living workspace");
        call_plan_queries(plan, h);
        moe_plan_destroy(plan);
        moe_weights_destroy(weights);
        moe_workspace_destroy(workspace);
    }
    moe_runtime* gone = runtime.get();
    runtime.reset();
    moe_plan* plan = nullptr;
    const auto plan_desc = h.layer.plan_desc(1);
    EXPECT_MOE_ERROR(moe_plan_create(gone, &plan_desc, &plan), MOE_ERROR_INVALID_ARGUMENT,
                     "runtime is not a living runtime");
    for (const auto& [memory, alignment] : kept)
        ::operator delete(memory, std::align_val_t(alignment));
}

TEST(Handles, DestroyingNullDoesNothing) {
    moe_runtime_destroy(nullptr);
    moe_plan_destroy(nullptr);
    moe_weights_destroy(nullptr);
    moe_workspace_destroy(nullptr);
    moe_checkpoint_destroy(nullptr);
}

TEST(Outputs, NullIsNamedAndNothingIsWritten) {
    Handles h;
    const moe_plan* plan = h.run.plan.get();
    const auto desc = h.layer.plan_desc(1);
    const auto weights_desc = h.layer.tensors.weights_desc();
    auto workspace_desc = sized<moe_workspace_desc>();
    workspace_desc.plan = plan;
    auto format = sized<moe_format>();
    format.type = MOE_TYPE_F32;
    const auto bad = MOE_ERROR_INVALID_ARGUMENT;
    EXPECT_MOE_ERROR(moe_runtime_create(nullptr, nullptr), bad, "out_runtime");
    EXPECT_MOE_ERROR(moe_plan_create(nullptr, &desc, nullptr), bad, "out_plan");
    EXPECT_MOE_ERROR(moe_plan_key(nullptr, &desc, nullptr), bad, "out_key is NULL");
    EXPECT_MOE_ERROR(moe_plan_layout_id(plan, nullptr), bad, "out_id is NULL");
    EXPECT_MOE_ERROR(moe_weights_load(plan, &weights_desc, nullptr), bad, "out_weights");
    EXPECT_MOE_ERROR(moe_weights_size(plan, &weights_desc, nullptr), bad, "out_bytes");
    EXPECT_MOE_ERROR(moe_workspace_create(nullptr, &workspace_desc, nullptr), bad, "out_workspace");
    EXPECT_MOE_ERROR(moe_device_count(MOE_DEVICE_CPU, nullptr), bad, "out_count");
    EXPECT_MOE_ERROR(moe_format_by_name("f32", nullptr), bad, "out_format");
    auto kind = MOE_DEVICE_CUDA;
    const char* reason = "untouched";
    EXPECT_MOE_ERROR(moe_plan_device(plan, &kind, nullptr, &reason), bad, "out_index");
    EXPECT_EQ(kind, MOE_DEVICE_CUDA) << "written by a call that failed";
    EXPECT_STREQ(reason, "untouched");
    uint64_t bytes = 99;
    EXPECT_MOE_ERROR(moe_format_size(&format, 1, 1, &bytes, nullptr), bad, "out_scale_bytes");
    EXPECT_EQ(bytes, 99u);
    auto* untouched = reinterpret_cast<moe_plan*>(&bytes);
    auto broken = desc;
    broken.max_tokens = -1;
    EXPECT_MOE_ERROR(moe_plan_create(nullptr, &broken, &untouched), bad, "max_tokens");
    EXPECT_EQ(untouched, reinterpret_cast<moe_plan*>(&bytes));
    h.out.assign(h.out.size(), 7);
    auto args = forward_args(2, h.x.data(), h.out.data());
    args.x_row_stride = 5;
    EXPECT_MOE_ERROR(h.run.forward(args), bad, "x_row_stride is 5");
    EXPECT_EQ(h.out, Floats(h.out.size(), 7));
}

}  // namespace
}  // namespace moe_test
