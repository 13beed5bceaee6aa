// Steps for one tensor:
//   1. the tensor is checked against the layer
//   2. every expert that the layout holds is checked and viewed
//   3. every view is reduced to the halves and slices of the layout's roles
#include "libmoe/weights/tensor_reader.hpp"

#include <algorithm>

#include "libmoe/base/error.hpp"
#include "libmoe/weights/hash_table.hpp"
#include "libmoe/weights/view.hpp"

namespace moe {
namespace {

Layer::Shape shape_of(const Layer& layer, moe_role role) {
    const auto [first, second] = parts_of(role);
    Layer::Shape shape = layer.role_shape(first);
    if (role == MOE_ROLE_GATE_UP_BIAS)
        shape.columns *= 2;
    else if (second != MOE_ROLE_NONE)
        shape.rows *= 2;
    return shape;
}

}  // namespace

TensorReader::TensorReader(const WeightsLayout& layout, std::pmr::memory_resource& memory,
                           Purpose purpose, Spaces spaces)
    : layout_(layout),
      purpose_(purpose),
      spaces_(spaces),
      seen_(&memory),
      views_(&memory),
      parts_(&memory) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (layout.needs(role)) seen_[role].resize(static_cast<size_t>(layout.count(role)));
    }
}

void TensorReader::check(const moe_tensor& tensor) const {
    check_role(tensor);
    const char* name = role_name(tensor.role);
    const Layer::Shape shape = shape_of(layout_.layer, tensor.role);
    require(tensor.rows == shape.rows && tensor.columns == shape.columns,
            "tensor {}: shape is [{}, {}], the layer's is [{}, {}]", name, tensor.rows,
            tensor.columns, shape.rows, shape.columns);
    if (is_expert_role(tensor.role)) check_expert_number(tensor);
}

void TensorReader::check_role(const moe_tensor& tensor) const {
    const auto role = static_cast<int32_t>(tensor.role);
    require(role > 0 && role < MOE_ROLE_COUNT, "moe_tensor.role is {}, not a moe_role", role);
    const char* name = role_name(tensor.role);
    require(tensor.format != nullptr, "tensor {}: format is NULL", name);
    const bool on_host = tensor.space == MOE_SPACE_HOST || tensor.space == MOE_SPACE_PINNED;
    const bool takes_device = spaces_ == Spaces::host_and_device;
    require(on_host || (takes_device && tensor.space == MOE_SPACE_DEVICE),
            "tensor {}: space is {}{}", name, static_cast<int32_t>(tensor.space),
            takes_device ? ", not a moe_space" : "; a CPU plan reads host memory");
    const auto order = static_cast<int32_t>(tensor.gate_up_order);
    require(!is_fused(tensor.role) || (order >= 1 && order <= 3),
            "tensor {}: gate_up_order is {}, a fused tensor needs one", name, order);
    const auto [first, second] = parts_of(tensor.role);
    for (const moe_role half : {first, second})
        if (half != MOE_ROLE_NONE && half != tensor.role)
            require(layout_.layer.has_role(half), "tensor {}: the layer has no {}", name,
                    role_name(half));
    require(is_fused(tensor.role) || layout_.layer.has_role(first), "tensor {}: the layer has none",
            name);
}

void TensorReader::check_expert_number(const moe_tensor& tensor) const {
    const char* name = role_name(tensor.role);
    const int32_t n_experts = layout_.layer.n_experts;
    const bool stack = is_expert_stack(tensor);
    require(stack || (tensor.expert >= 0 && tensor.expert < n_experts),
            "tensor {}: expert is {}, the layer has {}", name, tensor.expert, n_experts);
    require(!stack || tensor.n_experts == n_experts, "tensor {}: n_experts is {}, the layer has {}",
            name, tensor.n_experts, n_experts);
}

bool TensorReader::wants(const moe_tensor& tensor, int64_t expert) const {
    const auto [first, second] = parts_of(tensor.role);
    const auto is_wanted = [&](moe_role role) {
        return role != MOE_ROLE_NONE && layout_.needs(role) &&
               layout_.index_of_expert(role, expert) >= 0;
    };
    return is_wanted(first) || is_wanted(second);
}

