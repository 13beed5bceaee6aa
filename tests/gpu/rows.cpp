// Placing rows, and the check that nothing but them was written.
#include "rows.hpp"

#include <algorithm>

namespace moe_gpu {
namespace {

// Bytes behind the last row that a call must leave alone too. None on the host, where a sanitizer
// watches the end of the buffer.
int64_t guard_of(const Device& device) {
    return device.is_cuda() ? 256 : 0;
}

}  // namespace

Rows::Rows(Device& device, moe_type type, int64_t rows, int64_t columns, Place place)
    : device_(&device),
      type_(type),
      rows_(rows),
      columns_(std::max<int64_t>(columns, 1)),
      given_stride_(place.stride),
      stride_(place.stride ? place.stride : columns_),
      shift_(place.shift),
      image_(static_cast<size_t>((shift_ + (rows ? (rows - 1) * stride_ + columns_ : 0)) *
                                     size_of(type) +
                                 guard_of(device))),
      buffer_(device, image_.size()) {
    poison();
}

void Rows::poison() {
    std::fill(image_.begin(), image_.end(), std::byte{0xFF});
    device_->fill(buffer_.data(), 0xFF, image_.size());
}

void Rows::get(int64_t n_live, const char* what) {
    Bytes now(image_.size());
    device_->download(now.data(), buffer_.data(), now.size());
    for (int64_t row = 0; row < std::min(n_live, rows_); ++row) {
        const size_t begin = place_of(row * columns_);
        const auto bytes = static_cast<size_t>(columns_ * size_of(type_));
        std::copy_n(now.begin() + static_cast<ptrdiff_t>(begin), bytes,
                    image_.begin() + static_cast<ptrdiff_t>(begin));
    }
    const auto differs = std::mismatch(now.begin(), now.end(), image_.begin()).first;
    if (differs != now.end())
        throw Failure(text("%s: byte %ld, outside the %ld rows of %ld, was written", what,
                           static_cast<long>(differs - now.begin()), static_cast<long>(n_live),
                           static_cast<long>(columns_)));
}

Floats Rows::floats() const {
    Floats values(static_cast<size_t>(rows_ * columns_));
    for (size_t i = 0; i < values.size(); ++i) values[i] = load(type_, at(static_cast<int64_t>(i)));
    return values;
}

Bytes Rows::bits() const {
    Bytes bytes;
    for (int64_t row = 0; row < rows_; ++row) {
        const std::byte* from = at(row * columns_);
        bytes.insert(bytes.end(), from, from + columns_ * size_of(type_));
    }
    return bytes;
}

}  // namespace moe_gpu
