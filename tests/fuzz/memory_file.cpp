// memfd, opened by its name under /proc.
#include "tests/fuzz/memory_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace moe_fuzz {

MemoryFile::MemoryFile() : descriptor_(::memfd_create("moe_fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() {
    ::close(descriptor_);
}

void MemoryFile::write(std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (::ftruncate(descriptor_, size) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size)
        throw std::runtime_error("memfd write");
}

std::string_view MemoryFile::name() const {
    return std::string_view(path_).substr(path_.rfind('/') + 1);
}

}  // namespace moe_fuzz
