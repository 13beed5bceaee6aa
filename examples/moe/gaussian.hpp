// gaussian.hpp - normally distributed numbers, fast and repeatable: element i of stream s is one of
// 65536 quantiles of the normal distribution, chosen by 16 bits of a hash of (s, i). Any element
// can be made alone, on any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moe::cli {

// A stream for a name under a seed: tensors differ, runs agree.
uint64_t stream_of(uint64_t seed, std::string_view name, uint64_t index);

// out[i] = mean + sigma * gaussian(stream, first + i). first must be a multiple of 4.
void fill_gaussian(uint64_t stream, uint64_t first, float mean, float sigma, std::span<float> out);

}  // namespace moe::cli
