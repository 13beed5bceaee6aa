// run_generic: a grouped gemm (gemm_args.hpp) of any packed type but f32, any shape, on any GPU
// from sm_80: mma.sync.m16n8k16 with 16-bit operands and float32 sums.
//
// Weights: the packed layout (weights/packed.hpp), k a multiple of 16. Tiles: up to 64 rows of one
// expert. Input rows: F32, F16 or BF16, any stride; rows of the operand's type that begin on 16
// bytes are copied as they are, others are converted. One block of 256 threads works on 64 tokens
// and 128 weight rows at a time; warp w owns weight tile w of the eight.
//   1. Each block of threads takes (token tile, group of weight tiles) pairs in turn.
//   2. Stages in shared memory are filled ahead: 64 columns of the tokens, in natural order, rows
//   of
//      128 bytes whose 16-byte chunk c lies at c ^ (row & 7); and every warp's block of weights.
//   3. Per stage: a warp decodes its 16 x 64 weights into the 16 A registers of four mma steps;
//   lane
//      (g, t) reads columns 16 t to 16 t + 15 of token g, which are its B registers of the four.
//   4. What is left of k, 32 and 16 columns, is decoded value by value.
//   5. Sums go through shared memory to the epilogue.
#include "libmoe/cuda/dequant/packed_value.hpp"
#include "libmoe/cuda/dequant/values.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/epilogue.cuh"
#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/gemm_families.hpp"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 32 * tiles_of_group;
constexpr int max_rows = generic_tiles.max_rows;
constexpr int row_bytes = 128;
constexpr int token_bytes = max_rows * row_bytes;  // of a stage
constexpr int sum_bytes = max_rows * sum_stride * static_cast<int>(sizeof(float));
// What every architecture from sm_80 grants a block; two blocks fit an SM of 228 KB.
constexpr int dynamic_bytes = 97 * 1024;
constexpr int max_stages = 7;  // wait_copies
constexpr int fragments = max_rows / 8;

struct Call {
    GemmArgs gemm;
    int n_stages;
    int slot_bytes;  // of a warp's weights in a stage
    bool copies;     // input rows need no conversion and begin on 16 bytes
};

struct Shared {
    RowPlaces<max_rows> rows;
    float codebook[64];
};

// Of eight tokens.
__device__ int n_fragments_of(const Work& work) {
    return (work.tile.n_rows + 7) / 8;
}

struct Lane {
    int warp = static_cast<int>(threadIdx.x) / 32;
    int id = static_cast<int>(threadIdx.x) % 32;
    int g = id / 4;
    int t = id % 4;
};

__device__ int token_place(int row, int chunk) {
    return row * row_bytes + 16 * (chunk ^ (row & 7));
}

__device__ void copy_bytes(std::byte* to, const std::byte* from, int bytes, int lane) {
    for (int i = 16 * lane; i < bytes; i += 32 * 16) copy_async_16(to + i, from + i);
}

// The warp's weights of the block at k0.
__device__ void fetch_weights(const Call& call, const Work& work, int64_t k0, std::byte* slot,
                              int lane) {
    if (!work.codes) return;
    const PackedType type = call.gemm.weights.type;
    const BlockOffset place = block_offset(type, call.gemm.weights.k, k0, 4);
    const int code_bytes = block_code_bytes(type, 4);
    copy_bytes(slot, work.codes + place.codes, code_bytes, lane);
    copy_bytes(slot + code_bytes, work.codes + place.scales, shared_scale_bytes(type), lane);
}

__device__ void copy_tokens(const Call& call, const Work& work, const Shared& shared, int64_t k0,
                            int chunks, std::byte* tokens) {
    const auto* in = static_cast<const uint16_t*>(call.gemm.in.data);
    const int n = 8 * n_fragments_of(work) * 8;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += n_threads) {
        const int row = i / 8;
        const int chunk = i % 8;
        const int64_t offset = shared.rows.in[row];
        const bool present = offset >= 0;
        if (chunk >= chunks) continue;
        const uint16_t* from = present ? in + offset + k0 + 8 * chunk : in;
        copy_async_16(tokens + token_place(row, chunk), from, present);
    }
}

