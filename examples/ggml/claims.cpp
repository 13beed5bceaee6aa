#include "claims.hpp"

#include "buffers.hpp"
#include "names.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

// Longer than any chain from a MUL_MAT_ID to the value that is summed.
constexpr int deepest = 16;

bool claims_matrix(const Tensor* op, const BufferType* ours) {
    const Tensor *weights = op->src[0], *x = op->src[1], *ids = op->src[2];
    if (!is_in(weights, ours) || format_of(weights).type == MOE_TYPE_NONE) return false;
    // Both sides on the grid of 16 that moe.h wants of an intermediate size.
    if (weights->ne[0] % 16 != 0 || weights->ne[1] % 16 != 0 || weights->ne[3] != 1) return false;
    const bool has_rows = x->ne[1] == 1 || x->ne[1] == ids->ne[0];
    return has_rows && is_f32(x) && has_dense_rows(x) && is_i32(ids) &&
           ids->nb[0] == sizeof(int32_t);
}

// A value of every slot, [n, k, T], that comes from experts of ours.
bool is_slot_value(const Tensor* t, const BufferType* ours, int depth = 0) {
    if (!t || depth > deepest) return false;
    switch (op_of(t)) {
        case Op::mul_mat_id:
            return claims_matrix(t, ours);
        case Op::add_id:
        case Op::glu:
        case Op::unary:
        case Op::sqr:
        case Op::scale:
        case Op::clamp:
        case Op::reshape:
        case Op::view:
        case Op::mul:
            return is_slot_value(t->src[0], ours, depth + 1);
        default:
            return false;
    }
}

bool is_view_of(const Tensor* t, const Tensor* whole) {
    return op_of(t) == Op::view && t->src[0] == whole;
}

// The sum over the slots of one value: v0 + v1, then + v2 and so on, each a view of that value.
bool claims_sum(const Tensor* op, const BufferType* ours) {
    const Tensor *sum = op->src[0], *slot = op->src[1];
    if (op_of(slot) != Op::view || !is_f32(op)) return false;
    const Tensor* value = slot->src[0];
    const bool is_first = is_view_of(sum, value);
    const bool is_next = op_of(sum) == Op::add && is_view_of(sum->src[1], value);
    return (is_first || is_next) && is_slot_value(value, ours);
}

// By a weight or scale of each slot, or by another value of the same slots.
bool claims_product(const Tensor* op, const BufferType* ours) {
    const Tensor *value = op->src[0], *factor = op->src[1];
    if (!is_f32(op) || !is_f32(factor) || !is_slot_value(value, ours)) return false;
    if (same_shape(value, factor)) return is_slot_value(factor, ours);
    return factor->ne[0] == 1 && factor->ne[1] == value->ne[1] && factor->ne[2] == value->ne[2] &&
           factor->ne[3] == 1;
}

bool claims_glu(const Tensor* op, const BufferType* ours) {
    const bool is_pair = op->src[1] != nullptr;
    return glu_of(op) != Glu::other && is_f32(op) && has_dense_rows(op->src[0]) &&
           is_slot_value(op->src[0], ours) && (!is_pair || is_slot_value(op->src[1], ours));
}

// llama.cpp asks about a bias before there is a graph, when only its own buffer is known.
bool claims_bias(const Tensor* op, const BufferType* ours) {
    return is_f32(op) && is_f32(op->src[1]) && is_i32(op->src[2]) &&
           (is_in(op->src[1], ours) || is_slot_value(op->src[0], ours));
}

}  // namespace

bool claims(const Tensor* op, const BufferType* ours) {
    switch (op_of(op)) {
        case Op::none:
            return is_in(op, ours);
        case Op::reshape:
        case Op::view:
            return is_in(op, ours) || is_slot_value(op, ours);
        case Op::mul_mat_id:
            return claims_matrix(op, ours);
        case Op::add_id:
            return claims_bias(op, ours);
        case Op::glu:
            return claims_glu(op, ours);
        case Op::unary:
            return unary_of(op) != Unary::other && is_f32(op) && is_slot_value(op->src[0], ours);
        case Op::sqr:
        case Op::scale:
        case Op::clamp:
            return is_f32(op) && is_slot_value(op->src[0], ours);
        case Op::mul:
            return claims_product(op, ours);
        case Op::add:
            return claims_sum(op, ours);
        case Op::cont:  // of top-1 experts, where there is nothing to add
            return is_f32(op) && op_of(op->src[0]) == Op::view &&
                   is_slot_value(op->src[0]->src[0], ours);
        case Op::repeat:
            return repeated_expert_scales(op) != nullptr;
        case Op::get_rows:
            return expert_scales_of_slots(op) != nullptr && is_f32(op) && is_i32(op->src[1]);
        case Op::other:
            return false;
    }
    return false;
}

}  // namespace moe::ggml
