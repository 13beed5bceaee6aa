// run_generic: grouped GEMM (gemm_args.hpp) of any packed type but f32 on any GPU from sm_80, with
// mma.sync.m16n8k16, 16-bit operands and float32 accumulators.
//
// Inputs: packed weights (packed/layout.hpp) [experts][n_tiles * 16][k]; input rows of F32, F16 or
// BF16 with any stride; tiles of up to 64 rows of one expert.
// Output: rows of gemm.out's type, after the epilogue.
// Preconditions: input rows have a multiple of 16 columns. Those of the operand type that begin on
// 16 bytes are copied; all others are converted.
//
// A block has 256 threads. A work item is 64 tokens and 128 weight rows; warp w owns weight tile w
// of eight.
//
// 1. A block takes work items in turn (persistent kernel).
// 2. It prefetches pipeline stages with cp.async: 64 columns of the tokens and one block of weights
//    per warp. Token rows of 128 bytes swizzle their 16-byte vectors, v at v ^ (row & 7), to avoid
//    bank conflicts.
// 3. Mainloop: a warp dequantizes 16 x 64 weights to the 16 A registers of four mma steps. Lane (g,
//    t) reads columns 16 t to 16 t + 15 of token g, its B registers of these steps.
// 4. Epilogue: accumulators pass through shared memory (epilogue.cuh).
#include "libmoe/cuda/dequant/packed_value.hpp"
#include "libmoe/cuda/dequant/values.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/epilogue.cuh"
#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/generic/generic.hpp"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 32 * tiles_of_group;
constexpr int max_rows = generic_tiles.max_rows;
constexpr int row_bytes = 128;
constexpr int token_bytes = max_rows * row_bytes;  // per stage
constexpr int accum_bytes = max_rows * accum_stride * static_cast<int>(sizeof(float));
// Every architecture from sm_80 grants a block this much; two blocks fit an SM of 228 KB.
constexpr int dynamic_bytes = 97 * 1024;
constexpr int max_stages = 7;  // wait_copies counts to 6
constexpr int fragments = max_rows / 8;

struct Call {
    GemmArgs gemm;
    int n_stages;
    int weight_bytes;  // of one warp in a stage
    bool copies;       // input rows need no conversion and begin on 16 bytes
};

struct Shared {
    TileRows<max_rows> rows;
    float codebook[64];
};

// A fragment holds eight tokens.
__device__ int n_fragments_of(const WorkItem& work) {
    return (work.tile.n_rows + 7) / 8;
}

struct Lane {
    int warp = static_cast<int>(threadIdx.x) / 32;
    int id = static_cast<int>(threadIdx.x) % 32;
    int g = id / 4;
    int t = id % 4;
};

__device__ int token_offset(int row, int vector) {
    return row * row_bytes + 16 * (vector ^ (row & 7));
}

__device__ void copy_bytes(std::byte* to, const std::byte* from, int bytes, int lane) {
    for (int i = 16 * lane; i < bytes; i += 32 * 16) copy_async_16(to + i, from + i);
}

// Issues the copies of the warp's weights of the block at k0.
__device__ void fetch_weights(const Call& call, const WorkItem& work, int64_t k0, std::byte* staged,
                              int lane) {
    if (!work.codes) return;
    const PackedType type = call.gemm.weights.type;
    const BlockOffset offset = block_offset(type, call.gemm.weights.k, k0);
    const int code_bytes = block_code_bytes(type, 4);
    copy_bytes(staged, work.codes + offset.codes, code_bytes, lane);
    copy_bytes(staged + code_bytes, work.codes + offset.scales, shared_scale_bytes(type), lane);
}

__device__ void copy_tokens(const Call& call, const WorkItem& work, const Shared& shared,
                            int64_t k0, int n_vectors, std::byte* tokens) {
    const auto* in = static_cast<const uint16_t*>(call.gemm.in.data);
    const int n = 8 * n_fragments_of(work) * 8;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += n_threads) {
        const int row = i / 8;
        const int vector = i % 8;
        const int64_t offset = shared.rows.in[row];
        const bool present = offset >= 0 && vector < n_vectors;
        const uint16_t* from = present ? in + offset + k0 + 8 * vector : in;
        copy_async_16(tokens + token_offset(row, vector), from, present);
    }
}

