// Reads a file from the front without ever trusting a count: every step is checked against the
// bytes that are left. Works on a window, so that unmapped files are read in large pieces.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/file.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {

class Cursor {
  public:
    Cursor(std::pmr::memory_resource& memory, const File& file) : file_(file), window_(&memory) {}

    // What sentences name besides the file, if anything. Must live until the next.
    void set_subject(std::string_view subject) { subject_ = subject; }
    uint64_t position() const { return position_; }
    uint64_t remaining() const { return file_.size() - position_; }

    // `what` names the thing in the sentence of a failure.
    template <class T>
    T value(const char* what) {
        T out;
        std::memcpy(&out, bytes(sizeof(T), what).data(), sizeof(T));
        return out;
    }
    // Valid until the next call.
    std::string_view bytes(uint64_t count, const char* what) {
        need(count, what);
        const char* begin = reinterpret_cast<const char*>(at(count));
        position_ += count;
        return {begin, count};
    }
    void skip(uint64_t count, const char* what) {
        need(count, what);
        position_ += count;
    }
    // A count of things of at least min_bytes each cannot exceed what is left.
    void need_items(uint64_t count, uint64_t min_bytes, const char* what) const {
        if (count > remaining() / min_bytes) {
            fail(MOE_ERROR_CORRUPT_FILE,
                 "{}: {}{} at byte {}: {} cannot fit into the {} bytes left", file_.name(),
                 subject(), what, position_, count, remaining());
        }
    }

  private:
    static constexpr uint64_t window_bytes = 1 << 16;

    void need(uint64_t count, const char* what) const {
        if (count > remaining()) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: {}{} at byte {} needs {} bytes, {} are left",
                 file_.name(), subject(), what, position_, count, remaining());
        }
    }
    std::string subject() const {
        return subject_.empty() ? std::string() : fmt::format("'{}': ", printable(subject_).text);
    }
    const std::byte* at(uint64_t count) {
        if (file_.mapped()) return file_.mapped() + position_;
        const bool inside = position_ >= window_begin_ &&
                            position_ - window_begin_ <= window_.size() &&
                            count <= window_.size() - (position_ - window_begin_);
        if (!inside) {
            window_.resize(std::min(std::max(count, window_bytes), remaining()));
            file_.read(position_, window_.size(), window_.data());
            window_begin_ = position_;
        }
        return window_.data() + (position_ - window_begin_);
    }

    const File& file_;
    std::string_view subject_;
    uint64_t position_ = 0;
    uint64_t window_begin_ = 0;
    std::pmr::vector<std::byte> window_;
};

}  // namespace moe
