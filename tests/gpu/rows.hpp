// Rows of one argument in the memory of a device: placed from host values with any stride and
// address, poisoned before a call, checked and read back after it.
#pragma once

#include <optional>

#include "device.hpp"
#include "handles.hpp"
#include "numbers.hpp"

namespace moe_gpu {

// Strides in elements, 0 dense; shift moves the address off every alignment but the type's.
struct Place {
    int64_t stride = 0;
    int64_t shift = 0;
};

class Rows {
  public:
    Rows(Device& device, moe_type type, int64_t rows, int64_t columns, Place place = {});

    // Dense values; what lies between the rows becomes NaN.
    template <class T>
    void put(const std::vector<T>& values) {
        if (static_cast<int64_t>(values.size()) != rows_ * columns_)
            throw Failure(text("%zu values for %ld rows of %ld", values.size(),
                               static_cast<long>(rows_), static_cast<long>(columns_)));
        image_.assign(image_.size(), std::byte{0xFF});
        for (int64_t i = 0; i < rows_ * columns_; ++i)
            store(type_, static_cast<double>(values[static_cast<size_t>(i)]), at(i));
        device_->upload(buffer_.data(), image_.data(), image_.size());
    }
    void poison();
    // Reads back. Fails when anything outside the first n_live rows changed.
    void get(int64_t n_live, const char* what);

    Floats floats() const;
    template <class T>
    std::vector<T> integers() const {
        std::vector<T> values(static_cast<size_t>(rows_ * columns_));
        for (size_t i = 0; i < values.size(); ++i)
            std::memcpy(&values[i], at(static_cast<int64_t>(i)), sizeof(T));
        return values;
    }
    // The rows alone, as read back.
    Bytes bits() const;

    void* data() const { return static_cast<std::byte*>(buffer_.data()) + offset(); }
    int64_t stride() const { return given_stride_; }
    moe_type type() const { return type_; }

  private:
    int64_t offset() const { return shift_ * size_of(type_); }
    size_t place_of(int64_t element) const {
        return static_cast<size_t>(offset() + (element / columns_ * stride_ + element % columns_) *
                                                  size_of(type_));
    }
    std::byte* at(int64_t element) { return image_.data() + place_of(element); }
    const std::byte* at(int64_t element) const { return image_.data() + place_of(element); }

    Device* device_;
    moe_type type_;
    int64_t rows_, columns_, given_stride_, stride_, shift_;
    Bytes image_;  // what the memory holds as far as the host knows
    Buffer buffer_;
};

// An array argument that may be absent.
using MaybeRows = std::optional<Rows>;
inline void* data_of(const MaybeRows& rows) {
    return rows ? rows->data() : nullptr;
}

}  // namespace moe_gpu