std::span<const TensorPart> TensorReader::read(const moe_tensor& tensor) {
    check(tensor);
    view_experts(tensor);
    if (purpose_ == Purpose::update && views_.empty())
        fail(MOE_ERROR_NOT_FOUND, "{} is not among these weights, by the slice or the stages",
             TensorName(tensor.role, tensor.expert).text);
    parts_.clear();
    const auto [first, second] = parts_of(tensor.role);
    for (const ExpertView& view : views_)
        for (const moe_role role : {first, second})
            if (role != MOE_ROLE_NONE) add_part(tensor, view, role);
    return parts_;
}

void TensorReader::view_experts(const moe_tensor& tensor) {
    views_.clear();
    const bool stack = is_expert_stack(tensor);
    const int64_t first = stack || !is_expert_role(tensor.role) ? 0 : tensor.expert;
    const int64_t n = stack ? tensor.n_experts : 1;
    for (int64_t index = 0; index < n; ++index)
        if (wants(tensor, first + index))
            views_.push_back({first + index, view_expert(tensor, index, first + index)});
}

// index counts in the tensor's stack.
Matrix TensorReader::view_expert(const moe_tensor& tensor, int64_t index, int64_t expert) const {
    const TensorName name(tensor.role, expert);
    const auto [first, second] = parts_of(tensor.role);
    for (const moe_role role : {first, second})
        if (role != MOE_ROLE_NONE && layout_.needs(role))
            check_format(*tensor.format, role, expert, name.text);
    if (tensor.role != MOE_ROLE_HASH_TABLE) return view_of(tensor, index, name.text);
    check_hash_table(tensor, layout_.layer);
    return {};
}

void TensorReader::check_format(const moe_format& format, moe_role role, int64_t expert,
                                const char* what) const {
    const moe_format& wanted = layout_.format_of(role, expert);
    if (wanted.type == MOE_TYPE_NONE || same_format(wanted, format)) return;
    fail(MOE_ERROR_LAYOUT_MISMATCH, "{} is {}, the plan has {} as {}", what,
         format_name(format).text, role_name(role), format_name(wanted).text);
}

void TensorReader::add_part(const moe_tensor& tensor, const ExpertView& view, moe_role role) {
    if (!layout_.needs(role)) return;
    const int64_t index = layout_.index_of_expert(role, view.expert);
    if (index < 0) return;
    mark(role, index, TensorName(tensor.role, view.expert).text);
    const bool is_matrix = is_matrix_role(role);
    parts_.push_back({role, index, is_matrix ? slice_of(tensor, view.matrix, role) : view.matrix});
}

Matrix TensorReader::slice_of(const moe_tensor& tensor, Matrix whole, moe_role role) const {
    if (is_fused(tensor.role))
        whole = gate_up_half(whole, tensor.gate_up_order,
                             is_up(role) ? GateUpHalf::up : GateUpHalf::gate);
    const WeightsLayout::Part p = layout_.part(role);
    return part_of(whole, p.row, p.rows, p.column, p.columns);
}

void TensorReader::mark(moe_role role, int64_t index, const char* what) {
    uint8_t& seen = seen_[role][static_cast<size_t>(index)];
    require(!seen, "{} is given twice", what);
    seen = 1;
}

void TensorReader::check_complete() const {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const auto& seen = seen_[role];
        const auto missing = std::find(seen.begin(), seen.end(), 0);
        if (missing == seen.end()) continue;
        const auto index = static_cast<size_t>(missing - seen.begin());
        const bool by_local =
            is_expert_role(role) && static_cast<int64_t>(seen.size()) == layout_.slice.n_local;
        const int64_t expert =
            by_local ? layout_.slice.global_of[index] : static_cast<int64_t>(index);
        fail(MOE_ERROR_NOT_FOUND, "{} is missing", TensorName(role, expert).text);
    }
}

}  // namespace moe
