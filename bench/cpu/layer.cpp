#include "bench/cpu/layer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

namespace moe::bench {
namespace {

constexpr size_t cold_bytes = size_t{640} << 20;

void check(moe_status status) {
    if (status != MOE_OK) throw std::runtime_error(moe_last_error());
}

template <class Struct>
Struct sized() {
    Struct one{};
    one.struct_size = sizeof one;
    return one;
}

// Named formats, and int4_g32, int4_g64 and int4_g128 as compressed-tensors packs them.
moe_format format_of_name(const std::string& name) {
    auto format = sized<moe_format>();
    if (name.rfind("int4_g", 0) == 0) {
        format.type = MOE_TYPE_INT;
        format.bits = 4;
        format.group_rows = 1;
        format.group_columns = std::stoi(name.substr(6));
        format.scale_type = MOE_TYPE_BF16;
        format.zero_point = MOE_ZERO_POINT_MIDDLE;
        format.packing = MOE_PACKING_BIT_STREAM;
        return format;
    }
    check(moe_format_by_name(name.c_str(), &format));
    return format;
}

std::vector<float> gaussian(size_t n, float sigma, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, sigma);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random);
    return values;
}

// Blocks of formats that the library does not write: random codes under a float16 at their begin.
void fill_blocks(std::vector<unsigned char>& data, size_t block_bytes) {
    std::mt19937 random(7);
    for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
    for (size_t at = 0; at < data.size(); at += block_bytes) {
        data[at] = 0;
        data[at + 1] = 0x14;
    }
}

}  // namespace

std::string CpuCase::name() const {
    const char* type = x_type == MOE_TYPE_F32 ? "f32" : x_type == MOE_TYPE_F16 ? "f16" : "bf16";
    return model.name + "/" + format + (down == format ? "" : "+" + down) + "/" + type + "/T" +
           std::to_string(n_tokens) + "/" + std::to_string(n_threads) + "threads";
}

CpuLayer::CpuLayer(const CpuCase& one) : case_(one) {
    const Model& model = case_.model;
    auto runtime_desc = sized<moe_runtime_desc>();
    runtime_desc.n_threads = case_.n_threads;
    moe_runtime* runtime = nullptr;
    check(moe_runtime_create(&runtime_desc, &runtime));
    runtime_.reset(runtime, moe_runtime_destroy);
    make_matrix(MOE_ROLE_GATE, case_.format, model.intermediate, model.hidden);
    make_matrix(MOE_ROLE_UP, case_.format, model.intermediate, model.hidden);
    make_matrix(MOE_ROLE_DOWN, case_.down, model.hidden, model.intermediate);

    moe_layer_desc layer = layer_of(model, Mode::ids);
    layer.has_router = 0;
    const moe_format* formats[MOE_ROLE_COUNT] = {};
    for (const Matrix& matrix : matrices_) formats[matrix.role] = &matrix.format;
    auto desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &layer;
    desc.x_type = case_.x_type;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = case_.n_tokens;
    desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE | MOE_STAGE_FINISH;
    desc.kernel_filter = case_.kernels.empty() ? nullptr : case_.kernels.c_str();
    moe_plan* plan = nullptr;
    check(moe_plan_create(runtime, &desc, &plan));
    plan_.reset(plan, moe_plan_destroy);
    auto workspace_desc = sized<moe_workspace_desc>();
    workspace_desc.plan = plan;
    moe_workspace* workspace = nullptr;
    check(moe_workspace_create(runtime, &workspace_desc, &workspace));
    workspace_.reset(workspace, moe_workspace_destroy);

    size_t bytes = 0;
    for (const Matrix& matrix : matrices_)
        bytes += (matrix.data.size() + matrix.scales.size()) * static_cast<size_t>(model.n_experts);
    for (size_t n = cold_bytes / bytes + 1; sets_.size() < n;) make_set();
    const size_t element = case_.x_type == MOE_TYPE_F32 ? 4 : 2;
    const auto n_values = static_cast<size_t>(case_.n_tokens * model.hidden);
    const std::vector<float> values = gaussian(n_values, 1.0f, 3);
    out_.resize(n_values * element);
    x_.resize(n_values * element);
    for (size_t i = 0; i < n_values; ++i) {
        uint32_t bits;
        std::memcpy(&bits, &values[i], 4);
        const auto half =
            static_cast<uint16_t>(case_.x_type == MOE_TYPE_BF16 ? bits >> 16 : 0x3800);
        std::memcpy(&x_[i * element],
                    element == 4 ? static_cast<void*>(&bits) : const_cast<uint16_t*>(&half),
                    element);
    }
    weights_.assign(static_cast<size_t>(case_.n_tokens * model.top_k), 0.125f);
}

