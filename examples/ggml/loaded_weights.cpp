#include "loaded_weights.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "host.hpp"
#include "names.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

// The layout that a plan wants, and the tensors.
struct Key {
    std::array<uint8_t, 16> layout{};
    std::vector<const void*> tensors;
    auto operator<=>(const Key&) const = default;
};

std::mutex guard;
std::map<Key, Weights> kept;
std::atomic<uint64_t> generation{1};

// Tensors of one load, with the formats that they point to.
class List {
  public:
    List() {
        tensors_.reserve(most);
        formats_.reserve(most);
    }

    void add_matrix(moe_role role, const Projection& projection, moe_gate_up_order order) {
        if (!projection.product) return;
        const Tensor* w = projection.weights();
        moe_format format = format_of(w);
        if (projection.scales) format.global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
        moe_tensor& tensor = add(role, format, w->ne[2], w->ne[1], w->ne[0], w->data);
        tensor.gate_up_order = order;
        tensor.row_stride = static_cast<int64_t>(w->nb[1]);
        tensor.expert_stride = static_cast<int64_t>(w->nb[2]);
        tensor.data_bytes = w->nb[2] * static_cast<size_t>(w->ne[2]);
        note(w);
        if (!projection.scales) return;
        tensor.global_scale = static_cast<const float*>(projection.scales->data);
        tensor.n_global_scales = w->ne[2];
        note(projection.scales);
    }

    void add_bias(moe_role role, const Tensor* bias, moe_gate_up_order order) {
        if (!bias) return;
        moe_format format{};
        format.struct_size = sizeof format;
        moe_format_by_name("f32", &format);
        moe_tensor& tensor = add(role, format, bias->ne[1], 1, bias->ne[0], bias->data);
        tensor.gate_up_order = order;
        tensor.expert_stride = static_cast<int64_t>(bias->nb[1]);
        tensor.data_bytes = bias->nb[1] * static_cast<size_t>(bias->ne[1]);
        note(bias);
    }

    // A matrix that no call reads: every expert is the same zeros.
    void add_stand_in(moe_role role, const moe_format& format, int64_t n_experts, int64_t rows,
                      int64_t columns, const void* zeros, uint64_t bytes) {
        same_.assign(static_cast<size_t>(n_experts), zeros);
        moe_tensor& tensor = add(role, format, n_experts, rows, columns, nullptr);
        tensor.data_per_expert = same_.data();
        tensor.data_bytes = bytes;
    }

    // Whether ggml calls all of them weights of a model, which do not change unnoticed.
    bool is_constant() const { return is_constant_; }
    const std::vector<const void*>& addresses() const { return addresses_; }

    moe_weights* load(const moe_plan* plan) const {
        std::vector<const moe_tensor*> pointers;
        for (const moe_tensor& tensor : tensors_) pointers.push_back(&tensor);
        moe_weights_desc desc{};
        desc.struct_size = sizeof desc;
        desc.ownership = MOE_OWN_BORROW;
        desc.tensors = pointers.data();
        desc.n_tensors = static_cast<uint32_t>(pointers.size());
        moe_weights* weights = nullptr;
        if (moe_weights_load(plan, &desc, &weights) != MOE_OK)
            std::fprintf(stderr, "libmoe: %s\n", moe_last_error());
        return weights;
    }

  private:
    static constexpr size_t most = 8;

    moe_tensor& add(moe_role role, const moe_format& format, int64_t n_experts, int64_t rows,
                    int64_t columns, const void* data) {
        formats_.push_back(format);
        moe_tensor tensor{};
        tensor.struct_size = sizeof tensor;
        tensor.role = role;
        tensor.expert = MOE_ALL_EXPERTS;
        tensor.format = &formats_.back();
        tensor.n_experts = n_experts;
        tensor.rows = rows;
        tensor.columns = columns;
        tensor.data = data;
        return tensors_.emplace_back(tensor);
    }

    void note(const Tensor* tensor) {
        addresses_.push_back(tensor->data);
        Buffer* buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
        if (!buffer || host.buffer_get_usage(buffer) != usage_weights) is_constant_ = false;
    }

    std::vector<moe_tensor> tensors_;
    std::vector<moe_format> formats_;
    std::vector<const void*> same_, addresses_;
    bool is_constant_ = true;
};

// `more` lives as long as the weights.
Loaded get(const moe_plan* plan, const List& list, std::shared_ptr<void> more) {
    Key key;
    key.tensors = list.addresses();
    if (moe_plan_layout_id(plan, key.layout.data()) != MOE_OK) return {};
    const std::lock_guard lock(guard);
    if (list.is_constant())
        if (const auto found = kept.find(key); found != kept.end()) return {found->second, true};
    moe_weights* raw = list.load(plan);
    if (!raw) return {};
    Weights weights(
        raw, [more](const moe_weights* w) { moe_weights_destroy(const_cast<moe_weights*>(w)); });
    if (list.is_constant()) kept.emplace(std::move(key), weights);
    return {weights, list.is_constant()};
}

}  // namespace

Loaded weights_of(const moe_plan* plan, const Chain& chain) {
    const bool is_merged = chain.order != MOE_GATE_UP_NONE;
    List list;
    list.add_matrix(MOE_ROLE_GATE, chain.gate, MOE_GATE_UP_NONE);
    list.add_matrix(is_merged ? MOE_ROLE_GATE_UP : MOE_ROLE_UP, chain.up, chain.order);
    list.add_matrix(MOE_ROLE_DOWN, chain.down, MOE_GATE_UP_NONE);
    list.add_bias(MOE_ROLE_GATE_BIAS, chain.gate.bias, MOE_GATE_UP_NONE);
    list.add_bias(is_merged ? MOE_ROLE_GATE_UP_BIAS : MOE_ROLE_UP_BIAS, chain.up.bias, chain.order);
    list.add_bias(MOE_ROLE_DOWN_BIAS, chain.down.bias, MOE_GATE_UP_NONE);
    return get(plan, list, nullptr);
}

Loaded weights_of_matrix(const moe_plan* plan, const Problem& problem, const Tensor* product) {
    uint64_t bytes = 0, no_scales = 0;
    if (moe_format_size(&problem.down, problem.hidden, problem.intermediate, &bytes, &no_scales) !=
        MOE_OK)
        return {};
    // Untouched pages of zeros take address space alone.
    std::shared_ptr<void> zeros(std::calloc(1, bytes), std::free);
    if (!zeros) return {};
    List list;
    list.add_matrix(MOE_ROLE_UP, Projection{product, nullptr, nullptr}, MOE_GATE_UP_NONE);
    list.add_stand_in(MOE_ROLE_DOWN, problem.down, problem.n_experts, problem.hidden,
                      problem.intermediate, zeros.get(), bytes);
    return get(plan, list, zeros);
}

void forget_weights(const void* memory, size_t bytes) {
    const char* begin = static_cast<const char*>(memory);
    const std::lock_guard lock(guard);
    const size_t dropped = std::erase_if(kept, [&](const auto& entry) {
        for (const void* address : entry.first.tensors) {
            const char* at = static_cast<const char*>(address);
            if (at >= begin && at < begin + bytes) return true;
        }
        return false;
    });
    if (dropped > 0) ++generation;
}

uint64_t weights_generation() {
    return generation;
}

}  // namespace moe::ggml
