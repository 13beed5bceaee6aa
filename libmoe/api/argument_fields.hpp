// Pointer fields of argument structs as data: one table per struct says what each field is, and the
// rules for pointers, types, alignment and strides are applied from here.
#pragma once

#include <cstddef>

#include "libmoe/plan/plan.hpp"

namespace moe {

// How a call uses a field.
enum class Use : uint8_t {
    none,      // not at all: the field has no effect, and is cleared
    apart,     // not read, but out must not overlap it; cleared at the end
    optional,  // where it is given; without it, its stride says nothing
    empty,     // there is nothing to read or write: it may be NULL, its stride is checked
    required,
};

inline Use required_if(bool condition, Use otherwise = Use::empty) {
    return condition ? Use::required : otherwise;
}

// The type of a field's elements: a fixed one, one of the plan, or one that the caller names.
enum class ElementKind : uint8_t {
    i8,
    i32,
    i64,
    f32,
    plan_x,
    plan_router_input,
    plan_out,
    index,
    weight
};

// Rows of `width` elements.
struct RowExtent {
    int64_t rows;
    int64_t width;
};

// A pointer field and the fields that describe it, NAME_row_stride and NAME_type, by their offsets.
// Offset 0 is that of struct_size and means that there is no such field.
struct FieldDesc {
    const char* name;
    size_t pointer;
    ElementKind element;
    size_t stride;
    size_t type;
    const char* stride_name;  // in place of NAME; null: NAME
};

// A field of Args. `use` sees the fields before it in their table as they are after their checks.
template <class Args>
struct Field {
    FieldDesc desc;
    Use (*use)(const moe_plan&, const Args&);
    RowExtent (*extent)(const moe_plan&, const Args&) = nullptr;  // of fields with a stride
};

// Rows in the caller's memory.
struct CallerMatrix {
    const void* data;
    int64_t stride;
    moe_type type;
    RowExtent extent;
};

// The rules for one field of the struct at `args`. Defaults are filled in, unused fields cleared.
void check_field(const moe_plan& plan, void* args, const FieldDesc& field, Use use,
                 RowExtent extent);

CallerMatrix matrix_of(const moe_plan& plan, const void* args, const FieldDesc& field,
                       RowExtent extent);

// x and out may not share a byte, whether x is read or not.
void check_apart(const CallerMatrix& x, const CallerMatrix& out);

template <class Args>
RowExtent extent_of(const moe_plan& plan, const Args& args, const Field<Args>& field) {
    return field.extent ? field.extent(plan, args) : RowExtent{};
}

// Every field of the table, in its order.
template <class Args, size_t n>
void check_fields(const moe_plan& plan, Args& args, const Field<Args> (&table)[n]) {
    for (const Field<Args>& field : table)
        check_field(plan, &args, field.desc, field.use(plan, args), extent_of(plan, args, field));
}

template <class Args, size_t n>
const Field<Args>& field_at(const Field<Args> (&table)[n], size_t pointer) {
    size_t i = 0;
    while (table[i].desc.pointer != pointer) ++i;
    return table[i];
}

// x against out, after check_fields; x that is not read is cleared.
template <class Args, size_t n>
void check_x_apart(const moe_plan& plan, Args& args, const Field<Args> (&table)[n]) {
    const auto matrix = [&](const Field<Args>& field) {
        return matrix_of(plan, &args, field.desc, extent_of(plan, args, field));
    };
    const Field<Args>& x = field_at(table, offsetof(Args, x));
    check_apart(matrix(x), matrix(field_at(table, offsetof(Args, out))));
    if (x.use(plan, args) == Use::apart) args.x = nullptr;
}

}  // namespace moe
