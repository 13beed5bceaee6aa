// Sets of random weights of the experts of one layer, together more than any cache holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "bench/cpu/read_rate.hpp"

namespace moe::bench {

// Memory for which huge pages are requested unless a case says no.
class PageBuffer {
  public:
    PageBuffer() = default;
    PageBuffer(size_t size, bool has_small_pages);

    unsigned char* data() const { return memory_.get(); }
    size_t size() const { return size_; }

  private:
    struct Unmap {
        size_t size;
        void operator()(unsigned char* memory) const;
    };
    std::unique_ptr<unsigned char, Unmap> memory_;
    size_t size_ = 0;
};

// Gate, up or down of all experts of a set.
struct ExpertMatrix {
    moe_role role;
    moe_format format;
    std::string format_name;
    int64_t rows, columns;
    float global_scale;  // of every expert; 1 where the format has none
    PageBuffer data, scales, zero_points;
    std::vector<int32_t> permutation;  // of act-order
};

// More than a last-level cache has.
constexpr size_t cold_bytes = size_t{640} << 20;

class ExpertWeights {
  public:
    // Format: of all, or "a+b" with b for down. The values depend on the model's sizes alone, so
    // that two formats of the same values hold the same layer. Each expert begins at another row of
    // the same random rows. There are as many sets as make more than least_bytes.
    ExpertWeights(const Model& model, const std::string& format, bool has_small_pages,
                  size_t least_bytes = cold_bytes);

    const Model& model() const { return model_; }
    const std::string& format() const { return format_; }
    size_t n_sets() const { return sets_.size(); }
    const std::vector<ExpertMatrix>& matrices(size_t set) const { return sets_[set]; }
    // Adds the bytes of an expert of a set.
    void add_ranges(size_t set, int32_t expert, std::vector<ByteRange>& ranges) const;

  private:
    Model model_;
    std::string format_;
    std::vector<std::vector<ExpertMatrix>> sets_;  // gate, up, down of each
};

}  // namespace moe::bench
