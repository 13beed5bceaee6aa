// Where every tensor of a checkpoint lies, sorted by name. Names and entries are filled by the
// readers and then frozen.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/checkpoint/element.hpp"
#include "libmoe/checkpoint/file.hpp"

namespace moe {

struct TensorEntry {
    static constexpr uint32_t max_rank = 8;

    std::string_view name;
    const Element* element = nullptr;
    uint32_t file = 0;
    uint32_t rank = 0;
    int64_t shape[max_rank] = {};  // slowest first: what the file says, or for GGUF its reverse
    uint64_t offset = 0;           // from the start of the file
    uint64_t bytes = 0;            // with a GGUF type that is unknown: up to the next tensor
    uint32_t ggml_type = 0;        // of a GGUF file

    // The container's name for its type; "GGML_TYPE_156" where that is a number alone.
    std::string type_name() const;
    std::span<const int64_t> dims() const { return {shape, rank}; }
};

class TensorIndex {
  public:
    static constexpr size_t max_tensors = size_t{1} << 21;
    static constexpr size_t longest_name = 4096;

    explicit TensorIndex(std::pmr::memory_resource& memory) : names_(&memory), entries_(&memory) {}

    // Keeps a copy of the name. Fails with MOE_ERROR_CORRUPT_FILE on names that are empty, too long
    // or hold a NUL, and when there are too many tensors.
    void add(const TensorEntry& entry, std::string_view file_name);
    // Sorts; a name that appears twice is MOE_ERROR_CORRUPT_FILE.
    void finish(std::span<const File> files);

    std::span<const TensorEntry> entries() const { return entries_; }
    // Those added since there were `first`, for their reader to complete. Before finish only.
    std::span<TensorEntry> entries_from(size_t first) { return std::span(entries_).subspan(first); }
    // null when there is none. After finish only.
    const TensorEntry* find(std::string_view name) const;
    // The first whose name starts with prefix, or null.
    const TensorEntry* find_prefix(std::string_view prefix) const;

  private:
    std::pmr::monotonic_buffer_resource names_;
    std::pmr::vector<TensorEntry> entries_;
};

// "[8, 4096]"
std::string shape_text(std::span<const int64_t> dims);

}  // namespace moe
