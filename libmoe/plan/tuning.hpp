// The tuning numbers: one row per architecture. They are the only numbers by which plan/ chooses
// launch configurations; what a kernel cannot do at all is stated beside the kernel.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/launch_plan.hpp"

namespace moe {

// Shared memory and warps of one thread block of a gemv kernel. The pipeline grows up to max_bytes.
// A block requests min_bytes at least, so that no SM takes two blocks of one kernel while another
// SM has none: that costs up to half of the speed.
struct SmemLimits {
    int32_t max_warps;
    int32_t k_block_bytes;  // of a pipeline stage at most, where one min_split fits
    int32_t min_bytes;
    int32_t max_bytes;
};

// A call with few weight bytes shares each SM between a block of gate_up and one of down, so that
// down's weights arrive while gate_up computes. A call with many has an SM per block: the larger
// pipeline is worth more there, and gate_up splits k over groups of warps.
struct GemvTuning {
    int32_t h_bytes;  // of h in shared memory at most
    bool has_clusters;
    bool copies_in_lines;  // k_blocks begin in a stage where they do in a line of memory
    bool copies_tables;    // of iq2 and iq3 in shared memory (codebook_mode.hpp)
    int32_t
        shared_sm_bytes;  // of an SM for one block of gate_up and one of down; 0: never together
    int64_t large_bytes;  // weight bytes of a large call
    int64_t large_bytes_shared_codebook;  // of several tokens with one codebook for all experts
    int32_t narrow_warps;                 // of gate_up in a large call, codes of up to five bits
    int64_t prefetch_bytes;               // of one token's shared expert, into the L2, at most
    int32_t least_sms_of_row;  // with fewer, rows with an expert each take the grouped GEMM
    SmemLimits gate_up_small, down_small, gate_up_large, down_large;
};

// The grouped GEMMs and the launches around them.
struct GroupedTuning {
    int32_t max_indexed_features;  // up to them Hopper's GEMM reads rows of x by their index
    int64_t max_f32_y_elements;    // beyond, rows of y are bfloat16
    cuda::TileChoice tiles;
};

struct RouterTuning {
    int32_t max_small_batch_tokens;  // of the logits kernel for small batches
    int32_t block_select_tokens_per_sm;
    int32_t max_gate_in_combine_tokens;  // beyond, the shared expert's gate has a kernel of its own
};

struct Tuning {
    cuda::Architecture architecture;
    const char* measured_on;  // a card, or "not run"
    GemvTuning gemv;
    GroupedTuning grouped;
    RouterTuning router;
};

// The row of a device. Where a row leaves the limits of shared memory at zero, they follow from
// what one thread block of the device can have.
Tuning tuning_of(const cuda::DeviceFacts& device);

}  // namespace moe
