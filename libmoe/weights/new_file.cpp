// Writing a file through the POSIX calls.
#include "libmoe/weights/new_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {

NewFile::NewFile(std::pmr::memory_resource& memory, std::string_view path)
    : path_(path, &memory), written_(path, &memory) {
    written_ += ".part-";
    written_ += std::to_string(::getpid());
    descriptor_ = ::open(written_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail_io("open");
}

NewFile::~NewFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(written_.c_str());
}

void NewFile::fail_io(const char* call) const {
    // generic_category: strerror is not safe in threads.
    const std::string text = std::generic_category().message(errno);
    fail(MOE_ERROR_IO, "{}: {}: {}", printable(written_).text, call, text);
}

void NewFile::write(uint64_t offset, const void* from, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t n = ::pwrite(descriptor_, static_cast<const std::byte*>(from) + done,
                                   bytes - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_io("pwrite");
        done += static_cast<uint64_t>(n);
    }
}

void NewFile::keep() {
    if (::fsync(descriptor_) != 0) fail_io("fsync");
    if (std::rename(written_.c_str(), path_.c_str()) != 0) fail_io("rename");
    ::close(std::exchange(descriptor_, -1));
}

}  // namespace moe
