// Making, encoding and decoding the tensors of a layer through moe_quantize and moe_dequantize.
#include "layer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace moe_gpu {
namespace {

bool is_expert_role(int role) {
    return (role >= MOE_ROLE_GATE && role <= MOE_ROLE_GATE_UP_BIAS);
}

// Where feature i of gate or up lies among the 2I rows of a fused matrix.
int64_t fused_place(moe_gate_up_order order, bool up, int64_t i, int64_t n) {
    if (order == MOE_GATE_UP_GATE_FIRST) return up ? n + i : i;
    if (order == MOE_GATE_UP_UP_FIRST) return up ? i : n + i;
    return 2 * i + up;
}

// Values that keep every stage of the order of one; norms and scales of experts lie around one.
float spread_of(int role, int64_t columns) {
    if (clients::is_vector(role)) return 0.2f;
    return (role == MOE_ROLE_ROUTER ? 1.0f : 1.6f) / std::sqrt(static_cast<float>(columns));
}

float middle_of(int role) {
    return clients::is_around_one(role) ? 1.0f : 0.0f;
}

}  // namespace

bool can_hold(const char* name, const moe_layer_desc& desc) {
    const moe_format format = format_named(name);
    const int64_t width = clients::expert_width(desc), features = desc.intermediate;
    uint64_t data = 0, scales = 0;
    return moe_format_size(&format, features, width, &data, &scales) == MOE_OK &&
           moe_format_size(&format, width, features, &data, &scales) == MOE_OK;
}

LayerData::LayerData(const LayerSpec& given) : spec(given), f32_(format_named("f32")) {
    for (int role = 1; role < MOE_ROLE_COUNT; ++role) make_role(role);
    if (spec.desc.selection == MOE_SELECT_HASH) make_hash_table();
    for (const moe_tensor& tensor : tensors_) list_.push_back(&tensor);
    for (const moe_tensor& tensor : reference_tensors_) reference_list_.push_back(&tensor);
}

const char* LayerData::format_of(int role) const {
    if (clients::is_vector(role)) return "f32";
    if (role == MOE_ROLE_ROUTER) return spec.router_format;
    if (role == MOE_ROLE_DOWN && spec.down_format) return spec.down_format;
    if (role == MOE_ROLE_GATE && spec.gate_format) return spec.gate_format;
    if (role == MOE_ROLE_SHARED_GATE && spec.shared_gate_format) return spec.shared_gate_format;
    return is_expert_role(role) ? spec.format : spec.dense_format;
}

LayerData::Matrix LayerData::encode(const moe_format& format, int64_t rows, int64_t columns,
                                    uint64_t seed, float spread, float middle, uint64_t codebook,
                                    uint64_t table) const {
    Matrix matrix;
    matrix.buffers = random_matrix(format, rows, columns, seed, spread, middle, codebook, table);
    decode(format, matrix, rows, columns);
    return matrix;
}

void LayerData::decode(const moe_format& format, Matrix& matrix, int64_t rows,
                       int64_t columns) const {
    Stack shape;
    shape.format = format;
    shape.rows = rows;
    shape.columns = columns;
    const moe_tensor tensor = of_matrix(shape, matrix, sized<moe_tensor>());
    matrix.decoded.resize(static_cast<size_t>(rows * columns));
    must(moe_dequantize(&tensor, 0, matrix.decoded.data(), matrix.decoded.size()),
         "moe_dequantize");
}

// A tensor of one matrix alone.
moe_tensor LayerData::of_matrix(const Stack& stack, const Matrix& matrix, moe_tensor tensor) const {
    tensor.role = tensor.role ? tensor.role : MOE_ROLE_ROUTER;
    tensor.format = &stack.format;
    tensor.n_experts = 1;
    tensor.rows = stack.rows;
    tensor.columns = stack.columns;
    matrix.buffers.describe(tensor);
    if (stack.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = &matrix.buffers.global_scale;
        tensor.n_global_scales = 1;
    }
    return tensor;
}

