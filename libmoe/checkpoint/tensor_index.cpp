// The sorted table of tensors.
#include "libmoe/checkpoint/tensor_index.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

void check_name(std::string_view name, std::string_view file_name) {
    if (name.empty()) fail(MOE_ERROR_CORRUPT_FILE, "{}: a tensor has an empty name", file_name);
    if (name.size() > TensorIndex::longest_name) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}': the name has {} bytes, more than {}",
             file_name, printable(name).text, name.size(), TensorIndex::longest_name);
    }
    if (name.find('\0') != name.npos) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}': the name holds a NUL", file_name,
             printable(name).text);
    }
}

bool is_named_before(const TensorEntry& a, const TensorEntry& b) {
    return a.name < b.name;
}

}  // namespace

std::string TensorEntry::type_name() const {
    if (element == &unknown_ggml_element) return fmt::format("GGML_TYPE_{}", ggml_type);
    return element->name;
}

void TensorIndex::add(const TensorEntry& entry, std::string_view file_name) {
    check_name(entry.name, file_name);
    if (entries_.size() == max_tensors) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: more than {} tensors", file_name, max_tensors);
    }
    char* copy = static_cast<char*>(names_.allocate(entry.name.size(), 1));
    std::memcpy(copy, entry.name.data(), entry.name.size());
    entries_.push_back(entry);
    entries_.back().name = {copy, entry.name.size()};
}

void TensorIndex::finish(std::span<const File> files) {
    std::sort(entries_.begin(), entries_.end(), is_named_before);
    const auto twice = std::adjacent_find(
        entries_.begin(), entries_.end(),
        [](const TensorEntry& a, const TensorEntry& b) { return a.name == b.name; });
    if (twice == entries_.end()) return;
    const TensorEntry& other = *(twice + 1);
    if (twice->file == other.file) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}' appears twice", files[twice->file].name(),
             printable(twice->name).text);
    }
    fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}' is also in {}", files[twice->file].name(),
         printable(twice->name).text, files[other.file].name());
}

const TensorEntry* TensorIndex::find_prefix(std::string_view prefix) const {
    const auto it =
        std::lower_bound(entries_.begin(), entries_.end(), prefix,
                         [](const TensorEntry& e, std::string_view p) { return e.name < p; });
    return it != entries_.end() && it->name.starts_with(prefix) ? &*it : nullptr;
}

const TensorEntry* TensorIndex::find(std::string_view name) const {
    // A name sorts before every longer one that starts with it.
    const TensorEntry* entry = find_prefix(name);
    return entry && entry->name.size() == name.size() ? entry : nullptr;
}

std::string shape_text(std::span<const int64_t> dims) {
    std::string text = "[";
    for (const int64_t dim : dims) {
        if (text.size() > 1) text += ", ";
        text += std::to_string(dim);
    }
    return text + "]";
}

}  // namespace moe