// A warp converts one row at a time, two columns per lane.
template <Operand operand>
__device__ void convert_tokens(const Call& call, const WorkItem& work, const Shared& shared,
                               int64_t k0, int n_vectors, std::byte* tokens) {
    const DeviceRows& in = call.gemm.in;
    const Lane lane;
#pragma unroll 4
    for (int row = lane.warp; row < 8 * n_fragments_of(work); row += tiles_of_group) {
        const int64_t offset = shared.rows.in[row];
        FloatPair value = {0.0f, 0.0f};
        if (offset >= 0 && lane.id < 4 * n_vectors) {
            const int64_t i = offset + k0 + 2 * lane.id;
            value = {load_value(in.data, in.type, i), load_value(in.data, in.type, i + 1)};
        }
        std::byte* to = tokens + token_offset(row, lane.id / 4) + 4 * (lane.id % 4);
        *reinterpret_cast<uint32_t*>(to) = operand_pair<operand>(value);
    }
}

template <Operand operand>
__device__ void fetch_tokens(const Call& call, const WorkItem& work, const Shared& shared,
                             int64_t k0, int n_vectors, std::byte* tokens) {
    if (call.copies) {
        copy_tokens(call, work, shared, k0, n_vectors, tokens);
    } else {
        convert_tokens<operand>(call, work, shared, k0, n_vectors, tokens);
    }
}

// Loads columns 16 t .. 16 t + 15 of token g of a fragment: b0 and b1 of four steps.
__device__ void load_tokens(const std::byte* tokens, int fragment, const Lane& lane,
                            uint32_t (&b)[8]) {
    const int row = 8 * fragment + lane.g;
    load_words<4>(tokens + token_offset(row, 2 * lane.t), b);
    load_words<4>(tokens + token_offset(row, 2 * lane.t + 1), b + 4);
}

template <Operand operand>
__device__ void multiply_fragment(const uint32_t (&a)[16], const std::byte* tokens, int fragment,
                                  const Lane& lane, float (&accum)[4]) {
    uint32_t b[8];
    load_tokens(tokens, fragment, lane, b);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        mma_16x8x16<operand>(accum, a + 4 * step, b[2 * step], b[2 * step + 1]);
    }
}

