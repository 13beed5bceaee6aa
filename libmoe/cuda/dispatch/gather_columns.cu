// Gathers rows by expert and permutes or multiplies their columns (gather_columns.hpp).
//
// Inputs: rows [.., k] of F32, F16 or BF16, or token blocks of bfloat16; the tables of the experts;
// Rows as dispatch sorted them, whose experts begin on multiples of eight rows.
// Output: rows of F32, F16 or BF16, or token blocks. In place, `out` is `in`.
// Preconditions: k is a multiple of 64 and n_columns of 16; a row of k elements fits the shared
// memory of a block.
//
// A block takes eight rows at a time, which belong to one expert:
//   1. each warp finds the expert: the last one that begins at or before the rows
//   2. a part of the rows, as many as fit, is copied to shared memory as it is
//   3. a thread reads the table for eight columns of the output, looks them up in each of these
//      rows and stores them: 16 bytes, or 32 of float32
// Columns of a row are read in any order, so they come from shared memory; a table is read once for
// the rows of step 2.
#include <algorithm>
#include <type_traits>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/dispatch/gather_columns.hpp"
#include "libmoe/cuda/dispatch/tiles.hpp"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr int n_rows = row_alignment;
// A few blocks share an SM, unless one row needs more.
constexpr int64_t wanted_bytes = 32 * 1024;
constexpr int most_bytes = static_cast<int>(most_table_columns) * 4;

struct Call {
    ColumnGather gather;
    Rows rows;
    const int32_t* index;  // null: rows lie where they are wanted, and those without a slot stay
    int32_t divisor;
    bool packets;          // rows of the input begin on 16 bytes
    int32_t rows_at_once;  // in shared memory
};

__device__ int32_t used_rows(const Rows& rows) {
    const int32_t last = rows.n_experts - 1;
    const int64_t used = round_up_to(
        int64_t{load_global(rows.begin + last)} + load_global(rows.count + last), row_alignment);
    return static_cast<int32_t>(used < rows.capacity ? used : rows.capacity);
}

// Experts without rows begin where the next one does, so the last one that begins here has the row.
__device__ int32_t expert_of(const Rows& rows, int32_t row) {
    int32_t n = 0;
#pragma unroll 1
    for (int32_t first = 0; first < rows.n_experts; first += 32) {
        const int32_t e = first + lane_index();
        const bool begins = e < rows.n_experts && load_global(rows.begin + e) <= row;
        n += __popc(__ballot_sync(every_lane, begins));
    }
    return n - 1;
}

// The row of the input that sorted row r has; -1: none.
__device__ int32_t source_of(const Call& call, int32_t r) {
    if (!call.index) return load_global(call.rows.slot + r) < 0 ? -1 : r;
    const int32_t i = load_global(call.index + r);
    return i < 0 ? -1 : i / call.divisor;
}

// The 16-byte vector c of block b of row r, in token blocks of `capacity` rows.
__device__ std::byte* block_vector(const ColumnRows& to, int32_t b, int32_t r, int32_t c) {
    auto* data = static_cast<std::byte*>(const_cast<void*>(to.rows.data));
    return data + (int64_t{b} * to.capacity + r) * 128 + (c ^ (r & 7)) * 16;
}

// Vector v = 8 b + c of a row of token blocks holds four pairs of columns, 16 apart; of other rows
// eight columns side by side.
__device__ int32_t pair_column(bool is_blocks, int32_t v, int32_t i) {
    return is_blocks ? v / 8 * 64 + 16 * i + 2 * (v % 8) : 8 * v + 2 * i;
}

// `size`: bytes of an element of the input, which are kept as they are.
template <int size>
__device__ void stage_row(const Call& call, int32_t from, std::byte* to) {
    const ColumnRows& in = call.gather.in;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    if (in.capacity) {
        for (int32_t v = thread; v < call.gather.k / 8; v += n_threads) {
            const uint4 vector =
                *reinterpret_cast<const uint4*>(block_vector(in, v / 8, from, v % 8));
            const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                *reinterpret_cast<uint32_t*>(to + size * pair_column(true, v, i)) = words[i];
        }
        return;
    }
    const std::byte* row = element_at(in.rows.data, in.rows.type, from * in.rows.stride);
    if (call.packets) {
        for (int32_t i = 16 * thread; i < size * call.gather.n_columns; i += 16 * n_threads)
            *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(row + i);
        return;
    }
    using Element = std::conditional_t<size == 4, uint32_t, uint16_t>;
    for (int32_t k = thread; k < call.gather.n_columns; k += n_threads)
        reinterpret_cast<Element*>(to)[k] = reinterpret_cast<const Element*>(row)[k];
}

template <int size>
__device__ float staged_value(const std::byte* row, moe_type type, uint32_t column) {
    if constexpr (size == 4) return reinterpret_cast<const float*>(row)[column];
    return widen(reinterpret_cast<const uint16_t*>(row)[column], type);
}

