// Weights: what is refused and by what name, who owns the bytes, progress, update, and what they go
// with.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr auto bad = MOE_ERROR_INVALID_ARGUMENT;

struct WeightsCase {
    explicit WeightsCase(clients::Form form = clients::Form::stacked, const char* format = "f32")
        : layer(make(), format, 1, form),
          runtime(make_runtime(1)),
          plan(make_plan(runtime.get(), layer.plan_desc(8))),
          workspace(make_workspace(runtime.get(), plan.get())),
          list(layer.tensors.weights_desc()) {}
    static moe_layer_desc make() {
        auto d = plain_layer(32, 16, 4, 2);
        d.has_gate_bias = d.has_up_bias = d.has_down_bias = 1;
        return d;
    }
    moe_status load(const moe_weights_desc& desc) {
        moe_weights* weights = nullptr;
        const moe_status status = moe_weights_load(plan.get(), &desc, &weights);
        EXPECT_EQ(weights == nullptr, status != MOE_OK);
        moe_weights_destroy(weights);
        return status;
    }
    moe_status load() { return load(list.desc()); }
    Floats forward(const moe_weights* weights, const Floats& x) const {
        Floats out(x.size());
        const auto args = forward_args(static_cast<int64_t>(x.size()) / 32, x.data(), out.data());
        must(moe_forward(plan.get(), weights, workspace.get(), &args), "moe_forward");
        return out;
    }
    uint64_t size() const {
        const auto desc = layer.tensors.weights_desc();
        uint64_t bytes = 0;
        must(moe_weights_size(plan.get(), &desc, &bytes), "moe_weights_size");
        return bytes;
    }

    LayerCase layer;
    Runtime runtime;
    Plan plan;
    Workspace workspace;
    TensorList list;
};

moe_memory_report report_of(const Weights& weights) {
    auto report = sized<moe_memory_report>();
    must(moe_weights_memory(weights.get(), &report), "moe_weights_memory");
    return report;
}

// ---- what is refused

TEST(WeightsLoad, MissingTensorsAreNamed) {
    for (const auto& [role, name] : std::vector<std::pair<moe_role, const char*>>{
             {MOE_ROLE_ROUTER, "router"}, {MOE_ROLE_UP, "up"}, {MOE_ROLE_DOWN_BIAS, "down_bias"}}) {
        WeightsCase c;
        c.list.remove(role);
        EXPECT_MOE_ERROR(c.load(), MOE_ERROR_NOT_FOUND, name);
    }
    WeightsCase c(clients::Form::tensor_per_expert);
    c.list.remove(MOE_ROLE_GATE, 2);
    EXPECT_MOE_ERROR(c.load(), MOE_ERROR_NOT_FOUND, "gate of expert 2");
    EXPECT_MOE_ERROR(c.load(sized<moe_weights_desc>()), MOE_ERROR_NOT_FOUND, "router");
}

TEST(WeightsLoad, DoubleTensorsAreNamed) {
    WeightsCase c(clients::Form::tensor_per_expert);
    c.list.tensors.push_back(c.list.find(MOE_ROLE_DOWN, 3));
    EXPECT_MOE_ERROR(c.load(), bad, "down of expert 3 is given twice");
    WeightsCase stacked;
    stacked.list.tensors.push_back(stacked.list.find(MOE_ROLE_ROUTER));
    EXPECT_MOE_ERROR(stacked.load(), bad, "router is given twice");
}

using TensorChange = std::function<void(moe_tensor&)>;

// Loading with one tensor of role UP changed.
moe_status load_changed(WeightsCase& c, const TensorChange& change) {
    moe_tensor& up = c.list.find(MOE_ROLE_UP);
    const moe_tensor before = up;
    change(up);
    const moe_status status = c.load();
    up = before;
    return status;
}