// A warp converts a row at a time, two columns a lane.
template <Operand operand>
__device__ void convert_tokens(const Call& call, const Work& work, const Shared& shared, int64_t k0,
                               int chunks, std::byte* tokens) {
    const DeviceRows& in = call.gemm.in;
    const Lane lane;
    if (lane.id >= 4 * chunks) return;
#pragma unroll 4
    for (int row = lane.warp; row < 8 * n_fragments_of(work); row += tiles_of_group) {
        const int64_t offset = shared.rows.in[row];
        FloatPair value = {0.0f, 0.0f};
        if (offset >= 0) {
            const int64_t i = offset + k0 + 2 * lane.id;
            value = {load_value(in.data, in.type, i), load_value(in.data, in.type, i + 1)};
        }
        std::byte* to = tokens + token_place(row, lane.id / 4) + 4 * (lane.id % 4);
        *reinterpret_cast<uint32_t*>(to) = operand_pair<operand>(value);
    }
}

template <Operand operand>
__device__ void fetch_tokens(const Call& call, const Work& work, const Shared& shared, int64_t k0,
                             int chunks, std::byte* tokens) {
    if (call.copies) {
        copy_tokens(call, work, shared, k0, chunks, tokens);
    } else {
        convert_tokens<operand>(call, work, shared, k0, chunks, tokens);
    }
}

// Columns 16 t .. 16 t + 15 of token g of a fragment: b0, b1 of four steps.
__device__ void load_tokens(const std::byte* tokens, int fragment, const Lane& lane,
                            uint32_t (&b)[8]) {
    const int row = 8 * fragment + lane.g;
    load_words<4>(tokens + token_place(row, 2 * lane.t), b);
    load_words<4>(tokens + token_place(row, 2 * lane.t + 1), b + 4);
}

template <Operand operand>
__device__ void multiply_fragment(const uint32_t (&a)[16], const std::byte* tokens, int fragment,
                                  const Lane& lane, float (&sums)[4]) {
    uint32_t b[8];
    load_tokens(tokens, fragment, lane, b);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        mma_16x8x16<operand>(sums, a + 4 * step, b[2 * step], b[2 * step + 1]);
    }
}

