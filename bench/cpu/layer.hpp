// Sets of random weights of one layer for the CPU, more than any cache holds, and a plan that runs
// experts from ids and weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "bench/cpu/read_rate.hpp"

namespace moe::bench {

struct CpuCase {
    Model model;
    std::string format;  // of gate and up, or of all
    std::string down;    // of down
    std::string kernels;
    moe_type x_type;
    int64_t n_tokens;
    int32_t n_threads;
    bool has_small_pages = false;

    std::string name() const;
};

class CpuLayer {
  public:
    explicit CpuLayer(const CpuCase& one);

    // Seconds of a forward of set `set` with these experts.
    double forward(size_t set, const std::vector<int32_t>& ids);
    // The weights of an expert of a set.
    void add_ranges(size_t set, int32_t expert, std::vector<ByteRange>& ranges) const;
    size_t n_sets() const { return sets_.size(); }
    std::string kernel() const;

  private:
    struct Matrix {
        moe_role role;
        moe_format format;
        int64_t rows, columns;
        float global_scale = 1.0f;
        std::vector<unsigned char> data, scales;  // of one expert
    };
    // Memory for which huge pages are requested unless the case says no.
    struct Free {
        size_t size;
        void operator()(unsigned char* memory) const;
    };
    struct Buffer {
        std::unique_ptr<unsigned char, Free> memory;
        size_t size = 0;
    };
    struct Set {
        std::vector<Buffer> data, scales;  // of all experts, by matrix
        std::shared_ptr<moe_weights> weights;
    };
    void make_matrix(moe_role role, const std::string& format, int64_t rows, int64_t columns);
    void make_set();
    Buffer copies_of(const std::vector<unsigned char>& one) const;

    CpuCase case_;
    std::vector<Matrix> matrices_;
    std::vector<Set> sets_;
    std::shared_ptr<moe_runtime> runtime_;
    std::shared_ptr<moe_plan> plan_;
    std::shared_ptr<moe_workspace> workspace_;
    std::vector<unsigned char> x_, out_;
    std::vector<float> weights_;
};

}  // namespace moe::bench
