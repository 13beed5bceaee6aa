// A file that lies in memory and is written anew for every input.
#pragma once

#include <string>
#include <string_view>

namespace moe_fuzz {

class MemoryFile {
  public:
    MemoryFile();
    ~MemoryFile();
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    void write(std::string_view bytes);
    // Opens it, like any file.
    const std::string& path() const { return path_; }
    // The last component of path: what sentences name.
    std::string_view name() const;

  private:
    int descriptor_;
    std::string path_;
};

}  // namespace moe_fuzz