uint64_t LayerData::table_of(int role, int64_t expert) const {
    if (spec.tables == Tables::of_all || !is_expert_role(role)) return 0;
    const bool is_up = role == MOE_ROLE_UP && spec.tables == Tables::of_matrix;
    return static_cast<uint64_t>(2 * expert + is_up + 1);
}

LayerData::Stack& LayerData::make_stack(int role, int64_t n, int64_t rows, int64_t columns,
                                        float spread, float middle) {
    Stack& stack = stacks_[role];
    stack.format = format_named(format_of(role));
    stack.n = n;
    stack.rows = rows;
    stack.columns = columns;
    stack.matrices.resize(static_cast<size_t>(n));
    std::vector<std::string> errors(static_cast<size_t>(n));
    in_parallel(n, [&](int64_t e) {
        try {
            const uint64_t seed = spec.seed * 7919 + static_cast<uint64_t>(role * 100003 + e);
            stack.matrices[static_cast<size_t>(e)] =
                encode(stack.format, rows, columns, seed, spread, middle,
                       spec.own_codebooks ? seed : 0, table_of(role, e));
        } catch (const std::exception& error) {
            errors[static_cast<size_t>(e)] = error.what();
        }
    });
    for (const std::string& error : errors)
        if (!error.empty()) throw Failure(error);
    return stack;
}

bool LayerData::is_fused_away(int role) const {
    return role == MOE_ROLE_UP || role == MOE_ROLE_UP_BIAS;
}

void LayerData::choose_always(Stack& bias) const {
    constexpr float most = std::numeric_limits<float>::max();
    Matrix& matrix = bias.matrices.front();
    std::fill(matrix.decoded.end() - spec.always_chosen, matrix.decoded.end(), most);
    std::memcpy(matrix.buffers.data.data(), matrix.decoded.data(), matrix.buffers.data.size());
}

void LayerData::make_role(int role) {
    const clients::RoleShape shape = clients::shape_of(spec.desc, role);
    if (!shape.n) return;
    if (!clients::is_vector(role)) {
        role_formats_[static_cast<size_t>(role)] = format_named(format_of(role));
        formats_[static_cast<size_t>(role)] = &role_formats_[static_cast<size_t>(role)];
        reference_formats_[static_cast<size_t>(role)] = &f32_;
    }
    const bool fuses = spec.fused != MOE_GATE_UP_NONE && spec.desc.is_gated;
    const bool bias = role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_UP_BIAS;
    const bool is_fused = fuses && (bias || role == MOE_ROLE_GATE || role == MOE_ROLE_UP);
    if (is_fused && is_fused_away(role)) {
        give_reference(role, shape, stacks_.at(bias ? MOE_ROLE_GATE_BIAS : MOE_ROLE_GATE), 1);
        return;
    }
    const int64_t distinct = is_expert_role(role) && spec.distinct_experts
                                 ? std::min<int64_t>(spec.distinct_experts, shape.n)
                                 : shape.n;
    Stack& stack = make_stack(role, distinct, shape.rows * (is_fused && !bias ? 2 : 1),
                              shape.columns * (is_fused && bias ? 2 : 1),
                              spread_of(role, shape.columns), middle_of(role));
    if (role == MOE_ROLE_SELECTION_BIAS) choose_always(stack);
    give_reference(role, shape, stack, is_fused ? 0 : -1);
    const int stored = !is_fused ? role : bias ? MOE_ROLE_GATE_UP_BIAS : MOE_ROLE_GATE_UP;
    give(stack, stored);
}

moe_tensor LayerData::describe(const Stack& stack, int role) const {
    auto tensor = sized<moe_tensor>();
    tensor.role = static_cast<moe_role>(role);
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.format = &stack.format;
    tensor.n_experts = stack.n;
    tensor.rows = stack.rows;
    tensor.columns = stack.columns;
    if (role == MOE_ROLE_GATE_UP || role == MOE_ROLE_GATE_UP_BIAS)
        tensor.gate_up_order = spec.fused;
    return tensor;
}

