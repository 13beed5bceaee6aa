// The weights of a layer as moe_tensors of float32 or bfloat16 matrices, in the forms that programs
// have them: stacked, one tensor per expert, or a list of pointers. And the plan, weights and
// workspace that run them.
#pragma once

#include <array>
#include <deque>

#include "support/handles.hpp"
#include "support/layer_weights.hpp"

namespace clients {

enum class Form { stacked, tensor_per_expert, pointer_list };

// Round to nearest even; the clients' values are finite.
inline uint16_t bf16_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float bf16_value(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

inline void round_to_bf16(std::vector<float>& values) {
    for (float& v : values) v = bf16_value(bf16_bits(v));
}

class LayerTensors {
  public:
    // Rounds the layer's matrices to the type, so that the reference computes with the same values.
    LayerTensors(LayerWeights& layer, const char* matrix_format, Form form)
        : matrix_(format_of_name(matrix_format)), vector_(format_of_name("f32")) {
        formats_.fill(nullptr);
        for (int role = 0; role < MOE_ROLE_COUNT; ++role) {
            if (!shape_of(layer.desc, role).n) continue;
            if (!is_vector(role)) {
                formats_[size_t(role)] = &matrix_;
                if (matrix_.type == MOE_TYPE_BF16) round_to_bf16(layer.values[role]);
            }
            add_role(layer, role, form);
        }
    }
    LayerTensors(const LayerTensors&) = delete;

    moe_weights_desc weights_desc() const {
        auto desc = sized<moe_weights_desc>();
        desc.tensors = pointers_.data();
        desc.n_tensors = uint32_t(pointers_.size());
        return desc;
    }

    moe_plan_desc plan_desc(const moe_layer_desc& layer, int64_t max_tokens) const {
        auto desc = sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.x_type = MOE_TYPE_F32;
        desc.layer = &layer;
        desc.formats = formats_.data();
        desc.n_formats = MOE_ROLE_COUNT;
        desc.max_tokens = max_tokens;
        return desc;
    }

  private:
    const void* store(const float* values, int64_t n, bool as_bf16) {
        bytes_.emplace_back(size_t(n) * (as_bf16 ? 2 : 4));
        if (!as_bf16) std::memcpy(bytes_.back().data(), values, size_t(n) * 4);
        for (int64_t i = 0; i < n && as_bf16; ++i) {
            const uint16_t bits = bf16_bits(values[i]);
            std::memcpy(bytes_.back().data() + 2 * i, &bits, 2);
        }
        return bytes_.back().data();
    }

    moe_tensor& add(int role, const RoleShape& shape) {
        moe_tensor tensor = sized<moe_tensor>();
        tensor.role = moe_role(role);
        tensor.expert = MOE_ALL_EXPERTS;
        tensor.format = is_vector(role) ? &vector_ : &matrix_;
        tensor.n_experts = shape.n;
        tensor.rows = shape.rows;
        tensor.columns = shape.columns;
        tensors_.push_back(tensor);
        pointers_.push_back(&tensors_.back());
        return tensors_.back();
    }

    void add_role(const LayerWeights& layer, int role, Form form) {
        const RoleShape shape = shape_of(layer.desc, role);
        const bool as_bf16 = !is_vector(role) && matrix_.type == MOE_TYPE_BF16;
        const int64_t size = shape.rows * shape.columns;
        const uint64_t element = as_bf16 ? 2 : 4;
        if (shape.n == 1 || form == Form::stacked) {
            moe_tensor& tensor = add(role, shape);
            tensor.data = store(layer.values[role].data(), shape.n * size, as_bf16);
            tensor.data_bytes = uint64_t(shape.n * size) * element;
            return;
        }
        std::vector<const void*> parts;
        for (int64_t e = 0; e < shape.n; ++e)
            parts.push_back(store(layer.expert(role, e), size, as_bf16));
        if (form == Form::pointer_list) {
            lists_.push_back(parts);
            moe_tensor& tensor = add(role, shape);
            tensor.data_per_expert = lists_.back().data();
            tensor.data_bytes = uint64_t(size) * element;
            return;
        }
        for (int64_t e = 0; e < shape.n; ++e) {
            moe_tensor& tensor = add(role, shape);
            tensor.expert = int32_t(e);
            tensor.n_experts = 1;
            tensor.data = parts[size_t(e)];
            tensor.data_bytes = uint64_t(size) * element;
        }
    }

    moe_format matrix_, vector_;
    std::array<const moe_format*, MOE_ROLE_COUNT> formats_;
    std::deque<std::vector<std::byte>> bytes_;
    std::deque<std::vector<const void*>> lists_;
    std::deque<moe_tensor> tensors_;
    std::vector<const moe_tensor*> pointers_;
};

// What runs one layer, or one slice of it.
struct LayerRun {
    Plan plan;
    Weights weights;
    Workspace workspace;

    LayerRun(moe_runtime* runtime, const LayerTensors& tensors, const moe_plan_desc& desc)
        : plan(make_plan(runtime, desc)),
          weights(load_weights(plan.get(), tensors.weights_desc())),
          workspace(make_workspace(runtime, plan.get())) {}

    moe_status forward(const moe_forward_args& args) const {
        return moe_forward(plan.get(), weights.get(), workspace.get(), &args);
    }
};

}  // namespace clients
