// Last error, struct sizes, text: what every entry point shares.
#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"

namespace moe {
namespace {

thread_local char last_error_text[Error::capacity];

}  // namespace

void set_last_error(const char* sentence) noexcept {
    if (sentence == last_error_text) return;
    std::strncpy(last_error_text, sentence, Error::capacity - 1);
    last_error_text[Error::capacity - 1] = '\0';
}

const char* last_error() noexcept {
    return last_error_text;
}

uint32_t checked_struct_size(const void* given, const char* name) {
    require(given != nullptr, "{} is NULL", name);
    uint32_t size;
    std::memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > largest_struct)
        fail(MOE_ERROR_ABI, "{}.struct_size is {}; set it to sizeof the struct", name, size);
    return size;
}

bool is_zero(const void* bytes, size_t count) {
    const auto* p = static_cast<const unsigned char*>(bytes);
    return std::all_of(p, p + count, [](unsigned char byte) { return byte == 0; });
}

void copy_text(const char* text, size_t length, char* buffer, uint64_t capacity,
               uint64_t* out_size) {
    const uint64_t size = length + 1;
    require(out_size != nullptr || buffer != nullptr, "buffer and out_size are both NULL");
    require(buffer != nullptr || capacity == 0, "buffer is NULL, capacity is {}", capacity);
    if (out_size) *out_size = size;
    if (!buffer) return;
    if (capacity < size)
        fail(MOE_ERROR_BUFFER_TOO_SMALL, "capacity is {}, the text needs {}", capacity, size);
    std::memcpy(buffer, text, length);
    buffer[length] = '\0';
}

}  // namespace moe
