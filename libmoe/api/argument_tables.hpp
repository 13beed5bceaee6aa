// Tables of argument structs are made of these: entries for fields, and what several calls have in
// common.
#pragma once

#include "libmoe/api/argument_fields.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {

constexpr FieldDesc describe(ElementKind element, const char* name, size_t pointer,
                             size_t stride = 0, size_t type = 0,
                             const char* stride_name = nullptr) {
    return {name, pointer, element, stride, type, stride_name};
}

// Entries of a table of fields of Args: an array or rows, and either with a type field.
#define MOE_AT(field) offsetof(Args, field)
#define MOE_ARRAY(field, element) describe(ElementKind::element, #field, MOE_AT(field))
#define MOE_ROWS(field, element) \
    describe(ElementKind::element, #field, MOE_AT(field), MOE_AT(field##_row_stride))
#define MOE_X_SCALES                                                                        \
    describe(ElementKind::f32, "x_scales", MOE_AT(x_scales), MOE_AT(x_scale_row_stride), 0, \
             "x_scale")
#define MOE_TYPED_ARRAY(field, element) \
    describe(ElementKind::element, #field, MOE_AT(field), 0, MOE_AT(field##_type))
#define MOE_TYPED_ROWS(field, element)                                                \
    describe(ElementKind::element, #field, MOE_AT(field), MOE_AT(field##_row_stride), \
             MOE_AT(field##_type))

template <class Args>
Use optional(const moe_plan&, const Args&) {
    return Use::optional;
}

// Required unless T is 0.
template <class Args>
Use with_tokens(const moe_plan&, const Args& args) {
    return required_if(args.n_tokens > 0);
}

// Calls but moe_forward and moe_experts have no field for the scales of E4M3 x.
inline void refuse_fp8_x(const moe_plan& plan) {
    if (plan.x_type == MOE_TYPE_F8_E4M3)
        fail(MOE_ERROR_UNSUPPORTED,
             "x_type is F8_E4M3, which moe_forward and moe_experts alone take");
}

// Scales are used where x is. x_use: the use of x.
inline Use scales_use(const moe_plan& plan, Use x_use) {
    return plan.x_type == MOE_TYPE_F8_E4M3 ? x_use : Use::none;
}

inline RowExtent scale_rows(const RowExtent& x) {
    return {x.rows, (x.width + 127) / 128};
}

template <class Args>
void check_scales(const moe_plan& plan, const Args& args) {
    require(!args.x_scales || plan.x_type == MOE_TYPE_F8_E4M3,
            "x_scales are given, but the plan's x_type is {}", type_name(plan.x_type));
}

// Rows of tokens, by their width.
template <class Args>
RowExtent hidden_rows(const moe_plan& plan, const Args& args) {
    return {args.n_tokens, plan.layout.layer.hidden};
}

template <class Args>
RowExtent expert_rows(const moe_plan& plan, const Args& args) {
    return {args.n_tokens, plan.layout.layer.expert_width()};
}

template <class Args>
RowExtent slot_rows(const moe_plan& plan, const Args& args) {
    return {args.n_tokens, plan.layout.layer.top_k};
}

template <class Args>
RowExtent logit_rows(const moe_plan& plan, const Args& args) {
    return {args.n_tokens, plan.layout.layer.n_experts_all()};
}

// The width of a token's output.
inline int64_t token_width(const moe_plan& plan, moe_out_layout layout, int64_t width) {
    return layout == MOE_OUT_PER_SLOT ? plan.layout.layer.top_k * width : width;
}

template <class Args>
void check_tokens(const moe_plan& plan, const Args& args) {
    require(args.n_tokens >= 0 && args.n_tokens <= plan.max_tokens,
            "n_tokens is {}, the plan takes 0 to {}", args.n_tokens, plan.max_tokens);
}

template <class Args>
void check_threads(const Args& args) {
    require(args.n_threads >= 0, "n_threads is {}", args.n_threads);
}

void check_stages(const moe_plan& plan, uint32_t needed);

template <class Args>
void check_expert_map(const moe_plan& plan, const Args& args) {
    const int32_t* map = args.expert_map;
    const int32_t n = args.n_expert_map;
    if (!map) return;
    require(n == plan.layout.layer.n_experts, "n_expert_map is {}, the layer has {} experts", n,
            plan.layout.layer.n_experts);
    if (plan.is_cuda()) return;  // it lies on the device, whose kernels skip what is out of range
    for (int32_t e = 0; e < n; ++e)
        require(map[e] >= -1 && map[e] < plan.layout.slice.n_local,
                "expert_map[{}] is {}, the slice has {} local experts", e, map[e],
                plan.layout.slice.n_local);
}

}  // namespace moe
