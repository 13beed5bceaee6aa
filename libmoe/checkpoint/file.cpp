// Opening, mapping and reading files through the POSIX calls.
#include "libmoe/checkpoint/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

[[noreturn]] void fail_io(std::string_view path, const char* call, int error) {
    // generic_category: strerror is not safe in threads.
    const std::string text = std::generic_category().message(error);
    fail(MOE_ERROR_IO, "{}: {}: {}", printable(path).text, call, text);
}

struct stat status_of(int descriptor, std::string_view path) {
    struct stat status;
    if (::fstat(descriptor, &status) != 0) fail_io(path, "fstat", errno);
    return status;
}

}  // namespace

File::File(std::pmr::memory_resource& memory, std::string_view path)
    : path_(path, &memory), name_(printable(path.substr(path.rfind('/') + 1)).text, &memory) {}

// Delegates first: what fails afterwards is undone by the destructor.
File::File(std::pmr::memory_resource& memory, std::string_view path, moe_io io)
    : File(memory, path) {
    open_regular();
    if (io == MOE_IO_MMAP) map();
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      name_(std::move(other.name_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      mapped_(std::exchange(other.mapped_, nullptr)) {}

File::~File() {
    close();
}

void File::open_regular() {
    // O_NONBLOCK so that a pipe is refused instead of waited for.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail_io(path_, "open", errno);
    const struct stat status = status_of(descriptor_, path_);
    if (!S_ISREG(status.st_mode)) {
        fail(MOE_ERROR_IO, "{}: not a regular file", printable(path_).text);
    }
    size_ = static_cast<uint64_t>(status.st_size);
}

void File::map() {
    if (size_ != 0) {
        void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
        if (memory == MAP_FAILED) fail_io(path_, "mmap", errno);
        mapped_ = static_cast<const std::byte*>(memory);
    }
    check_size();
    // Many shards must not use up the process's descriptors.
    ::close(std::exchange(descriptor_, -1));
}

void File::check_size() const {
    const auto now = static_cast<uint64_t>(status_of(descriptor_, path_).st_size);
    if (now != size_) {
        fail(MOE_ERROR_IO, "{}: the size changed from {} to {} bytes while the file was opened",
             printable(path_).text, size_, now);
    }
}

PrivateMap File::map_privately() const {
    void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor_, 0);
    if (memory == MAP_FAILED) fail_io(path_, "mmap", errno);
    PrivateMap map(static_cast<std::byte*>(memory), size_);
    check_size();
    return map;
}

PrivateMap::~PrivateMap() {
    if (data_) ::munmap(data_, size_);
}

void File::close() noexcept {
    if (mapped_) ::munmap(const_cast<std::byte*>(mapped_), size_);
    if (descriptor_ >= 0) ::close(descriptor_);
    mapped_ = nullptr;
    descriptor_ = -1;
}

void File::read(uint64_t offset, uint64_t bytes, void* out) const {
    if (bytes > size_ || offset > size_ - bytes) {
        fail(MOE_ERROR_IO, "{}: {} bytes at {} are outside the file of {} bytes",
             printable(path_).text, bytes, offset, size_);
    }
    if (bytes == 0) return;
    if (mapped_) {
        std::memcpy(out, mapped_ + offset, bytes);
        return;
    }
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t n = ::pread(descriptor_, static_cast<std::byte*>(out) + done, bytes - done,
                                  static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_io(path_, "pread", errno);
        if (n == 0) {
            fail(MOE_ERROR_IO, "{}: the file shrank from {} to {} bytes after it was opened",
                 printable(path_).text, size_, status_of(descriptor_, path_).st_size);
        }
        done += static_cast<uint64_t>(n);
    }
}

// A hint: whether it helps shows in the time alone. The system looks at every page, those of the
// page cache too (27 us for 8 MB, bench/notes.md), so nothing is asked where the last byte is
// there.
void File::will_read(uint64_t offset, uint64_t bytes) const {
    if (mapped_ || offset >= size_) return;
    char byte;
    const iovec last{&byte, 1};
    const uint64_t end = std::min(bytes, size_ - offset) + offset;
    if (end > offset &&
        ::preadv2(descriptor_, &last, 1, static_cast<off_t>(end - 1), RWF_NOWAIT) == 1)
        return;
    (void)::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                          POSIX_FADV_WILLNEED);
}

}  // namespace moe