TEST(WeightsLoad, MisshapenTensorsAreNamed) {
    WeightsCase c;
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.rows = 17; }), bad, "up: shape is [17, 32]");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.columns = 31; }), bad,
                     "up: shape is [16, 31]");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.n_experts = 3; }), bad, "n_experts is 3");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.expert = 4; }), bad, "expert is 4");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.expert = -2; }), bad, "expert is -2");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.data = nullptr; }), bad,
                     "up of expert 0: data");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.format = nullptr; }), bad, "format is NULL");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { --t.data_bytes; }), bad, "up of expert 3: data");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.data_bytes = 0; }), bad,
                     "up of expert 0: data");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.row_stride = 64; }), bad, "row_stride is 64");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.row_stride = 132; }), bad, "data has");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.row_stride = INT64_MAX; }), bad, "up");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.row_stride = -128; }), bad,
                     "row_stride is -128");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.expert_stride = -1; }), bad, "stride is -1");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.expert_stride = INT64_MAX; }), bad, "up");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.space = MOE_SPACE_DEVICE; }), bad,
                     "space is 2");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.role = static_cast<moe_role>(99); }), bad,
                     "99");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.role = MOE_ROLE_GATE_UP; }), bad, "gate_up");
    EXPECT_MOE_ERROR(load_changed(c, [](auto& t) { t.role = MOE_ROLE_SHARED_UP; }), bad,
                     "shared_up");
    EXPECT_MOE_OK(c.load());
}

// Half of such a tensor would be for nothing.
TEST(WeightsLoad, FusedTensorsNeedBothHalves) {
    const auto refuse = [](const moe_layer_desc& desc, moe_role role, moe_role up,
                           const char* text) {
        const LayerCase layer(desc);
        const Plan plan = make_plan(nullptr, layer.plan_desc(4));
        TensorList list(layer.tensors.weights_desc());
        moe_tensor& fused = list.find(up);
        const bool is_bias = role == MOE_ROLE_GATE_UP_BIAS;
        (is_bias ? fused.columns : fused.rows) *= 2;
        const Floats values(static_cast<size_t>(4 * fused.rows * fused.columns), 0.5f);
        fused.role = role;
        fused.gate_up_order = MOE_GATE_UP_GATE_FIRST;
        fused.data = values.data();
        fused.data_bytes = values.size() * sizeof(float);
        moe_weights* weights = nullptr;
        const auto weights_desc = list.desc();
        EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &weights_desc, &weights), bad, text);
        EXPECT_EQ(weights, nullptr);
        moe_weights_destroy(weights);
    };
    auto desc = plain_layer(32, 16, 4, 2);
    desc.has_up_bias = 1;
    refuse(desc, MOE_ROLE_GATE_UP_BIAS, MOE_ROLE_UP_BIAS,
           "gate_up_bias: the layer has no gate_bias");
    desc.is_gated = 0;
    desc.activation = MOE_ACTIVATION_RELU2;
    refuse(desc, MOE_ROLE_GATE_UP, MOE_ROLE_UP, "gate_up: the layer has no gate");
    desc.shared_intermediate = 16;
    desc.shared_activation = MOE_ACTIVATION_RELU2;
    refuse(desc, MOE_ROLE_SHARED_GATE_UP, MOE_ROLE_SHARED_UP,
           "shared_gate_up: the layer has no shared_gate");
    desc = plain_layer(32, 16, 4, 2);
    desc.has_gate_bias = 1;
    refuse(desc, MOE_ROLE_GATE_UP_BIAS, MOE_ROLE_GATE_BIAS,
           "gate_up_bias: the layer has no up_bias");
}

TEST(WeightsLoad, AnotherFormatIsALayoutMismatch) {
    WeightsCase c, other(clients::Form::stacked, "bf16");
    c.list.find(MOE_ROLE_UP) = other.list.find(MOE_ROLE_UP);
    EXPECT_MOE_ERROR(c.load(), MOE_ERROR_LAYOUT_MISMATCH, "up of expert 0 is bf16");
}

TEST(WeightsLoad, NullInAListIsRefused) {
    WeightsCase c;
    auto desc = c.list.desc();
    c.list.pointers[1] = nullptr;
    EXPECT_EQ(c.load(desc), bad);
    desc.tensors = nullptr;
    EXPECT_MOE_ERROR(c.load(desc), bad, "tensors is NULL");
    WeightsCase lists(clients::Form::pointer_list);
    auto& up = lists.list.find(MOE_ROLE_UP);
    std::vector<const void*> pointers(up.data_per_expert, up.data_per_expert + 4);
    pointers[2] = nullptr;
    up.data_per_expert = pointers.data();
    EXPECT_MOE_ERROR(lists.load(), bad, "up of expert 2: data is NULL");
}

