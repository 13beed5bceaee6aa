// Packed weights of the CPU as one block, which a file holds as it is (packed_file_header.hpp):
//   the copies of the matrices, by role and expert, each of matrix_copy_bytes
//   float32 vectors by role, and the int32 hash table
//   by role and expert a MatrixRecord and the codebooks that were given
// Every array begins at a multiple of 64.
#pragma once

#include <string_view>

#include "libmoe/weights/weights_handle.hpp"

namespace moe {

// Values of one matrix that do not follow from the layout.
struct MatrixRecord {
    float global_scale;
    float nested_offset;
    int32_t scale_row_phase;  // of matrices that are not interleaved
    int32_t scale_column_phase;
};

// Offsets of the arrays in a block.
struct HostPlacement {
    uint64_t matrices[MOE_ROLE_COUNT];
    uint64_t vectors[MOE_ROLE_COUNT];
    uint64_t records[MOE_ROLE_COUNT];
    uint64_t hash_table;
    uint64_t matrix_bytes;  // what comes before the vectors
    uint64_t bytes;
};
HostPlacement lay_out_on_host(const WeightsLayout& layout);

// Fails with MOE_ERROR_IO and the path.
void save_host_weights(const moe_weights& weights, std::string_view path);
// The matrices are read where the file is mapped, the rest is copied. All but the matrices is
// checked against its checksum, and every index that a kernel follows is in its range.
moe_weights* open_host_weights(moe_runtime* runtime, const WeightsLayout& layout,
                               std::string_view path);

}  // namespace moe
