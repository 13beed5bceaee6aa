#include "bench/cpu/layer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>

namespace moe::bench {
namespace {

void check(moe_status status) {
    if (status != MOE_OK) throw std::runtime_error(moe_last_error());
}

template <class Struct>
Struct sized() {
    Struct one{};
    one.struct_size = sizeof one;
    return one;
}

// Rows in a type of activations: the library's own encoder and decoder of that type.
std::vector<unsigned char> encoded(const std::vector<float>& values, const char* type,
                                   int64_t rows) {
    auto format = sized<moe_format>();
    check(moe_format_by_name(type, &format));
    auto args = sized<moe_quantize_args>();
    args.format = &format;
    args.source = values.data();
    args.rows = rows;
    args.columns = static_cast<int64_t>(values.size()) / rows;
    check(moe_format_size(&format, args.rows, args.columns, &args.data_bytes, &args.scale_bytes));
    std::vector<unsigned char> bytes(args.data_bytes);
    args.data = bytes.data();
    check(moe_quantize(&args));
    return bytes;
}

std::vector<float> decoded(const std::vector<unsigned char>& bytes, const char* type, int64_t rows,
                           int64_t columns) {
    auto format = sized<moe_format>();
    check(moe_format_by_name(type, &format));
    auto tensor = sized<moe_tensor>();
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.n_experts = 1;
    tensor.format = &format;
    tensor.rows = rows;
    tensor.columns = columns;
    tensor.data = bytes.data();
    tensor.data_bytes = bytes.size();
    std::vector<float> values(static_cast<size_t>(rows * columns));
    check(moe_dequantize(&tensor, 0, values.data(), values.size()));
    return values;
}

moe_tensor tensor_of(const ExpertMatrix& matrix, int32_t n_experts,
                     const std::vector<float>& global_scales) {
    auto tensor = sized<moe_tensor>();
    tensor.role = matrix.role;
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.n_experts = n_experts;
    tensor.format = &matrix.format;
    tensor.rows = matrix.rows;
    tensor.columns = matrix.columns;
    tensor.data = matrix.data.data();
    tensor.data_bytes = matrix.data.size();
    tensor.scales = matrix.scales.data();
    tensor.scale_bytes = matrix.scales.size();
    tensor.zero_points = matrix.zero_points.data();
    tensor.zero_point_bytes = matrix.zero_points.size();
    if (!matrix.permutation.empty()) {
        tensor.permutation = matrix.permutation.data();
        tensor.permutation_bytes = matrix.permutation.size() * sizeof(int32_t);
    }
    if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = global_scales.data();
        tensor.n_global_scales = n_experts;
    }
    return tensor;
}

}  // namespace

const char* type_name(moe_type type) {
    return type == MOE_TYPE_F32 ? "f32" : type == MOE_TYPE_F16 ? "f16" : "bf16";
}

std::string CpuCase::name() const {
    return model.name + "/" + format + "/" + type_name(x_type) + "/T" + std::to_string(n_tokens) +
           "/" + std::to_string(n_threads) + (n_threads == 1 ? "thread" : "threads") +
           (is_int8 ? "/int8" : "") + (is_packed ? "/packed" : "") +
           (kernels.empty() ? "" : "/" + kernels);
}

std::vector<float> make_x(const Model& model, int64_t n_tokens) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(n_tokens * model.hidden));
    for (float& value : values) {
        value = normal(random);
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        bits &= 0xFFFF0000u;
        std::memcpy(&value, &bits, 4);
    }
    return values;
}