// ---- who owns the bytes

TEST(Ownership, EveryFormOfTheTensorsIsTheSame) {
    Floats first;
    for (const auto form :
         {clients::Form::stacked, clients::Form::tensor_per_expert, clients::Form::pointer_list})
        for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
            WeightsCase c(form);
            std::reverse(c.list.tensors.begin(), c.list.tensors.end());
            auto desc = c.list.desc();
            desc.ownership = ownership;
            const Floats out = c.forward(load_weights(c.plan.get(), desc).get(), c.layer.x(8));
            if (first.empty()) first = out;
            EXPECT_TRUE(same_bits(out, first));
        }
}

// Writes over the values of a tensor that the caller owns.
void scribble(const moe_tensor& tensor) {
    std::memset(const_cast<void*>(tensor.data), 0x3F, tensor.data_bytes);
}

TEST(Ownership, CopyCopiesAndBorrowBorrows) {
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        WeightsCase c;
        auto desc = c.list.desc();
        desc.ownership = ownership;
        const Weights weights = load_weights(c.plan.get(), desc);
        const Floats x = c.layer.x(8);
        const Floats before = c.forward(weights.get(), x);
        for (const auto role : {MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS, MOE_ROLE_DOWN_BIAS})
            scribble(c.list.find(role));
        EXPECT_TRUE(same_bits(c.forward(weights.get(), x), before)) << "vectors are copied";
        scribble(c.list.find(MOE_ROLE_DOWN));
        EXPECT_EQ(same_bits(c.forward(weights.get(), x), before), ownership == MOE_OWN_COPY);
        scribble(c.list.find(MOE_ROLE_ROUTER));
        scribble(c.list.find(MOE_ROLE_UP));
        scribble(c.list.find(MOE_ROLE_GATE));
        EXPECT_EQ(same_bits(c.forward(weights.get(), x), before), ownership == MOE_OWN_COPY);
    }
}

TEST(Ownership, ReportSaysWhereTheBytesAre) {
    WeightsCase c;
    // Router, gate, up and down; the biases are vectors.
    const uint64_t matrices = 4 * (4 * 32 + 3 * 4 * 16 * 32), vectors = 4 * 4 * (16 + 16 + 32);
    EXPECT_EQ(c.size(), matrices);
    auto desc = c.list.desc();
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        desc.ownership = ownership;
        const auto report = report_of(load_weights(c.plan.get(), desc));
        const bool copies = ownership == MOE_OWN_COPY;
        EXPECT_EQ(report.host_bytes, vectors + (copies ? matrices : 0));
        EXPECT_EQ(report.borrowed_bytes, copies ? 0 : matrices);
        EXPECT_EQ(report.n_local_experts, 4u);
        EXPECT_EQ(report.role_bytes[MOE_ROLE_UP], 4u * 4 * 16 * 32);
        EXPECT_EQ(report.role_bytes[MOE_ROLE_DOWN_BIAS], 4u * 4 * 32);
        EXPECT_EQ(report.device_bytes + report.pinned_bytes, 0u);
        EXPECT_GT(report.bookkeeping_bytes, 0u);
    }
}

struct Aligned {
    explicit Aligned(uint64_t bytes) : memory(bytes + 128, std::byte{0x77}) {
        void* begin = memory.data();
        size_t space = memory.size();
        data = static_cast<std::byte*>(std::align(64, bytes, begin, space));
    }
    Bytes memory;
    std::byte* data;
};

TEST(Ownership, CallersMemoryIsUsedAndNoMore) {
    WeightsCase c;
    const uint64_t bytes = c.size();
    const Aligned memory(bytes);
    auto desc = c.list.desc();
    desc.ownership = MOE_OWN_CALLER;
    desc.memory = memory.data;
    desc.memory_bytes = bytes;
    const Weights weights = load_weights(c.plan.get(), desc);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(memory.data[bytes + i], std::byte{0x77}) << "canary";
    const Floats x = c.layer.x(8);
    const Floats before = c.forward(weights.get(), x);
    EXPECT_LE(error_of(before, c.layer.reference(x), 32), f32_tolerance);
    for (const auto role : {MOE_ROLE_ROUTER, MOE_ROLE_UP, MOE_ROLE_DOWN, MOE_ROLE_GATE})
        scribble(c.list.find(role));
    EXPECT_TRUE(same_bits(c.forward(weights.get(), x), before));
    std::memset(memory.data, 0, bytes);
    EXPECT_FALSE(same_bits(c.forward(weights.get(), x), before)) << "the weights are elsewhere";
    EXPECT_EQ(report_of(weights).host_bytes, bytes + 4 * 4 * (16 + 16 + 32));
}

