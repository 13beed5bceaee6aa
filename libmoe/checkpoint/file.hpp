// One open file: mapped read-only, or read piece by piece with pread. The size is taken when the
// file is opened and checked again after mapping; a file that shrinks later ends a mapped process
// with SIGBUS, and a read with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>

#include "moe/moe.h"

namespace moe {

// A file's bytes in memory of the process: what is written there stays there. A file that shrinks
// ends the process with SIGBUS.
class PrivateMap {
  public:
    PrivateMap() = default;
    PrivateMap(std::byte* data, uint64_t size) : data_(data), size_(size) {}
    PrivateMap(PrivateMap&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
    PrivateMap& operator=(PrivateMap&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~PrivateMap();
    // null: nothing is mapped.
    std::byte* data() const { return data_; }

  private:
    std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

class File {
  public:
    // Fails with MOE_ERROR_IO and the path.
    File(std::pmr::memory_resource& memory, std::string_view path, moe_io io);
    File(File&& other) noexcept;
    File& operator=(File&&) = delete;
    ~File();

    std::string_view path() const { return path_; }
    // The last component of the path, printable: what sentences name.
    std::string_view name() const { return name_; }
    uint64_t size() const { return size_; }
    // null when the file is not mapped (or empty).
    const std::byte* mapped() const { return mapped_; }
    // Copies [offset, offset + bytes); fails when that is not inside the file.
    void read(uint64_t offset, uint64_t bytes, void* out) const;
    // Maps a file that is not empty and was opened to be read.
    PrivateMap map_privately() const;
    // Lets the system fetch what will be read soon; the end may be past that of the file.
    void will_read(uint64_t offset, uint64_t bytes) const;

  private:
    void check_size() const;
    File(std::pmr::memory_resource& memory, std::string_view path);
    void open_regular();
    void map();
    void close() noexcept;

    std::pmr::string path_;
    std::pmr::string name_;
    int descriptor_ = -1;  // closed once mapped
    uint64_t size_ = 0;
    const std::byte* mapped_ = nullptr;
};

}  // namespace moe
