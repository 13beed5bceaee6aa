// Operations and types of a tensor. Their ids differ from version to version, so ggml's own names
// for the ids that tensors bear are what is compared.
#pragma once

#include "interface.hpp"
#include "moe/moe.h"

namespace moe::ggml {

enum class Op {
    other,
    none,
    mul_mat_id,
    add_id,
    glu,
    unary,
    mul,
    add,
    sqr,
    scale,
    clamp,
    cont,
    reshape,
    view,
    repeat,
    get_rows
};
enum class Unary { other, silu, gelu, gelu_erf, gelu_quick, relu, tanh, sigmoid };
enum class Glu { other, reglu, geglu, swiglu, swiglu_oai, geglu_erf, geglu_quick, swiglu_clamp };

Op op_of(const Tensor* tensor);
// The tensor's operation is unary, or glu.
Unary unary_of(const Tensor* tensor);
Glu glu_of(const Tensor* tensor);

bool is_f32(const Tensor* tensor);
bool is_i32(const Tensor* tensor);
// The format of moe.h that a type is; its type is MOE_TYPE_NONE where libmoe does not read it.
moe_format format_of(const Tensor* tensor);

float float_param(const Tensor* tensor, int index);

}  // namespace moe::ggml