// A full tile takes the first loop, which has no branches between fragments.
template <Operand operand>
__device__ void multiply_block(const uint32_t (&a)[16], const std::byte* tokens, int n_fragments,
                               const Lane& lane, float (&accum)[fragments][4]) {
    if (n_fragments == fragments) {
#pragma unroll
        for (int i = 0; i < fragments; ++i) {
            multiply_fragment<operand>(a, tokens, i, lane, accum[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < fragments - 1; ++i) {
        if (i < n_fragments) multiply_fragment<operand>(a, tokens, i, lane, accum[i]);
    }
}

// Types that only this kernel reads have an instance of their own: their dequantization would raise
// the register pressure of the others.
MOE_HOST_DEVICE constexpr bool is_rare(PackedType type) {
    return is_grid(type) || (has_ggml_scales(type) && type != PackedType::q4_k);
}

// Dequantizes register `reg` of a step of the block at k0, value by value.
template <Operand operand>
__device__ uint32_t one_register(const Call& call, const WorkItem& work, const float* codebook,
                                 int64_t k0, int lane, int step, int reg) {
    const PackedMatrix& weights = call.gemm.weights;
    const PackedType type = weights.type;
    const BlockOffset offset = block_offset(type, weights.k, k0);
    const float scale_back = 1.0f / residual_scale(type, operand);
    const auto value = [&](int parity) {
        return scale_back * packed_value(type, work.codes + offset.codes,
                                         work.codes + offset.scales, codebook, k0, 4, lane,
                                         {step, reg, parity});
    };
    return operand_pair<operand>({value(0), value(1)});
}

// `staged`: the block in its stage. Scales of a grid type are read from global memory.
template <Operand operand, bool rare>
__device__ void dequantize_block(PackedType type, const std::byte* tile, const std::byte* staged,
                                 const float* codebook, int64_t block, int lane,
                                 uint32_t (&a)[16]) {
    with_packed_type(type, [&]<PackedType of>() {
        if constexpr (of != PackedType::f32 && is_rare(of) == rare) {
            const std::byte* scales = is_grid(of) ? tile : staged + block_code_bytes(of, 4);
            const auto words = ValueDequant<of>::load(type, staged, scales, lane, 64 * block);
            dequantize_operands<operand, of>(words, codebook, a);
        }
    });
}

// Mainloop over the blocks of 64 columns.
template <Operand operand, bool rare>
__device__ void multiply_blocks(const Call& call, const WorkItem& work, const Shared& shared,
                                std::byte* stages, float (&accum)[fragments][4]) {
    const Lane lane;
    const PackedMatrix& weights = call.gemm.weights;
    const int n_blocks = weights.k / 64;
    const int stage_bytes = token_bytes + tiles_of_group * call.weight_bytes;
    const auto fetch = [&](int block, int stage) {
        std::byte* tokens = stages + stage * stage_bytes;
        if (block < n_blocks) {
            const int64_t k0 = int64_t{64} * block;
            fetch_weights(call, work, k0, tokens + token_bytes + lane.warp * call.weight_bytes,
                          lane.id);
            fetch_tokens<operand>(call, work, shared, k0, (call.gemm.in_columns - 64 * block) / 8,
                                  tokens);
        }
        commit_copies();
    };
    const int ahead = call.n_stages - 1;
    for (int block = 0; block < ahead; ++block) fetch(block, block);
    int stage = 0;
    int filled = ahead;  // the stage to fill next
    for (int block = 0; block < n_blocks; ++block) {
        wait_copies(ahead - 1);
        __syncthreads();  // this stage is full, and all warps have read the one before
        fetch(block + ahead, filled);
        const std::byte* tokens = stages + stage * stage_bytes;
        if (work.codes) {
            uint32_t a[16];
            dequantize_block<operand, rare>(weights.type, work.codes,
                                            tokens + token_bytes + lane.warp * call.weight_bytes,
                                            shared.codebook, block, lane.id, a);
            multiply_block<operand>(a, tokens, n_fragments_of(work), lane, accum);
        }
        stage = stage + 1 == call.n_stages ? 0 : stage + 1;
        filled = filled + 1 == call.n_stages ? 0 : filled + 1;
    }
    wait_copies<0>();
    __syncthreads();
}

__device__ void store_accum(const float (&accum)[fragments][4], int n_fragments, float* to) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        if (i >= n_fragments) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int token = 8 * i + 2 * lane.t + (j & 1);
            to[token * accum_stride + 16 * lane.warp + lane.g + 8 * (j >> 1)] = accum[i][j];
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
        const WorkItem work = load_work_item(gemm, item);
        find_rows(gemm, work.tile, shared.rows);
        load_codebook(gemm.weights, work.tile.expert, shared.codebook);
        __syncthreads();
        float accum[fragments][4] = {};
        multiply_blocks<operand, rare>(call, work, shared, stages, accum);
        auto* tile_accum = reinterpret_cast<float*>(stages);
        store_accum(accum, n_fragments_of(work), tile_accum);
        __syncthreads();
        tile_epilogue(gemm, work.tile, shared.rows, work.first_tile, tile_accum,
                      residual_scale(gemm.weights.type, operand));
        __syncthreads();  // the next work item overwrites rows and stages
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
    const int weight_bytes = block_code_bytes(type, 4) + shared_scale_bytes(type);
    const int stages = dynamic_bytes / (token_bytes + tiles_of_group * weight_bytes);
    return {gemm, stages < max_stages ? stages : max_stages, weight_bytes,
            can_copy(gemm.in, operand)};
}

static_assert(dynamic_bytes >= accum_bytes);
static_assert(dynamic_bytes / (token_bytes + tiles_of_group * 2048) >= 4);

}  // namespace

void run_generic(const DeviceFacts& device, const GemmArgs& gemm, const KernelName& name,
                 moe_type operand, cudaStream_t stream) {
    const int64_t n_items = int64_t{gemm.max_tiles} * groups_of_tiles(gemm.weights);
    const int64_t resident = 2 * int64_t{device.n_sms};
    const auto kernel = kernel_of(operand, is_rare(gemm.weights.type));
    launch(name.c_str(), kernel, n_items < resident ? n_items : resident, n_threads, dynamic_bytes,
           stream, make_call(gemm, operand));
}

void prepare_generic(PackedType type, moe_type operand) {
    load("generic GEMM", kernel_of(operand, is_rare(type)), dynamic_bytes);
}

}  // namespace moe::cuda
