// The part of a layer that a plan computes: a set of experts, and a range of features of the routed
// and of the shared intermediate. It is made from moe_slice with its rules checked.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "libmoe/layer/layer.hpp"

namespace moe {

// Steps on which a range of intermediate features may begin and end. The formats of the matrices
// set them: `rows` for inseparable rows of gate and up, `columns` for down. A scale group that a
// view can enter in the middle sets no step.
struct RangeGrid {
    int64_t rows = 1;
    int64_t columns = 1;
};

struct SliceGrid {
    RangeGrid routed;
    RangeGrid shared;
};

struct Slice {
    explicit Slice(std::pmr::memory_resource& memory) : local_of(&memory), global_of(&memory) {}

    std::pmr::vector<int32_t> local_of;   // [E] global expert -> local expert or -1
    std::pmr::vector<int32_t> global_of;  // [n_local]
    int32_t n_local = 0;
    int64_t intermediate_begin = 0;
    int64_t intermediate_count = 0;
    int64_t shared_begin = 0;
    int64_t shared_count = 0;
    bool all_experts = true;  // in whatever order
    bool whole_intermediate = true;
    bool whole_shared = true;

    // Tells whether the local number of every expert is its global one.
    bool every_id_is_local() const;
    bool whole() const { return all_experts && whole_intermediate && whole_shared; }
};

// A null slice is the whole layer. It fails with MOE_ERROR_INVALID_ARGUMENT, naming the field and,
// for a range off the grid, the nearest legal values.
Slice make_slice(std::pmr::memory_resource& memory, const Layer& layer, const moe_slice* slice,
                 const SliceGrid& grid);

}  // namespace moe