void LayerData::give(Stack& stack, int role) {
    const moe_tensor tensor = describe(stack, role);
    const bool experts = is_expert_role(role);
    if (spec.transposed && experts && !clients::is_vector(role) && role != MOE_ROLE_GATE_UP_BIAS) {
        const auto size = static_cast<size_t>(size_of(stack.format.type));
        for (Matrix& matrix : stack.matrices) {
            Bytes turned(matrix.buffers.data.size());
            for (int64_t r = 0; r < stack.rows; ++r)
                for (int64_t c = 0; c < stack.columns; ++c)
                    std::memcpy(
                        &turned[static_cast<size_t>(c * stack.rows + r) * size],
                        &matrix.buffers.data[static_cast<size_t>(r * stack.columns + c) * size],
                        size);
            matrix.buffers.data = std::move(turned);
        }
    }
    if (experts && (spec.form == Form::table || spec.distinct_experts))
        return give_table(stack, tensor, spec.desc.n_experts);
    if (experts && spec.form == Form::tensor_per_expert) return give_each(stack, tensor);
    give_stacked(stack, tensor);
}

void LayerData::give_stacked(Stack& stack, moe_tensor tensor) {
    for (const Matrix& matrix : stack.matrices) {
        stack.buffers.append(matrix.buffers);
        stack.globals.push_back(matrix.buffers.global_scale);
    }
    stack.buffers.describe(tensor);
    if (stack.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = stack.globals.data();
        tensor.n_global_scales = stack.n;
    }
    if (spec.transposed && is_expert_role(tensor.role) && stack.rows > 1)
        tensor.orientation = MOE_ORIENTATION_IN_OUT;
    tensors_.push_back(tensor);
}

void LayerData::give_table(Stack& stack, moe_tensor tensor, int64_t n_experts) {
    for (int64_t e = 0; e < n_experts; ++e) {
        const Matrix& matrix = stack.matrices[static_cast<size_t>(e % stack.n)];
        stack.data_table.push_back(matrix.buffers.data.data());
        stack.scale_table.push_back(matrix.buffers.scales.data());
        stack.globals.push_back(matrix.buffers.global_scale);
    }
    tensor.n_experts = n_experts;
    tensor.codebook = stack.matrices[0].buffers.codebook.data();
    tensor.codebook_bytes = stack.matrices[0].buffers.codebook.size() * sizeof(float);
    tensor.data_per_expert = stack.data_table.data();
    tensor.data_bytes = stack.matrices[0].buffers.data.size();
    if (!stack.matrices[0].buffers.scales.empty())
        tensor.scales_per_expert = stack.scale_table.data();
    tensor.scale_bytes = stack.matrices[0].buffers.scales.size();
    if (stack.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = stack.globals.data();
        tensor.n_global_scales = n_experts;
    }
    if (spec.transposed && stack.rows > 1) tensor.orientation = MOE_ORIENTATION_IN_OUT;
    tensors_.push_back(tensor);
}

void LayerData::give_each(Stack& stack, moe_tensor tensor) {
    for (int64_t e = 0; e < stack.n; ++e) {
        moe_tensor one = of_matrix(stack, stack.matrices[static_cast<size_t>(e)], tensor);
        one.expert = static_cast<int32_t>(e);
        if (spec.transposed && stack.rows > 1) one.orientation = MOE_ORIENTATION_IN_OUT;
        tensors_.push_back(one);
    }
}

