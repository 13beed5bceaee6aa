// The struct_size rule, in one place: what callers pass is read into a whole struct, and what they
// ask for is written as far as theirs reaches.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "libmoe/base/error.hpp"

namespace moe {

// Larger than any struct will be: beyond it the size is garbage, not a newer header.
constexpr uint32_t largest_struct = 65536;

uint32_t checked_struct_size(const void* given, const char* name);
bool is_zero(const void* bytes, size_t count);

// What has no meaning yet must be zero, so that it can get one.
template <class T>
void check_reserved(const T& whole, const char* name) {
    uint32_t value = 0;
    if constexpr (requires { whole.reserved; }) value |= whole.reserved;
    if constexpr (requires { whole.reserved2; }) value |= whole.reserved2;
    if constexpr (requires { whole.reserved3; }) value |= whole.reserved3;
    if (value != 0)
        fail(MOE_ERROR_INVALID_ARGUMENT, "{}: a reserved field is {} and must be 0", name, value);
}

// A whole struct: fields that the caller's lacks are zero; fields that this library does not know
// must be zero.
template <class T>
T read_struct(const T* given, const char* name) {
    static_assert(std::is_trivially_copyable_v<T>);
    const uint32_t size = checked_struct_size(given, name);
    T whole{};
    std::memcpy(&whole, given, std::min<size_t>(size, sizeof(T)));
    const auto* tail = reinterpret_cast<const std::byte*>(given) + sizeof(T);
    if (size > sizeof(T) && !is_zero(tail, size - sizeof(T)))
        fail(MOE_ERROR_ABI, "{} is {} bytes and not zero beyond the {} that this library knows",
             name, size, sizeof(T));
    whole.struct_size = sizeof(T);
    check_reserved(whole, name);
    return whole;
}

// Fails when a value that does not fit is not zero. A call that fills several structs asks for all
// before it writes one.
template <class T>
void check_fits(const T* out, const T& whole, const char* name) {
    const uint32_t size = checked_struct_size(out, name);
    const auto* bytes = reinterpret_cast<const std::byte*>(&whole);
    if (size < sizeof(T) && !is_zero(bytes + size, sizeof(T) - size))
        fail(MOE_ERROR_ABI,
             "{}.struct_size is {}; this library has a value beyond it, in a struct of {}", name,
             size, sizeof(T));
}

// Writes as far as the caller's struct reaches, zeros beyond what this library knows.
template <class T>
void write_struct(T* out, const T& whole, const char* name) {
    check_fits(out, whole, name);
    const uint32_t size = out->struct_size;
    const auto* bytes = reinterpret_cast<const std::byte*>(&whole);
    auto* to = reinterpret_cast<std::byte*>(out);
    constexpr size_t first = sizeof(uint32_t);  // struct_size stays as it is
    const size_t known = std::min<size_t>(size, sizeof(T));
    std::memcpy(to + first, bytes + first, known - first);
    if (size > sizeof(T)) std::memset(to + sizeof(T), 0, size - sizeof(T));
}

// The "Text out" rule of the header.
void copy_text(const char* text, size_t length, char* buffer, uint64_t capacity,
               uint64_t* out_size);

}  // namespace moe
