// synthetic.cpp - one random matrix per role, quantised by the library, and copied for every
// expert.
#include "synthetic.hpp"

#include <algorithm>
#include <cmath>

#include "gaussian.hpp"

namespace moe::cli {
namespace {

bool is_expert_role(moe_role role) {
    return role >= MOE_ROLE_GATE && role <= MOE_ROLE_DOWN_BIAS && role != MOE_ROLE_GATE_UP;
}

// Codes and scales of one matrix.
struct Quantised {
    std::vector<unsigned char> data;
    std::vector<unsigned char> scales;
    float global_scale = 1.0F;
};

Quantised quantise(const moe_format& format, int64_t rows, int64_t columns, uint64_t stream) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    const float sigma = 1.0F / std::sqrt(static_cast<float>(columns));
    fill_gaussian(stream, 0, 0.0F, sigma, values);
    uint64_t data_bytes = 0;
    uint64_t scale_bytes = 0;
    check(moe_format_size(&format, rows, columns, &data_bytes, &scale_bytes));
    Quantised matrix{std::vector<unsigned char>(data_bytes),
                     std::vector<unsigned char>(scale_bytes)};
    auto args = sized<moe_quantize_args>();
    args.format = &format;
    args.source = values.data();
    args.rows = rows;
    args.columns = columns;
    args.data = matrix.data.data();
    args.data_bytes = data_bytes;
    args.scales = scale_bytes > 0 ? matrix.scales.data() : nullptr;
    args.scale_bytes = scale_bytes;
    const bool has_global = format.global_scale != MOE_GLOBAL_SCALE_NONE;
    args.global_scale = has_global ? &matrix.global_scale : nullptr;
    check(moe_quantize(&args));
    return matrix;
}

}  // namespace

std::vector<SyntheticLayer::Shape> SyntheticLayer::shapes_of(const LayerSource& source) {
    const moe_layer_desc& layer = source.desc;
    const int64_t hidden = layer.hidden;
    const int64_t latent = layer.latent, width = latent ? latent : hidden;
    const int64_t features = layer.intermediate;
    const int64_t shared = layer.shared_intermediate;
    const Shape all[] = {{MOE_ROLE_ROUTER, layer.n_experts, hidden},
                         {MOE_ROLE_LATENT_IN, latent, hidden},
                         {MOE_ROLE_LATENT_OUT, hidden, latent},
                         {MOE_ROLE_GATE, features, width},
                         {MOE_ROLE_UP, features, width},
                         {MOE_ROLE_DOWN, width, features},
                         {MOE_ROLE_SHARED_GATE, shared, hidden},
                         {MOE_ROLE_SHARED_UP, shared, hidden},
                         {MOE_ROLE_SHARED_DOWN, hidden, shared},
                         {MOE_ROLE_SHARED_EXPERT_GATE, 1, hidden}};
    std::vector<Shape> shapes;
    for (const Shape& shape : all) {
        if (source.formats[shape.role].type != MOE_TYPE_NONE) shapes.push_back(shape);
    }
    if (layer.has_router_bias) shapes.push_back({MOE_ROLE_ROUTER_BIAS, 1, layer.n_experts});
    if (layer.has_selection_bias) shapes.push_back({MOE_ROLE_SELECTION_BIAS, 1, layer.n_experts});
    if (layer.has_second_selection_bias)
        shapes.push_back({MOE_ROLE_SECOND_SELECTION_BIAS, 1, layer.n_experts});
    if (layer.has_gate_bias) shapes.push_back({MOE_ROLE_GATE_BIAS, 1, features});
    if (layer.has_up_bias) shapes.push_back({MOE_ROLE_UP_BIAS, 1, features});
    if (layer.has_down_bias) shapes.push_back({MOE_ROLE_DOWN_BIAS, 1, width});
    if (layer.has_latent_in_norm) shapes.push_back({MOE_ROLE_LATENT_IN_NORM, 1, width});
    if (layer.has_expert_norm) shapes.push_back({MOE_ROLE_EXPERT_NORM, 1, width});
    if (layer.has_latent_norm) shapes.push_back({MOE_ROLE_LATENT_NORM, 1, width});
    return shapes;
}

SyntheticLayer::SyntheticLayer(const LayerSource& source, uint64_t seed) {
    const moe_format vectors = format_by_name("f32");
    for (const Shape& shape : shapes_of(source)) {
        const moe_format& format = source.formats[shape.role];
        add(shape, format.type == MOE_TYPE_NONE ? vectors : format,
            is_expert_role(shape.role) ? source.desc.n_experts : 1, seed);
    }
}

const unsigned char* SyntheticLayer::copies_of(const std::vector<unsigned char>& one, int64_t n) {
    std::vector<unsigned char>& all = buffers_.emplace_back();
    all.reserve(one.size() * static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) all.insert(all.end(), one.begin(), one.end());
    return all.data();
}

void SyntheticLayer::add(const Shape& shape, const moe_format& format, int64_t n_experts,
                         uint64_t seed) {
    const uint64_t stream = stream_of(seed, moe_role_name(shape.role), 0);
    const Quantised one = quantise(format, shape.rows, shape.columns, stream);
    const auto n = static_cast<uint64_t>(n_experts);
    auto tensor = sized<moe_tensor>();
    tensor.role = shape.role;
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.n_experts = n_experts;
    tensor.format = &formats_.emplace_back(format);
    tensor.rows = shape.rows;
    tensor.columns = shape.columns;
    tensor.data = copies_of(one.data, n_experts);
    tensor.data_bytes = one.data.size() * n;
    if (!one.scales.empty()) {
        tensor.scales = copies_of(one.scales, n_experts);
        tensor.scale_bytes = one.scales.size() * n;
    }
    if (format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = global_scales_.emplace_back(n, one.global_scale).data();
        tensor.n_global_scales = n_experts;
    }
    tensors_.push_back(tensor);
}

std::shared_ptr<moe_weights> SyntheticLayer::weights(const moe_plan* plan, bool is_packed) const {
    std::vector<const moe_tensor*> pointers;
    for (const moe_tensor& tensor : tensors_) pointers.push_back(&tensor);
    auto desc = sized<moe_weights_desc>();
    desc.ownership = device_of(plan).is_cpu() && !is_packed ? MOE_OWN_BORROW : MOE_OWN_COPY;
    desc.tensors = pointers.data();
    desc.n_tensors = static_cast<uint32_t>(pointers.size());
    moe_weights* raw = nullptr;
    check(moe_weights_load(plan, &desc, &raw));
    return {raw, moe_weights_destroy};
}

}  // namespace moe::cli
