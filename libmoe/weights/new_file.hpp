// A file that is written under another name until it is complete, and then replaces the file of its
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>

namespace moe {

class NewFile {
  public:
    // Fails with MOE_ERROR_IO and the path.
    NewFile(std::pmr::memory_resource& memory, std::string_view path);
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    // Deletes the file unless it was kept.
    ~NewFile();

    void write(uint64_t offset, const void* from, uint64_t bytes);
    // Its bytes are on disk before it takes its name; the name itself is on disk when the file
    // system writes the directory.
    void keep();

  private:
    [[noreturn]] void fail_io(const char* call) const;

    std::pmr::string path_;
    std::pmr::string written_;  // the name while it is written
    int descriptor_ = -1;
};

}  // namespace moe