// part: 0 gate or 1 up of a fused stack, -1: the stack as it is.
void LayerData::give_reference(int role, const clients::RoleShape& shape, const Stack& stack,
                               int part) {
    const int64_t size = shape.rows * shape.columns;
    Floats& values = reference_values_[role];
    values.resize(static_cast<size_t>(stack.n * size));
    reference_sizes_[role] = size;
    const bool bias = shape.rows == 1;
    const int64_t features = bias ? shape.columns : shape.rows, length = size / features;
    for (int64_t e = 0; e < stack.n; ++e) {
        const Floats& from = stack.matrices[static_cast<size_t>(e)].decoded;
        for (int64_t i = 0; i < features; ++i) {
            const int64_t place = part < 0 ? i : fused_place(spec.fused, part == 1, i, features);
            std::copy_n(from.begin() + place * length, length,
                        values.begin() + e * size + i * length);
        }
    }
    std::vector<const void*>& table = reference_tables_.emplace_back();
    for (int64_t e = 0; e < shape.n; ++e) table.push_back(values.data() + e % stack.n * size);
    auto tensor = sized<moe_tensor>();
    tensor.role = static_cast<moe_role>(role);
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.format = &f32_;
    tensor.n_experts = shape.n;
    tensor.rows = shape.rows;
    tensor.columns = shape.columns;
    tensor.data_bytes = static_cast<uint64_t>(size) * 4;
    if (is_expert_role(role))
        tensor.data_per_expert = table.data();
    else
        tensor.data = values.data();
    reference_tensors_.push_back(tensor);
}

void LayerData::make_hash_table() {
    const int64_t k = spec.desc.top_k, rows = spec.desc.hash_vocabulary;
    clients::Random random(spec.seed + 17);
    for (int64_t r = 0; r < rows; ++r) {
        const int32_t first = random.below(spec.desc.n_experts);
        for (int64_t j = 0; j < k; ++j)
            hash_table_.push_back(static_cast<int32_t>((first + 3 * j) % spec.desc.n_experts));
    }
    hash_format_ = sized<moe_format>();
    hash_format_.type = MOE_TYPE_I32;
    auto tensor = sized<moe_tensor>();
    tensor.role = MOE_ROLE_HASH_TABLE;
    tensor.format = &hash_format_;
    tensor.rows = rows;
    tensor.columns = k;
    tensor.data = hash_table_.data();
    tensor.data_bytes = hash_table_.size() * 4;
    tensors_.push_back(tensor);
    reference_tensors_.push_back(tensor);
}

moe_plan_desc LayerData::plan_desc() const {
    auto desc = sized<moe_plan_desc>();
    desc.layer = &spec.desc;
    desc.formats = formats_.data();
    desc.n_formats = MOE_ROLE_COUNT;
    return desc;
}

moe_plan_desc LayerData::reference_plan_desc() const {
    moe_plan_desc desc = plan_desc();
    desc.device = MOE_DEVICE_CPU;
    desc.formats = reference_formats_.data();
    return desc;
}

moe_weights_desc LayerData::weights_desc() const {
    auto desc = sized<moe_weights_desc>();
    desc.tensors = list_.data();
    desc.n_tensors = static_cast<uint32_t>(list_.size());
    return desc;
}

moe_weights_desc LayerData::reference_weights_desc() const {
    auto desc = sized<moe_weights_desc>();
    desc.ownership = MOE_OWN_BORROW;
    desc.tensors = reference_list_.data();
    desc.n_tensors = static_cast<uint32_t>(reference_list_.size());
    return desc;
}

moe_tensor LayerData::replace(moe_role role, int32_t expert, uint64_t seed) {
    Stack& stack = stacks_.at(role);
    Matrix& matrix = stack.matrices[static_cast<size_t>(expert)];
    matrix = encode(stack.format, stack.rows, stack.columns, seed, spread_of(role, stack.columns),
                    middle_of(role), seed, table_of(role, expert));
    const int64_t size = stack.rows * stack.columns;
    std::copy(matrix.decoded.begin(), matrix.decoded.end(),
              reference_values_.at(role).begin() + expert * size);
    auto tensor = describe(stack, role);
    tensor = of_matrix(stack, matrix, tensor);
    tensor.expert = expert;
    return tensor;
}

}  // namespace moe_gpu