TEST(Ownership, CallersMemoryMustFit) {
    WeightsCase c;
    const uint64_t bytes = c.size();
    const Aligned memory(bytes + 64);
    auto desc = c.list.desc();
    desc.ownership = MOE_OWN_CALLER;
    desc.memory_bytes = bytes;
    EXPECT_MOE_ERROR(c.load(desc), bad, "memory is NULL");
    desc.memory = memory.data + 32;
    EXPECT_MOE_ERROR(c.load(desc), bad, "aligned");
    desc.memory = memory.data;
    desc.memory_bytes = bytes - 1;
    EXPECT_MOE_ERROR(c.load(desc), bad, "memory_bytes is " + std::to_string(bytes - 1));
    EXPECT_NE(std::string(moe_last_error()).find(std::to_string(bytes)), std::string::npos);
    desc.memory_space = MOE_SPACE_DEVICE;
    EXPECT_MOE_ERROR(c.load(desc), bad, "memory_space is 2");
    desc.ownership = static_cast<moe_ownership>(3);
    desc.memory_space = MOE_SPACE_HOST;
    EXPECT_MOE_ERROR(c.load(desc), bad, "ownership is 3");
}

// ---- progress

struct Progress {
    std::vector<uint64_t> done;
    uint64_t total = 0;
    size_t cancel_at = SIZE_MAX;

    static int32_t MOE_CALL tell(uint64_t done, uint64_t total, void* self) {
        auto& progress = *static_cast<Progress*>(self);
        progress.done.push_back(done);
        EXPECT_TRUE(progress.total == 0 || progress.total == total);
        progress.total = total;
        return progress.done.size() == progress.cancel_at;
    }
};

TEST(ProgressOfLoad, GrowsToTheTotalAndCancels) {
    WeightsCase c(clients::Form::tensor_per_expert);
    TestAllocator allocator;
    const Runtime runtime = allocator.runtime(1);
    const Plan plan = make_plan(runtime.get(), c.layer.plan_desc(8));
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        auto desc = c.list.desc();
        desc.ownership = ownership;
        desc.progress = Progress::tell;
        Progress whole;
        desc.progress_user_data = &whole;
        load_weights(plan.get(), desc);
        ASSERT_FALSE(whole.done.empty());
        EXPECT_TRUE(std::is_sorted(whole.done.begin(), whole.done.end()));
        EXPECT_EQ(whole.done.back(), whole.total);
        EXPECT_EQ(whole.total, c.size());
        const uint64_t before = allocator.live_bytes();
        for (size_t n = 1; n <= whole.done.size(); ++n) {
            Progress cancelled;
            cancelled.cancel_at = n;
            desc.progress_user_data = &cancelled;
            moe_weights* weights = nullptr;
            EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_CANCELLED,
                             "cancelled");
            EXPECT_EQ(weights, nullptr);
            EXPECT_EQ(cancelled.done.size(), n) << "told after it was cancelled";
            EXPECT_EQ(allocator.live_bytes(), before);
        }
    }
}

// ---- update

// Of 8 tokens, those that have an expert among theirs.
std::vector<bool> tokens_of(const WeightsCase& c, const Floats& x, int32_t expert) {
    const auto routing = clients::reference_route(c.layer.layer, x, 8);
    std::vector<bool> has(8);
    for (size_t slot = 0; slot < routing.ids.size(); ++slot)
        if (routing.ids[slot] == expert) has[slot / 2] = true;
    return has;
}

