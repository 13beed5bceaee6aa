// Shapes and places of tensors, as the matcher and the claims both ask about them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interface.hpp"

namespace moe::ggml {

inline int64_t n_rows(const Tensor* t) {
    return t->ne[1] * t->ne[2] * t->ne[3];
}

inline bool same_shape(const Tensor* a, const Tensor* b) {
    for (int i = 0; i < max_dims; ++i)
        if (a->ne[i] != b->ne[i]) return false;
    return true;
}

// Floats next to each other in each row.
inline bool has_dense_rows(const Tensor* t) {
    return t->nb[0] == sizeof(float);
}

// Rows of floats at one distance over all of ne[1] and ne[2].
inline bool has_even_rows(const Tensor* t) {
    return has_dense_rows(t) && t->ne[3] == 1 &&
           (t->ne[2] == 1 || t->nb[2] == t->nb[1] * static_cast<size_t>(t->ne[1]));
}

inline bool is_dense(const Tensor* t) {
    return has_even_rows(t) &&
           (n_rows(t) == 1 || t->nb[1] == t->nb[0] * static_cast<size_t>(t->ne[0]));
}

// The bytes from the first to the last element of a tensor of floats or ids.
struct Range {
    const char* begin;
    const char* end;
};

inline bool is_empty(const Tensor* t) {
    return t->ne[0] == 0 || n_rows(t) == 0;
}

inline Range range_of(const Tensor* t) {
    const char* begin = static_cast<const char*>(t->data);
    if (is_empty(t)) return {begin, begin};
    size_t last = 0;
    for (int i = 0; i < max_dims; ++i) last += static_cast<size_t>(t->ne[i] - 1) * t->nb[i];
    return {begin, begin + last + t->nb[0]};
}

inline bool overlap(const Range& a, const Range& b) {
    return a.begin < b.end && b.begin < a.end;
}

// Follows RESHAPE and VIEW of the whole down to the tensor that has the values: same elements, same
// order.
const Tensor* without_reshapes(const Tensor* t);

// [1, E, T] made by repeating one scale per expert for every token: the scales of MUL_MAT_ID's
// result are rows of it. Answers the vector of E scales, or null.
const Tensor* repeated_expert_scales(const Tensor* t);
// The same for the GET_ROWS of it by the ids of the slots.
const Tensor* expert_scales_of_slots(const Tensor* t);

}  // namespace moe::ggml