template <int size>
__device__ float column_value(const ColumnGather& gather, const std::byte* row, int32_t k,
                              uint32_t word) {
    const moe_type type = gather.in.rows.type;
    if (k >= gather.n_columns) return 0.0f;
    if (gather.table == ColumnTable::factors)
        return staged_value<size>(row, type, static_cast<uint32_t>(k)) * __uint_as_float(word);
    if (word >= static_cast<uint32_t>(gather.n_columns)) return 0.0f;
    return staged_value<size>(row, type, word);
}

__device__ void store_vector(const ColumnRows& out, int32_t r, int32_t v, const float (&x)[8]) {
    if (!out.capacity)
        return store_values(const_cast<void*>(out.rows.data), out.rows.type,
                            r * out.rows.stride + 8 * v, x);
    store_values(block_vector(out, v / 8, r, v % 8), out.rows.type, 0, x);
}

// Rows first .. first + rows_at_once of the eight, from shared memory to the output.
template <int size>
__device__ void write_rows(const Call& call, int32_t expert, const int32_t (&from)[n_rows],
                           int32_t first_row, int32_t first, const std::byte* staged) {
    const ColumnGather& gather = call.gather;
    const uint32_t* table = gather.columns + int64_t{2} * expert * gather.k;
    const int32_t end = min(first + call.rows_at_once, n_rows);
    const int32_t n_vectors = (gather.out.capacity ? gather.k : gather.n_columns) / 8;
    for (auto v = static_cast<int32_t>(threadIdx.x); v < n_vectors; v += n_threads) {
        uint2 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = *reinterpret_cast<const uint2*>(table +
                                                       pair_column(gather.out.capacity != 0, v, i));
#pragma unroll 1
        for (int32_t i = first; i < end; i++) {
            if (from[i] < 0 && !call.index) continue;
            const std::byte* row = staged + (i - first) * size * gather.k;
            float x[8] = {};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (from[i] < 0) break;
                const int32_t k = pair_column(gather.out.capacity != 0, v, j);
                x[2 * j] = column_value<size>(gather, row, k, words[j].x);
                x[2 * j + 1] = column_value<size>(gather, row, k + 1, words[j].y);
            }
            store_vector(gather.out, first_row + i, v, x);
        }
    }
}

template <int size>
__global__ void __launch_bounds__(n_threads) gather_columns(const __grid_constant__ Call call) {
    extern __shared__ __align__(16) std::byte staged[];
    __shared__ int32_t from[n_rows];
    wait_for_previous_kernel();
    let_next_kernel_start();  // the next kernel reads the tiles before its own wait
    if (call.index && blockIdx.x == 0 && threadIdx.x < n_tile_counters)
        call.rows.tile_counter[threadIdx.x] = 0;
    const int32_t n_groups = used_rows(call.rows) / n_rows;
    for (auto group = static_cast<int32_t>(blockIdx.x); group < n_groups;
         group += static_cast<int32_t>(gridDim.x)) {
        const int32_t first_row = n_rows * group;
        if (threadIdx.x < n_rows)
            from[threadIdx.x] = source_of(call, first_row + static_cast<int32_t>(threadIdx.x));
        const int32_t expert = expert_of(call.rows, first_row);
        for (int32_t first = 0; first < n_rows; first += call.rows_at_once) {
            __syncthreads();  // `from` is there; the rows before have been written
            for (int32_t i = first; i < min(first + call.rows_at_once, n_rows); i++)
                if (from[i] >= 0)
                    stage_row<size>(call, from[i], staged + (i - first) * size * call.gather.k);
            __syncthreads();
            write_rows<size>(call, expert, from, first_row, first, staged);
        }
        __syncthreads();  // the next rows overwrite `from`
    }
}

void run(const DeviceFacts& device, const char* name, const ColumnGather& gather, const Rows& rows,
         const int32_t* index, cudaStream_t stream) {
    const DeviceRows& in = gather.in.rows;
    const int64_t row_bytes = gather.k * element_size(in.type);
    const auto at_once =
        static_cast<int32_t>(std::clamp<int64_t>(wanted_bytes / row_bytes, 1, n_rows));
    const Call call{gather, rows, index, in.divisor, takes_packets(in.data, in.stride), at_once};
    const int64_t n_blocks = std::min<int64_t>(rows.capacity / n_rows, 4 * device.n_sms);
    const auto kernel = in.type == MOE_TYPE_F32 ? gather_columns<4> : gather_columns<2>;
    launch(name, kernel, n_blocks, n_threads, static_cast<size_t>(at_once * row_bytes), stream,
           call);
}

}  // namespace

void run_gather_columns(const DeviceFacts& device, const ColumnGather& gather, const Rows& rows,
                        cudaStream_t stream) {
    ColumnGather by_index = gather;
    const int32_t* index = gather.in.rows.index;
    if (!index) {
        index = rows.slot;
        by_index.in.rows.divisor = 1;
    }
    run(device, "gather_columns", by_index, rows, index, stream);
}

void run_permute_columns(const DeviceFacts& device, const ColumnGather& gather, const Rows& rows,
                         cudaStream_t stream) {
    run(device, "permute_columns", gather, rows, nullptr, stream);
}

void prepare_gather_columns() {
    load("gather_columns", gather_columns<2>, most_bytes);
    load("gather_columns", gather_columns<4>, most_bytes);
}

}  // namespace moe::cuda