TEST(Update, ChangesOneExpertAndNoOther) {
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW, MOE_OWN_CALLER})
        for (const auto role : {MOE_ROLE_DOWN, MOE_ROLE_UP_BIAS}) {
            WeightsCase c(clients::Form::tensor_per_expert);
            const Aligned memory(c.size());
            auto desc = c.list.desc();
            desc.ownership = ownership;
            if (ownership == MOE_OWN_CALLER) {
                desc.memory = memory.data;
                desc.memory_bytes = c.size();
            }
            const Weights weights = load_weights(c.plan.get(), desc);
            const Floats x = c.layer.x(8);
            const Floats before = c.forward(weights.get(), x);
            moe_tensor tensor = c.list.find(role, 1);
            Floats values(tensor.data_bytes / 4, 0.25f);
            tensor.data = values.data();
            ASSERT_MOE_OK(moe_weights_update(weights.get(), &tensor, nullptr));
            const Floats after = c.forward(weights.get(), x);
            const auto changed = tokens_of(c, x, 1);
            EXPECT_EQ(std::count(changed.begin(), changed.end(), true) % 8 != 0, true);
            for (size_t t = 0; t < 8; ++t)
                EXPECT_EQ(std::equal(&before[t * 32], &before[t * 32] + 32, &after[t * 32]),
                          !changed[t])
                    << t;
            std::copy_n(values.data(), values.size(),
                        const_cast<float*>(c.layer.layer.expert(role, 1)));
            EXPECT_LE(error_of(after, c.layer.reference(x), 32), f32_tolerance);
            std::fill(values.begin(), values.end(), 7.0f);
            const bool borrowed = ownership == MOE_OWN_BORROW && role == MOE_ROLE_DOWN;
            EXPECT_EQ(same_bits(c.forward(weights.get(), x), after), !borrowed);
        }
}

TEST(Update, RefusalsNameTheTensorAndChangeNothing) {
    WeightsCase c(clients::Form::tensor_per_expert);
    const Weights weights = load_weights(c.plan.get(), c.list.desc());
    const Floats x = c.layer.x(8);
    const Floats before = c.forward(weights.get(), x);
    auto update = [&](const TensorChange& change) {
        moe_tensor tensor = c.list.find(MOE_ROLE_DOWN, 1);
        change(tensor);
        return moe_weights_update(weights.get(), &tensor, nullptr);
    };
    EXPECT_MOE_ERROR(update([](auto& t) { t.expert = 4; }), bad, "expert is 4");
    EXPECT_MOE_ERROR(update([](auto& t) { t.rows = 8; }), bad, "down: shape");
    EXPECT_MOE_ERROR(update([](auto& t) { --t.data_bytes; }), bad, "down of expert 1");
    const moe_format bf16 = clients::format_of_name("bf16");
    EXPECT_MOE_ERROR(update([&](auto& t) { t.format = &bf16; }), MOE_ERROR_LAYOUT_MISMATCH, "bf16");
    EXPECT_EQ(moe_weights_update(weights.get(), nullptr, nullptr), bad);
    EXPECT_TRUE(same_bits(c.forward(weights.get(), x), before));
}

// The last expert of a stack is bad: the ones before it stay as they are.
TEST(Update, RefusalsOfAStackChangeNothing) {
    for (const auto form : {clients::Form::stacked, clients::Form::pointer_list})
        for (const auto role : {MOE_ROLE_DOWN, MOE_ROLE_UP_BIAS}) {
            WeightsCase c(form);
            const Weights weights = load_weights(c.plan.get(), c.list.desc());
            const Floats x = c.layer.x(8);
            const Floats before = c.forward(weights.get(), x);
            const Floats values(4 * 32 * 16, 0.25f);
            const void* const pointers[4] = {values.data(), values.data(), values.data(), nullptr};
            moe_tensor stack = c.list.find(role);
            if (form == clients::Form::stacked) {
                stack.data = values.data();
                --stack.data_bytes;
            } else {
                stack.data_per_expert = pointers;
            }
            EXPECT_MOE_ERROR(moe_weights_update(weights.get(), &stack, nullptr), bad,
                             "of expert 3: data");
            EXPECT_TRUE(same_bits(c.forward(weights.get(), x), before)) << role;
            if (form == clients::Form::stacked) {
                ++stack.data_bytes;
                EXPECT_MOE_OK(moe_weights_update(weights.get(), &stack, nullptr));
                EXPECT_FALSE(same_bits(c.forward(weights.get(), x), before)) << role;
            }
        }
}

