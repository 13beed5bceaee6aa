// Brings the columns of activations into the order of a packed matrix, or multiplies them, by the
// table that the matrix has for every expert (PackedMatrix::columns):
//   order    out[r][k] = in[r][columns[expert][k]], zero where there is no such column
//   factors  out[r][k] = in[r][k] * columns[expert][k]
// Its GEMM then reads the rows as those of any other matrix.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/rows.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

// Rows of the input of a GEMM: of any type, or token blocks (grouped_gemm.hpp) of `capacity` rows
// of 16-bit values.
struct ColumnRows {
    DeviceRows rows;       // out: by sorted row; its index is not read
    int32_t capacity = 0;  // 0: rows
};

struct ColumnGather {
    const uint32_t* columns;  // of the experts: two tables of k words each, of which this is one
    ColumnTable table;
    int32_t k;          // of the matrix, at most most_table_columns
    int32_t n_columns;  // of a row; token blocks have zeros from there to k
    ColumnRows in, out;
};

// Gathers rows for gate and up, or for a dense matrix: sorted row r is the row of `in` that its
// index and divisor name (without an index, rows.slot), zero where that is negative. All rows up to
// the last one in use are written, padding included, and rows.tile_counter becomes zero.
void run_gather_columns(const DeviceFacts& device, const ColumnGather& gather, const Rows& rows,
                        cudaStream_t stream);

// The same in place, of rows that are sorted already: h, before down. Padding stays as it is.
void run_permute_columns(const DeviceFacts& device, const ColumnGather& gather, const Rows& rows,
                         cudaStream_t stream);

void prepare_gather_columns();

}  // namespace moe::cuda