// A full tile has no branches between its fragments.
template <Operand operand>
__device__ void multiply_block(const uint32_t (&a)[16], const std::byte* tokens, int n_fragments,
                               const Lane& lane, float (&sums)[fragments][4]) {
    if (n_fragments == fragments) {
#pragma unroll
        for (int i = 0; i < fragments; ++i) {
            multiply_fragment<operand>(a, tokens, i, lane, sums[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < fragments - 1; ++i) {
        if (i < n_fragments) multiply_fragment<operand>(a, tokens, i, lane, sums[i]);
    }
}

// The types that only this kernel reads have a kernel of their own: their decoders want registers
// that the loop of the others needs.
MOE_HOST_DEVICE constexpr bool is_rare(PackedType type) {
    return is_grid(type) || (has_ggml_scales(type) && type != PackedType::q4_k);
}

// Register `reg` of a step of the block at k0, value by value.
template <Operand operand>
__device__ uint32_t one_register(const Call& call, const Work& work, const float* codebook,
                                 int64_t k0, int n, int lane, int step, int reg) {
    const PackedMatrix& weights = call.gemm.weights;
    const PackedType type = weights.type;
    const BlockOffset place = block_offset(type, weights.k, k0, n);
    const float scale_back = 1.0f / residual_scale(type, operand);
    const auto value = [&](int parity) {
        return scale_back * packed_value(type, work.codes + place.codes, work.codes + place.scales,
                                         codebook, weights.columns_of(work.tile.expert, reg & 1),
                                         k0, n, lane, {step, reg, parity});
    };
    return operand_pair<operand>({value(0), value(1)});
}

// The same for all of a block of 64: types with a table of columns.
template <Operand operand>
__device__ void decode_by_columns(const Call& call, const Work& work, const float* codebook,
                                  int64_t k0, int lane, uint32_t (&a)[16]) {
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
        const uint32_t pair =
            one_register<operand>(call, work, codebook, k0, 4, lane, i / 4, i % 4);
#pragma unroll
        for (int j = 0; j < 16; ++j) a[j] = j == i ? pair : a[j];
    }
}

// slot: the block in its stage. Scales of a grid are read where they lie.
template <Operand operand, bool rare>
__device__ void decode_block(PackedType type, const std::byte* tile, const std::byte* slot,
                             const float* codebook, int64_t block, int lane, uint32_t (&a)[16]) {
    with_packed_type(type, [&]<PackedType of>() {
        if constexpr (of != PackedType::f32 && is_rare(of) == rare) {
            const std::byte* scales = is_grid(of) ? tile : slot + block_code_bytes(of, 4);
            const auto words = ValueDequant<of>::load(type, slot, scales, lane, block);
            dequantize_operands<operand, of>(words, codebook, a);
        }
    });
}

// The blocks of 64 columns.
template <Operand operand, bool rare>
__device__ void multiply_blocks(const Call& call, const Work& work, const Shared& shared,
                                std::byte* stages, float (&sums)[fragments][4]) {
    const Lane lane;
    const PackedMatrix& weights = call.gemm.weights;
    const int n_blocks = weights.k / 64;
    const int stage_bytes = token_bytes + tiles_of_group * call.slot_bytes;
    const auto fetch = [&](int block, int stage) {
        std::byte* tokens = stages + stage * stage_bytes;
        if (block < n_blocks) {
            const int64_t k0 = int64_t{64} * block;
            fetch_weights(call, work, k0, tokens + token_bytes + lane.warp * call.slot_bytes,
                          lane.id);
            fetch_tokens<operand>(call, work, shared, k0, 8, tokens);
        }
        commit_copies();
    };
    const int ahead = call.n_stages - 1;
    for (int block = 0; block < ahead; ++block) fetch(block, block);
    int stage = 0;
    int filled = ahead;  // the stage to fill next
    for (int block = 0; block < n_blocks; ++block) {
        wait_copies(ahead - 1);
        __syncthreads();  // the stage is there, and the one before it has been read
        fetch(block + ahead, filled);
        const std::byte* tokens = stages + stage * stage_bytes;
        if (work.codes) {
            uint32_t a[16];
            if (rare && weights.columns)
                decode_by_columns<operand>(call, work, shared.codebook, int64_t{64} * block,
                                           lane.id, a);
            else
                decode_block<operand, rare>(weights.type, work.codes,
                                            tokens + token_bytes + lane.warp * call.slot_bytes,
                                            shared.codebook, block, lane.id, a);
            multiply_block<operand>(a, tokens, n_fragments_of(work), lane, sums);
        }
        stage = stage + 1 == call.n_stages ? 0 : stage + 1;
        filled = filled + 1 == call.n_stages ? 0 : filled + 1;
    }
    wait_copies<0>();
    __syncthreads();
}

// A block of 32 or 16 columns: n steps. A lane's 4 n columns are b0, b1 of its steps.
template <Operand operand>
__device__ void multiply_short(const Call& call, const Work& work, const Shared& shared, int64_t k0,
                               int n, std::byte* tokens, float (&sums)[fragments][4]) {
    const Lane lane;
    fetch_tokens<operand>(call, work, shared, k0, 2 * n, tokens);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
#pragma unroll 1
    for (int step = 0; work.codes && step < n; ++step) {
        uint32_t a[4];
#pragma unroll 1
        for (int reg = 0; reg < 4; ++reg) {
            const uint32_t pair =
                one_register<operand>(call, work, shared.codebook, k0, n, lane.id, step, reg);
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = i == reg ? pair : a[i];
        }
        const int byte = 8 * (n * lane.t + step);
#pragma unroll
        for (int i = 0; i < fragments; ++i) {
            if (i >= n_fragments_of(work)) continue;
            uint32_t b[2];
            load_words<2>(tokens + token_place(8 * i + lane.g, byte / 16) + byte % 16, b);
            mma_16x8x16<operand>(sums[i], a, b[0], b[1]);
        }
    }
    __syncthreads();
}

__device__ void store_sums(const float (&sums)[fragments][4], int n_fragments, float* to) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        if (i >= n_fragments) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int token = 8 * i + 2 * lane.t + (j & 1);
            to[token * sum_stride + 16 * lane.warp + lane.g + 8 * (j >> 1)] = sums[i][j];
        }
    }
}

