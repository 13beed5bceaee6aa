#include "values.hpp"

#include "host.hpp"
#include "names.hpp"

namespace moe::ggml {

const Tensor* without_reshapes(const Tensor* t) {
    while (op_of(t) == Op::reshape && t->src[0]) t = t->src[0];
    return t;
}

const Tensor* repeated_expert_scales(const Tensor* t) {
    if (op_of(t) != Op::repeat || !t->src[0] || t->ne[0] != 1 || t->ne[3] != 1) return nullptr;
    const Tensor* one = t->src[0];
    if (one->ne[0] != 1 || one->ne[1] != t->ne[1] || one->ne[2] != 1) return nullptr;
    const Tensor* scales = without_reshapes(one);
    const bool is_weight = op_of(scales) == Op::none && scales->buffer &&
                           host.buffer_get_usage(scales->buffer) == usage_weights;
    return is_weight && is_f32(scales) && is_dense(scales) ? scales : nullptr;
}

const Tensor* expert_scales_of_slots(const Tensor* t) {
    if (op_of(t) != Op::get_rows || !t->src[0] || !t->src[1]) return nullptr;
    return repeated_expert_scales(t->src[0]);
}

}  // namespace moe::ggml
