// A random layer with its tensors, and the plan, weights and workspace that run it: the starting
// point of the tests of plans, weights and forward. The weights, the tensors and the reference in
// double precision are those of the clients.
#pragma once

#include <cstring>
#include <functional>
#include <stdexcept>

#include "libmoe/base/half.hpp"
#include "support/layer_tensors.hpp"
#include "support/reference_layer.hpp"
#include "tests/support/api.hpp"

namespace moe_test {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;
using clients::plain_layer;

constexpr double f32_tolerance = 1e-5;

// For what a test stands on; what it tests is judged by EXPECT_MOE_OK.
inline void must(moe_status status, const char* what) {
    if (status != MOE_OK)
        throw std::runtime_error(std::string(what) + ": " + moe_status_name(status) + ": " +
                                 moe_last_error());
}

inline Runtime make_runtime(const moe_runtime_desc& desc) {
    moe_runtime* runtime = nullptr;
    must(moe_runtime_create(&desc, &runtime), "moe_runtime_create");
    return Runtime(runtime);
}

inline Runtime make_runtime(int32_t n_threads) {
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = n_threads;
    return make_runtime(desc);
}

inline Plan make_plan(moe_runtime* runtime, const moe_plan_desc& desc) {
    moe_plan* plan = nullptr;
    must(moe_plan_create(runtime, &desc, &plan), "moe_plan_create");
    return Plan(plan);
}

inline Weights load_weights(const moe_plan* plan, const moe_weights_desc& desc) {
    moe_weights* weights = nullptr;
    must(moe_weights_load(plan, &desc, &weights), "moe_weights_load");
    return Weights(weights);
}

inline Workspace make_workspace(moe_runtime* runtime, const moe_plan* plan) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    moe_workspace* workspace = nullptr;
    must(moe_workspace_create(runtime, &desc, &workspace), "moe_workspace_create");
    return Workspace(workspace);
}

inline moe_workspace_need need_of(const moe_plan* plan, int64_t n_tokens) {
    auto need = sized<moe_workspace_need>();
    must(moe_plan_workspace_size(plan, n_tokens, &need), "moe_plan_workspace_size");
    return need;
}

inline moe_workspace_faults faults_of(const Workspace& workspace) {
    auto faults = sized<moe_workspace_faults>();
    must(moe_workspace_status(workspace.get(), &faults), "moe_workspace_status");
    return faults;
}

// A caller's list of tensors, to be spoilt.
struct TensorList {
    explicit TensorList(const moe_weights_desc& from) {
        for (uint32_t i = 0; i < from.n_tensors; ++i) tensors.push_back(*from.tensors[i]);
    }
    moe_tensor& find(moe_role role, int32_t expert = MOE_ALL_EXPERTS) {
        for (auto& tensor : tensors)
            if (tensor.role == role && (tensor.expert == expert || expert == MOE_ALL_EXPERTS))
                return tensor;
        throw std::runtime_error("no such tensor");
    }
    void remove(moe_role role, int32_t expert = MOE_ALL_EXPERTS) {
        tensors.erase(tensors.begin() + (&find(role, expert) - tensors.data()));
    }
    // Valid until the list changes.
    moe_weights_desc desc() {
        pointers.clear();
        for (const auto& tensor : tensors) pointers.push_back(&tensor);
        auto desc = sized<moe_weights_desc>();
        desc.tensors = pointers.data();
        desc.n_tensors = static_cast<uint32_t>(pointers.size());
        return desc;
    }
    std::vector<moe_tensor> tensors;
    std::vector<const moe_tensor*> pointers;
};

struct LayerCase {
    explicit LayerCase(const moe_layer_desc& desc, const char* format = "f32", uint64_t seed = 1,
                       clients::Form form = clients::Form::stacked)
        : layer(clients::random_weights(desc, seed)), tensors(layer, format, form) {}

    moe_plan_desc plan_desc(int64_t max_tokens) const {
        return tensors.plan_desc(layer.desc, max_tokens);
    }
    Floats x(int64_t n_tokens, uint64_t seed = 7) const {
        return clients::Random(seed).values(n_tokens * layer.desc.hidden);
    }
    clients::Doubles reference(const Floats& x) const {
        const auto n = static_cast<int64_t>(x.size()) / layer.desc.hidden;
        return clients::reference_forward(layer, x, n, clients::reference_route(layer, x, n));
    }

    clients::LayerWeights layer;
    clients::LayerTensors tensors;
};

struct LayerRun {
    LayerRun(const LayerCase& of, const moe_plan_desc& desc, moe_runtime* runtime = nullptr)
        : plan(make_plan(runtime, desc)),
          weights(load_weights(plan.get(), of.tensors.weights_desc())),
          workspace(make_workspace(runtime, plan.get())),
          hidden(of.layer.desc.hidden) {}

    moe_status forward(const moe_forward_args& args) const {
        return moe_forward(plan.get(), weights.get(), workspace.get(), &args);
    }

    Plan plan;
    Weights weights;
    Workspace workspace;
    int64_t hidden;
};

inline moe_forward_args forward_args(int64_t n_tokens, const void* x, void* out) {
    auto args = sized<moe_forward_args>();
    args.n_tokens = n_tokens;
    args.x = x;
    args.out = out;
    return args;
}

using Change = std::function<void(moe_forward_args&)>;

// Float32 in, float32 out; the output begins as poison.
inline Floats forward(const LayerRun& run, const Floats& x, const Change& change = {}) {
    const auto n = static_cast<int64_t>(x.size()) / run.hidden;
    Floats out = clients::poisoned(n * run.hidden);
    moe_forward_args args = forward_args(n, x.data(), out.data());
    if (change) change(args);
    must(run.forward(args), "moe_forward");
    return out;
}

// Bit for bit, NaN included.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline clients::Doubles to_doubles(const Floats& values) {
    return clients::Doubles(values.begin(), values.end());
}

inline double error_of(const Floats& got, const clients::Doubles& wanted, int64_t width) {
    return worst_row_error(to_doubles(got), wanted, static_cast<size_t>(width));
}

// Values of an activation type, and back.
inline Bytes pack(const Floats& values, moe_type type) {
    const size_t size = type == MOE_TYPE_F32 ? 4 : 2;
    Bytes bytes(values.size() * size);
    for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t half = type == MOE_TYPE_F16 ? moe::float_to_f16(values[i])
                                                   : moe::float_to_bf16(values[i]);
        const void* from = size == 4 ? static_cast<const void*>(&values[i]) : &half;
        std::memcpy(bytes.data() + i * size, from, size);
    }
    return bytes;
}

inline Floats unpack(const Bytes& bytes, moe_type type) {
    const size_t size = type == MOE_TYPE_F32 ? 4 : 2;
    Floats values(bytes.size() / size);
    for (size_t i = 0; i < values.size(); ++i) {
        uint16_t half = 0;
        std::memcpy(&half, bytes.data() + i * size, 2);
        values[i] = type == MOE_TYPE_F16 ? moe::f16_to_float(half) : moe::bf16_to_float(half);
        if (size == 4) std::memcpy(&values[i], bytes.data() + i * size, 4);
    }
    return values;
}

}  // namespace moe_test
