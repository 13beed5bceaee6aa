// Each rule for a pointer field, said once.
#include "libmoe/api/argument_fields.hpp"

#include <cstring>

#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

// A field of the struct at `args`. All pointers have one representation, whatever they point to.
template <class T>
T load(const void* args, size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(args) + offset, sizeof value);
    return value;
}

template <class T>
void store(void* args, size_t offset, T value) {
    std::memcpy(static_cast<std::byte*>(args) + offset, &value, sizeof value);
}

moe_type element_type(const moe_plan& plan, const void* args, const FieldDesc& field) {
    switch (field.element) {
        case ElementKind::i8:
            return MOE_TYPE_I8;
        case ElementKind::i32:
            return MOE_TYPE_I32;
        case ElementKind::i64:
            return MOE_TYPE_I64;
        case ElementKind::f32:
            return MOE_TYPE_F32;
        case ElementKind::plan_x:
            return plan.x_type;
        case ElementKind::plan_router_input:
            return plan.router_input_type;
        case ElementKind::plan_out:
            return plan.out_type;
        default:
            return load<moe_type>(args, field.type);
    }
}

uintptr_t element_bytes(moe_type type) {
    if (type == MOE_TYPE_I64) return 8;
    if (type == MOE_TYPE_I8 || type == MOE_TYPE_F8_E4M3) return 1;
    return type == MOE_TYPE_F32 || type == MOE_TYPE_I32 ? 4 : 2;
}

// The type that the caller names: 0 is the default of its kind.
void check_type(void* args, const FieldDesc& field, bool used) {
    const bool index = field.element == ElementKind::index;
    const moe_type fallback = index ? MOE_TYPE_I32 : MOE_TYPE_F32;
    const auto type = used ? load<moe_type>(args, field.type) : MOE_TYPE_NONE;
    if (type == MOE_TYPE_NONE) return store(args, field.type, fallback);
    const bool known = index ? type == MOE_TYPE_I32 || type == MOE_TYPE_I64
                             : type >= MOE_TYPE_F32 && type <= MOE_TYPE_BF16;
    require(known, "{}_type is {} ({}), must be {}", field.name, type_name(type),
            static_cast<int32_t>(type), index ? "I32 or I64" : "F32, F16 or BF16");
}

// Elements are loaded one by one as their type: an address between them would be a caller's
// mistake.
void check_aligned(const void* pointer, moe_type type, const char* name) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const uintptr_t size = element_bytes(type);
    require(address % size == 0, "{} is at {:#x}, {} needs a multiple of {}", name, address,
            type_name(type), size);
}

// A row stride in elements: 0 becomes the width, less than that is an error, and so is one by which
// the last row would lie beyond what an offset in bytes can say.
void check_stride(void* args, const FieldDesc& field, bool used, RowExtent extent) {
    const auto stride = used ? load<int64_t>(args, field.stride) : 0;
    if (stride == 0) return store(args, field.stride, extent.width);
    const char* name = field.stride_name ? field.stride_name : field.name;
    require(stride >= extent.width, "{}_row_stride is {}, a row has {} elements", name, stride,
            extent.width);
    require(extent.rows <= 1 || stride <= INT64_MAX / 8 / extent.rows,
            "{}_row_stride is {}, too much for {} rows", name, stride, extent.rows);
}

uintptr_t begin_of(const CallerMatrix& matrix) {
    return reinterpret_cast<uintptr_t>(matrix.data);
}

uintptr_t row_bytes(const CallerMatrix& matrix) {
    return static_cast<uintptr_t>(matrix.extent.width) * element_bytes(matrix.type);
}

uintptr_t pitch_of(const CallerMatrix& matrix) {
    return static_cast<uintptr_t>(matrix.stride) * element_bytes(matrix.type);
}

uintptr_t end_of(const CallerMatrix& matrix) {
    return begin_of(matrix) + static_cast<uintptr_t>(matrix.extent.rows - 1) * pitch_of(matrix) +
           row_bytes(matrix);
}

// Columns of one buffer. The stride of a single row is never taken, so that it may be anything:
// such a row lies among the others as if it had theirs.
bool are_side_by_side(const CallerMatrix& a, const CallerMatrix& b) {
    const bool several = a.extent.rows > 1;
    if (!several && b.extent.rows == 1) return false;
    if (several && b.extent.rows > 1 && pitch_of(a) != pitch_of(b)) return false;
    const uintptr_t pitch = pitch_of(several ? a : b);
    const uintptr_t offset = begin_of(b) > begin_of(a)
                                 ? (begin_of(b) - begin_of(a)) % pitch
                                 : pitch - (begin_of(a) - begin_of(b)) % pitch;
    return offset >= row_bytes(a) && offset + row_bytes(b) <= pitch;
}

}  // namespace

void check_field(const moe_plan& plan, void* args, const FieldDesc& field, Use use,
                 RowExtent extent) {
    if (use == Use::none) store<const void*>(args, field.pointer, nullptr);
    const auto* pointer = load<const void*>(args, field.pointer);
    require(pointer || use != Use::required, "{} is NULL", field.name);
    if (field.type) check_type(args, field, use != Use::none);
    if (use != Use::apart) check_aligned(pointer, element_type(plan, args, field), field.name);
    const bool has_stride = pointer || use == Use::empty;
    if (field.stride) check_stride(args, field, has_stride, extent);
}

CallerMatrix matrix_of(const moe_plan& plan, const void* args, const FieldDesc& field,
                       RowExtent extent) {
    return {load<const void*>(args, field.pointer), load<int64_t>(args, field.stride),
            element_type(plan, args, field), extent};
}

void check_apart(const CallerMatrix& x, const CallerMatrix& out) {
    if (!x.data || x.extent.rows == 0 || out.extent.rows == 0) return;
    const bool one_behind_the_other = end_of(x) <= begin_of(out) || end_of(out) <= begin_of(x);
    require(one_behind_the_other || are_side_by_side(x, out), "x and out overlap");
}

}  // namespace moe
