// Fills packed weights with random values. Input: a layout and a seed. Output: the packed bytes of
// every matrix, one thread per 32-bit word. Codes are random bits (dense types: random values);
// bytes of scales come from a narrow range of their type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cuda_runtime.h>
#include <bit>
#include <cmath>

#include "bench/device.hpp"
#include "bench/weights.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/lower.hpp"

namespace moe::bench {
namespace {

constexpr int n_threads = 256;

// A permutation of 32 bits with good mixing (the finaliser of MurmurHash3).
__host__ __device__ uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

__device__ uint32_t random_word(uint64_t index, uint32_t seed) {
    return mix(static_cast<uint32_t>(index) ^ mix(static_cast<uint32_t>(index >> 32) + seed));
}

// Returns a value uniform in [-scale, scale).
__device__ float random_value(uint64_t index, uint32_t seed, float scale) {
    return (static_cast<float>(random_word(index, seed)) * 0x1p-31f - 1.0f) * scale;
}

__device__ uint32_t pair_of(float a, float b, bool is_bf16) {
    if (is_bf16) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
        return *reinterpret_cast<const uint32_t*>(&pair);
    }
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ uint32_t code_word(PackedType type, uint64_t word, uint32_t seed) {
    constexpr float scale = 0.05f;
    switch (type) {
        case PackedType::f32:
            return __float_as_uint(random_value(word, seed, scale));
        case PackedType::f16:
        case PackedType::bf16:
            return pair_of(random_value(2 * word, seed, scale),
                           random_value(2 * word + 1, seed, scale), type == PackedType::bf16);
        case PackedType::e4m3:
            return random_word(word, seed) & 0xBFBFBFBFu;  // below 2: never NaN
        default:
            if (kind_of(type) == PackedType::grid_e4m3)
                return random_word(word, seed) & 0xBFBFBFBFu;
            return random_word(word, seed);
    }
}

__device__ uint32_t four_bytes(uint32_t random, uint32_t base, uint32_t mask) {
    return (random & mask * 0x01010101u) + base * 0x01010101u;
}

// The float16 that begins at byte `at` of ggml's scale record, 0 where there is none. Sizes make
// weights of about 0.05.
__device__ float half_of_record(PackedType type, int at) {
    switch (type) {
        case PackedType::q4_k:
        case PackedType::q5_k:
            return at < 4 ? 0.0002f : 0.0f;
        case PackedType::q2_k:
            return at >= 16 ? 0.002f : 0.0f;
        case PackedType::q3_k:
            return at >= 12 ? 0.0005f : 0.0f;
        case PackedType::q6_k:
            return at >= 16 ? 0.00002f : 0.0f;
        case PackedType::iq4_xs:
            return at < 2 ? 0.00002f : 0.0f;
        case PackedType::q4_1:
        case PackedType::q5_1:
            return at < 2 ? 0.005f : -0.05f;
        case PackedType::iq4_nl:
            return 0.0005f;
        case PackedType::q4_0:
        case PackedType::q5_0:
            return 0.005f;
        default:
            return at < 2 ? 0.0005f : 0.0f;  // iq2, iq3: the factor of a block
    }
}

// Two bytes of a record, which begin at an even one.
__device__ uint32_t half_word(PackedType type, int at, uint32_t random) {
    const float half = half_of_record(type, at);
    return half == 0.0f ? random & 0xFFFFu : __half_as_ushort(__float2half_rn(half));
}

// Four bytes of the scales of a block or superblock, from byte `at` on.
__device__ uint32_t ggml_scale_word(PackedType type, int at, uint32_t random) {
    const int record = ggml_scale_bytes(type);
    return half_word(type, at % record, random) | half_word(type, (at + 2) % record, random >> 16)
                                                      << 16;
}

// The front of a grid's unit: records of 16 scales, then zero points of any value.
__device__ uint32_t grid_word(PackedType type, int at, uint32_t random) {
    const bool is_scale = at % grid_record_bytes(type) < 16 * grid_scale_bytes(type);
    if (!is_scale) return random;
    const float scale = kind_of(type) == PackedType::grid_8 ? 0.0005f : 0.01f;
    switch (grid_scale_of(type)) {
        case GridScale::f32:
            return __float_as_uint(scale);
        case GridScale::f16:
            return pair_of(scale, scale, false);
        case GridScale::bf16:
            return pair_of(scale, scale, true);
        case GridScale::e8m0:
            return four_bytes(random, 120, 1);
        default:
            return four_bytes(random, 0x10, 7);  // E4M3
    }
}

__device__ uint32_t scale_word(PackedType type, uint64_t word, int at, uint32_t seed) {
    const uint32_t random = random_word(word, ~seed);
    if (has_ggml_scales(type)) return ggml_scale_word(type, at, random);
    switch (type) {
        case PackedType::nvfp4:
            return four_bytes(random, 0x28, 7);  // about 1/32 ... exponent 5 of bias 10
        case PackedType::mxfp4:
            return four_bytes(random, 121, 1);
        case PackedType::e4m3:
            return __float_as_uint(0.05f + 0.01f * random_value(word, seed, 1.0f));
        case PackedType::q8_0:
            return pair_of(0.0004f, 0.0005f, false);
        case PackedType::kbit2_f32:
        case PackedType::kbit3_f32:
        case PackedType::kbit4_f32:
        case PackedType::kbit5_f32:
            return __float_as_uint(0.05f + 0.01f * random_value(word, seed, 1.0f));
        default:
            return four_bytes(random, 0x70, 15);  // E4M4, about 1/16
    }
}

__global__ void fill_matrix(std::byte* data, PackedType type, int64_t n_tiles_all, int64_t k,
                            int64_t tiles_per_expert, int64_t expert_stride, uint32_t seed) {
    const int64_t tile_size = tile_bytes(type, k), words = tile_size / 4;
    const int64_t total = n_tiles_all * words;
    // Codes and scales alternate with each block or superblock, or unit of a grid, which begins
    // with its records.
    const int32_t blocks = has_superblock(type) ? 4 : is_grid(type) ? grid_unit_blocks(type) : 1;
    const int32_t front = is_grid(type) ? grid_front_bytes(type) : 0;
    const int32_t block_size = front + blocks * block_bytes(type, 4);
    const int32_t codes = front + blocks * block_code_bytes(type, 4);
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < total;
         i += static_cast<int64_t>(gridDim.x) * n_threads) {
        const int64_t tile = i / words, byte = i % words * 4;
        const auto in_block = static_cast<int32_t>(byte % block_size);
        std::byte* to = data + tile / tiles_per_expert * expert_stride +
                        tile % tiles_per_expert * tile_size + byte;
        *reinterpret_cast<uint32_t*>(to) =
            in_block < front   ? grid_word(type, in_block, random_word(i, ~seed))
            : in_block < codes ? code_word(type, i, seed)
                               : scale_word(type, i, in_block - codes, seed);
    }
}

__global__ void fill_floats(float* data, int64_t n, float scale, float offset, uint32_t seed) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * n_threads)
        data[i] = offset + random_value(i, seed, scale);
}