TEST(Update, OfWhatTheWeightsDoNotHoldIsNotFound) {
    WeightsCase c(clients::Form::tensor_per_expert), stacks;
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_count = 2;
    auto desc = c.layer.plan_desc(8);
    desc.partial = 1;
    desc.slice = &slice;
    desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
    const Plan plan = make_plan(nullptr, desc);
    const Weights weights = load_weights(plan.get(), c.list.desc());
    const auto update = [&](const moe_tensor& tensor) {
        return moe_weights_update(weights.get(), &tensor, nullptr);
    };
    EXPECT_MOE_OK(update(c.list.find(MOE_ROLE_DOWN, 1)));
    EXPECT_MOE_OK(update(stacks.list.find(MOE_ROLE_DOWN))) << "two of the stack are held";
    EXPECT_MOE_ERROR(update(c.list.find(MOE_ROLE_DOWN, 3)), MOE_ERROR_NOT_FOUND,
                     "tensor down of expert 3");
    EXPECT_MOE_ERROR(update(c.list.find(MOE_ROLE_ROUTER)), MOE_ERROR_NOT_FOUND, "tensor router");
}

// ---- what they go with

TEST(WeightsOfAnotherLayout, AreRefused) {
    WeightsCase c, other(clients::Form::stacked, "bf16");
    const Weights weights = load_weights(other.plan.get(), other.list.desc());
    Floats out(32);
    const Floats x = c.layer.x(1);
    const auto args = forward_args(1, x.data(), out.data());
    EXPECT_MOE_ERROR(moe_forward(c.plan.get(), weights.get(), c.workspace.get(), &args),
                     MOE_ERROR_LAYOUT_MISMATCH, "layout");
    uint8_t of_plan[16], of_weights[16];
    EXPECT_MOE_OK(moe_plan_layout_id(other.plan.get(), of_plan));
    EXPECT_MOE_OK(moe_weights_layout_id(weights.get(), of_weights));
    EXPECT_EQ(std::memcmp(of_plan, of_weights, 16), 0);
}

TEST(WeightsOfTheSameLayout, ServeAnyPlan) {
    WeightsCase c;
    auto desc = c.layer.plan_desc(100);
    desc.out_type = MOE_TYPE_BF16;
    const Plan other = make_plan(nullptr, desc);
    Weights weights = load_weights(other.get(), c.list.desc());
    const Floats x = c.layer.x(8);
    EXPECT_LE(error_of(c.forward(weights.get(), x), c.layer.reference(x), 32), f32_tolerance);
}

TEST(Destruction, AnyOrderIsLegal) {
    TestAllocator allocator;
    std::vector<int> order = {0, 1, 2, 3};
    do {
        Runtime runtime = allocator.runtime(2);
        const LayerCase layer(WeightsCase::make());
        LayerRun run(layer, layer.plan_desc(4), runtime.get());
        forward(run, layer.x(4));
        for (const int which : order) {
            if (which == 0) runtime.reset();
            if (which == 1) run.plan.reset();
            if (which == 2) run.weights.reset();
            if (which == 3) run.workspace.reset();
        }
        EXPECT_EQ(allocator.live_bytes(), 0u);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST(PackedFiles, AreNotForTheCpu) {
    WeightsCase c;
    const Weights weights = load_weights(c.plan.get(), c.list.desc());
    moe_weights* opened = nullptr;
    EXPECT_MOE_ERROR(moe_weights_save(weights.get(), "layer.moe"), MOE_ERROR_UNSUPPORTED,
                     "moe_weights_save");
    EXPECT_MOE_ERROR(moe_weights_open(c.plan.get(), "layer.moe", &opened), MOE_ERROR_UNSUPPORTED,
                     "moe_weights_open");
    EXPECT_EQ(opened, nullptr);
    EXPECT_MOE_ERROR(moe_weights_save(weights.get(), nullptr), bad, "path is NULL");
    EXPECT_MOE_ERROR(moe_weights_save(nullptr, "layer.moe"), bad, "weights is NULL");
    EXPECT_MOE_ERROR(moe_weights_open(c.plan.get(), "", &opened), bad, "path is empty");
    EXPECT_MOE_ERROR(moe_weights_open(c.plan.get(), "layer.moe", nullptr), bad, "out_weights");
}

}  // namespace
}  // namespace moe_test