CpuLayer::CpuLayer(const CpuCase& one, const ExpertWeights& weights) : case_(one) {
    const Model& model = case_.model;
    auto runtime_desc = sized<moe_runtime_desc>();
    runtime_desc.n_threads = case_.n_threads;
    moe_runtime* runtime = nullptr;
    check(moe_runtime_create(&runtime_desc, &runtime));
    runtime_.reset(runtime, moe_runtime_destroy);

    moe_layer_desc layer = layer_of(model, Mode::ids);
    layer.has_router = layer.has_router_bias = 0;
    const moe_format* formats[MOE_ROLE_COUNT] = {};
    for (const ExpertMatrix& matrix : weights.matrices(0)) formats[matrix.role] = &matrix.format;
    auto desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &layer;
    desc.x_type = case_.x_type;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = case_.n_tokens;
    desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE | MOE_STAGE_FINISH;
    if (case_.is_int8) desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_INT8;
    if (case_.is_packed) desc.residency = MOE_RESIDENCY_PACKED;
    desc.kernel_filter = case_.kernels.empty() ? nullptr : case_.kernels.c_str();
    moe_plan* plan = nullptr;
    check(moe_plan_create(runtime, &desc, &plan));
    plan_.reset(plan, moe_plan_destroy);
    auto workspace_desc = sized<moe_workspace_desc>();
    workspace_desc.plan = plan;
    moe_workspace* workspace = nullptr;
    check(moe_workspace_create(runtime, &workspace_desc, &workspace));
    workspace_.reset(workspace, moe_workspace_destroy);

    for (size_t set = 0; set < weights.n_sets(); ++set) load(set, weights);
    x_ = encoded(make_x(model, case_.n_tokens), type_name(case_.x_type), case_.n_tokens);
    out_.resize(x_.size());
    weights_.assign(static_cast<size_t>(case_.n_tokens * model.top_k), slot_weight);
}

void CpuLayer::load(size_t set, const ExpertWeights& all) {
    const int32_t n = case_.model.n_experts;
    std::vector<moe_tensor> tensors;
    std::vector<std::vector<float>> globals;
    for (const ExpertMatrix& matrix : all.matrices(set)) {
        globals.emplace_back(static_cast<size_t>(n), matrix.global_scale);
        tensors.push_back(tensor_of(matrix, n, globals.back()));
    }
    // Biases of gpt-oss.
    auto f32 = sized<moe_format>();
    check(moe_format_by_name("f32", &f32));
    const auto widest = static_cast<size_t>(std::max(case_.model.hidden, case_.model.intermediate));
    const std::vector<float> zeros(static_cast<size_t>(n) * widest);
    if (case_.model.has_biases)
        for (const moe_role role : {MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS, MOE_ROLE_DOWN_BIAS}) {
            auto tensor = sized<moe_tensor>();
            tensor.role = role;
            tensor.expert = MOE_ALL_EXPERTS;
            tensor.n_experts = n;
            tensor.format = &f32;
            tensor.rows = 1;
            tensor.columns =
                role == MOE_ROLE_DOWN_BIAS ? case_.model.hidden : case_.model.intermediate;
            tensor.data = zeros.data();
            tensor.data_bytes = static_cast<size_t>(n * tensor.columns) * sizeof(float);
            tensors.push_back(tensor);
        }
    std::vector<const moe_tensor*> pointers;
    for (const moe_tensor& tensor : tensors) pointers.push_back(&tensor);
    auto desc = sized<moe_weights_desc>();
    desc.ownership = case_.is_packed ? MOE_OWN_COPY : MOE_OWN_BORROW;
    desc.tensors = pointers.data();
    desc.n_tensors = static_cast<uint32_t>(pointers.size());
    moe_weights* weights = nullptr;
    check(moe_weights_load(plan_.get(), &desc, &weights));
    sets_.emplace_back(weights, moe_weights_destroy);
}

double CpuLayer::forward(size_t set, const std::vector<int32_t>& ids) {
    auto args = sized<moe_forward_args>();
    args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    args.n_tokens = case_.n_tokens;
    args.x = x_.data();
    args.ids = ids.data();
    args.weights = weights_.data();
    args.out = out_.data();
    const auto start = std::chrono::steady_clock::now();
    check(moe_forward(plan_.get(), sets_[set].get(), workspace_.get(), &args));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<float> CpuLayer::out() const {
    return decoded(out_, type_name(case_.x_type), case_.n_tokens, case_.model.hidden);
}

std::string CpuLayer::kernel() const {
    const char* name = nullptr;
    check(moe_plan_kernel(plan_.get(), MOE_STAGE_EXPERTS, case_.n_tokens, &name));
    return name;
}

}  // namespace moe::bench