__global__ void fill_pairs(uint32_t* data, int64_t n, float scale, bool is_bf16, uint32_t seed) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * n_threads)
        data[i] = pair_of(random_value(2 * i, seed, scale), random_value(2 * i + 1, seed, scale),
                          is_bf16);
}

__global__ void fill_words(uint32_t* data, int64_t n, uint32_t seed) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * n_threads)
        data[i] = random_word(i, seed);
}

int grid() {
    return multiprocessors() * 8;
}

void upload(std::byte* to, const std::vector<float>& values) {
    check_cuda(cudaMemcpy(to, values.data(), values.size() * 4, cudaMemcpyHostToDevice), "upload");
}

// Each expert's columns in an order of its own, of which neighbours are far apart; factors of one.
void fill_columns(const DevicePlacement::Region& region, std::byte* block) {
    std::vector<float> words;
    for (int64_t table = 0; table < 2 * region.count; ++table)
        for (int64_t k = 0; k < region.k; ++k) {
            const auto column = static_cast<uint32_t>((k * 7919 + table / 2) % region.k);
            words.push_back(region.table == ColumnTable::order ? std::bit_cast<float>(column)
                                                               : 1.0f);
        }
    upload(block + region.columns, words);
}

void fill_tables(const DevicePlacement::Region& region, const moe_format& format,
                 std::byte* block) {
    if (region.columns) fill_columns(region, block);
    if (region.globals) upload(block + region.globals, std::vector<float>(2 * region.count, 1.0f));
    if (!region.codebooks) return;
    Matrix source;
    source.codebook = builtin_codebook(format);
    float codebook[32] = {};
    packed_codebook(source, region.type, codebook);
    std::vector<float> codebooks;
    for (int64_t i = 0; i < 2 * region.count; ++i)
        codebooks.insert(codebooks.end(), codebook, codebook + 32);
    upload(block + region.codebooks, codebooks);
}

}  // namespace

void fill_random(void* data, int64_t bytes, uint32_t seed) {
    fill_words<<<grid(), n_threads>>>(static_cast<uint32_t*>(data), bytes / 4, seed);
}

void fill_bf16(void* data, int64_t count, uint32_t seed) {
    fill_pairs<<<grid(), n_threads>>>(static_cast<uint32_t*>(data), count / 2, 1.0f, true, seed);
}

void fill_f16(void* data, int64_t count, uint32_t seed) {
    fill_pairs<<<grid(), n_threads>>>(static_cast<uint32_t*>(data), count / 2, 1.0f, false, seed);
}

void fill_f32(void* data, int64_t count, float scale, uint32_t seed) {
    fill_floats<<<grid(), n_threads>>>(static_cast<float*>(data), count, scale, 0.0f, seed);
}

void fill_weights(const WeightsLayout& layout, const DevicePlacement& placement, std::byte* block,
                  uint32_t seed) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const DevicePlacement::Region& region = placement.matrices[i];
        if (region.type != PackedType::none) {
            fill_matrix<<<grid(), n_threads>>>(
                block + region.offset, region.type, region.count * region.n_tiles, region.k,
                region.n_tiles, static_cast<int64_t>(region.expert_stride), seed + i);
            fill_tables(region, layout.formats[i], block);
        }
        if (is_matrix_role(role) || role == MOE_ROLE_HASH_TABLE || !layout.needs(role)) continue;
        const int64_t count = layout.count(role) * layout.part(role).columns;
        fill_f32(block + placement.vectors[i], count, 0.1f, seed + 100 + i);
    }
    if (layout.needs(MOE_ROLE_ROUTER)) {
        const Layer::Shape shape = layout.layer.role_shape(MOE_ROLE_ROUTER);
        // The logits stay small: large ones would saturate a sigmoid, and all tokens would choose
        // the same experts.
        const float scale = 6.0f / std::sqrt(static_cast<float>(shape.columns));
        fill_pairs<<<grid(), n_threads>>>(reinterpret_cast<uint32_t*>(block + placement.router),
                                          shape.rows * shape.columns / 2, scale, true, seed + 50);
    }
    check_cuda(cudaDeviceSynchronize(), "fill_weights");
}

}  // namespace moe::bench