template <Operand operand, bool rare>
__global__ void __launch_bounds__(n_threads, 2) generic_gemm(const __grid_constant__ Call call) {
    extern __shared__ __align__(128) std::byte stages[];
    __shared__ Shared shared;
    const GemmArgs& gemm = call.gemm;
    begin_after_previous_kernel();
    const int64_t n_items = int64_t{gemm.n_tiles->all} * groups_of_tiles(gemm.weights);
    for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
        const Work work = take_work(gemm, item);
        find_rows(gemm, work.tile, shared.rows);
        load_codebook(gemm.weights, work.tile.expert, shared.codebook);
        __syncthreads();
        float sums[fragments][4] = {};
        multiply_blocks<operand, rare>(call, work, shared, stages, sums);
        const int64_t k = gemm.weights.k;
        for (int64_t k0 = k / 64 * 64; k0 < k;) {
            const int n = steps_of_block(k0, k);
            multiply_short<operand>(call, work, shared, k0, n, stages, sums);
            k0 += 16 * n;
        }
        auto* tile_sums = reinterpret_cast<float*>(stages);
        store_sums(sums, n_fragments_of(work), tile_sums);
        __syncthreads();
        finish_tile(gemm, work.tile, shared.rows, work.first_tile, tile_sums,
                    residual_scale(gemm.weights.type, operand));
        __syncthreads();  // before the next pair overwrites rows and stages
    }
}

using Kernel = void (*)(Call);

Kernel kernel_of(moe_type operand, bool rare) {
    if (operand == MOE_TYPE_F16)
        return rare ? generic_gemm<Operand::f16, true> : generic_gemm<Operand::f16, false>;
    return rare ? generic_gemm<Operand::bf16, true> : generic_gemm<Operand::bf16, false>;
}

bool can_copy(const DeviceRows& in, moe_type operand) {
    return in.type == operand && reinterpret_cast<uintptr_t>(in.data) % 16 == 0 &&
           in.stride % 8 == 0;
}

Call make_call(const GemmArgs& gemm, moe_type operand) {
    const PackedType type = gemm.weights.type;
    const int slot = block_code_bytes(type, 4) + shared_scale_bytes(type);
    const int stages = dynamic_bytes / (token_bytes + tiles_of_group * slot);
    return {gemm, stages < max_stages ? stages : max_stages, slot, can_copy(gemm.in, operand)};
}

static_assert(dynamic_bytes >= sum_bytes);
static_assert(dynamic_bytes / (token_bytes + tiles_of_group * 2048) >= 4);

}  // namespace

void run_generic(const DeviceFacts& device, const GemmArgs& gemm, moe_type operand,
                 cudaStream_t stream) {
    const int64_t n_items = int64_t{gemm.max_tiles} * groups_of_tiles(gemm.weights);
    const int64_t resident = 2 * int64_t{device.n_sms};
    const auto kernel = kernel_of(operand, is_rare(gemm.weights.type));
    launch("generic gemm", kernel, n_items < resident ? n_items : resident, n_threads,
           dynamic_bytes, stream, make_call(gemm, operand));
}

void prepare_generic() {
    for (const moe_type operand : {MOE_TYPE_BF16, MOE_TYPE_F16})
        for (const bool rare : {false, true})
            load("generic gemm", kernel_of(operand, rare), dynamic_bytes);
}

}  // namespace moe::cuda