void CpuLayer::make_matrix(moe_role role, const std::string& name, int64_t rows, int64_t columns) {
    Matrix matrix{role, format_of_name(name), rows, columns, 1.0f, {}, {}};
    uint64_t data_bytes = 0, scale_bytes = 0;
    check(moe_format_size(&matrix.format, rows, columns, &data_bytes, &scale_bytes));
    matrix.data.resize(data_bytes);
    matrix.scales.resize(scale_bytes);
    if (name.rfind("iq2", 0) == 0 || name.rfind("iq3", 0) == 0) {
        fill_blocks(matrix.data, data_bytes / static_cast<size_t>(rows * columns / 256));
    } else {
        const auto values = gaussian(static_cast<size_t>(rows * columns),
                                     1.0f / std::sqrt(static_cast<float>(columns)), 5 + role);
        auto args = sized<moe_quantize_args>();
        args.format = &matrix.format;
        args.source = values.data();
        args.rows = rows;
        args.columns = columns;
        args.data = matrix.data.data();
        args.data_bytes = data_bytes;
        args.scales = scale_bytes ? matrix.scales.data() : nullptr;
        args.scale_bytes = scale_bytes;
        if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE)
            args.global_scale = &matrix.global_scale;
        check(moe_quantize(&args));
    }
    matrices_.push_back(std::move(matrix));
}

void CpuLayer::Free::operator()(unsigned char* memory) const {
    munmap(memory, size);
}

CpuLayer::Buffer CpuLayer::copies_of(const std::vector<unsigned char>& one) const {
    const auto n = static_cast<size_t>(case_.model.n_experts);
    const size_t size = one.size() * n;
    if (size == 0) return {};
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for the weights");
    madvise(memory, size, case_.has_small_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    Buffer all{{static_cast<unsigned char*>(memory), Free{size}}, size};
    for (size_t i = 0; i < n; ++i)
        std::memcpy(all.memory.get() + i * one.size(), one.data(), one.size());
    return all;
}

void CpuLayer::make_set() {
    Set& set = sets_.emplace_back();
    const auto n = static_cast<size_t>(case_.model.n_experts);
    std::vector<moe_tensor> tensors;
    std::vector<std::vector<float>> globals;
    globals.reserve(matrices_.size());
    for (const Matrix& matrix : matrices_) {
        set.data.push_back(copies_of(matrix.data));
        set.scales.push_back(copies_of(matrix.scales));
        auto tensor = sized<moe_tensor>();
        tensor.role = matrix.role;
        tensor.expert = MOE_ALL_EXPERTS;
        tensor.n_experts = case_.model.n_experts;
        tensor.format = &matrix.format;
        tensor.rows = matrix.rows;
        tensor.columns = matrix.columns;
        tensor.data = set.data.back().memory.get();
        tensor.data_bytes = set.data.back().size;
        if (!matrix.scales.empty()) {
            tensor.scales = set.scales.back().memory.get();
            tensor.scale_bytes = set.scales.back().size;
        }
        if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
            tensor.global_scale = globals.emplace_back(n, matrix.global_scale).data();
            tensor.n_global_scales = case_.model.n_experts;
        }
        tensors.push_back(tensor);
    }
    // Biases of gpt-oss.
    const std::vector<float> zeros(static_cast<size_t>(
        n * static_cast<size_t>(std::max(case_.model.hidden, case_.model.intermediate))));
    moe_format f32{};
    check((f32.struct_size = sizeof f32, moe_format_by_name("f32", &f32)));
    if (case_.model.has_biases)
        for (const moe_role role : {MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS, MOE_ROLE_DOWN_BIAS}) {
            auto tensor = sized<moe_tensor>();
            tensor.role = role;
            tensor.expert = MOE_ALL_EXPERTS;
            tensor.n_experts = case_.model.n_experts;
            tensor.format = &f32;
            tensor.rows = 1;
            tensor.columns =
                role == MOE_ROLE_DOWN_BIAS ? case_.model.hidden : case_.model.intermediate;
            tensor.data = zeros.data();
            tensor.data_bytes = n * static_cast<size_t>(tensor.columns) * sizeof(float);
            tensors.push_back(tensor);
        }
    std::vector<const moe_tensor*> pointers;
    for (const moe_tensor& tensor : tensors) pointers.push_back(&tensor);
    auto desc = sized<moe_weights_desc>();
    desc.ownership = MOE_OWN_BORROW;
    desc.tensors = pointers.data();
    desc.n_tensors = static_cast<uint32_t>(pointers.size());
    moe_weights* weights = nullptr;
    check(moe_weights_load(plan_.get(), &desc, &weights));
    set.weights.reset(weights, moe_weights_destroy);
}

void CpuLayer::add_ranges(size_t set, int32_t expert, std::vector<ByteRange>& ranges) const {
    const auto add = [&](const Buffer& all) {
        const size_t one = all.size / static_cast<size_t>(case_.model.n_experts);
        if (one) ranges.push_back({all.memory.get() + one * static_cast<size_t>(expert), one});
    };
    for (const auto& data : sets_[set].data) add(data);
    for (const auto& scales : sets_[set].scales) add(scales);
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
    check(moe_forward(plan_.get(), sets_[set].weights.get(), workspace_.get(), &args));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string CpuLayer::kernel() const {
    const char* name = nullptr;
    check(moe_plan_kernel(plan_.get(), MOE_STAGE_EXPERTS, case_.n_tokens, &name));
    return name;
}

}  // namespace moe::bench
