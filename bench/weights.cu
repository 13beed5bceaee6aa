// Fills packed weights with random values. Input: a layout and a seed. Output: the packed bytes of
// every matrix, one thread per 32-bit word. Codes are random bits (dense types: random values);
// bytes of scales come from a narrow range of their type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cuda_runtime.h>
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
            return random_word(word, seed);
    }
}

__device__ uint32_t four_bytes(uint32_t random, uint32_t base, uint32_t mask) {
    return (random & mask * 0x01010101u) + base * 0x01010101u;
}

// The first byte of the float16 numbers of ggml's scale records, and how many bytes they have.
__device__ int2 float16_bytes(PackedType type) {
    switch (type) {
        case PackedType::q2_k:
            return {16, 4};
        case PackedType::q3_k:
            return {12, 2};
        case PackedType::q6_k:
            return {16, 2};
        case PackedType::q4_k:
        case PackedType::q5_k:
        case PackedType::q4_1:
        case PackedType::q5_1:
            return {0, 4};
        default:
            return {0, 2};
    }
}

// Records of ggml's scales are random but for their float16 numbers, which are small.
__device__ uint32_t ggml_scale_word(PackedType type, int32_t in_scales, uint32_t random) {
    const int2 numbers = float16_bytes(type);
    const uint32_t small = has_superblock(type) ? 0x0A : 0x1E;  // 0.0002, 0.006
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
        const int32_t at = (in_scales + i) % ggml_scale_bytes(type) - numbers.x;
        word |= (at >= 0 && at < numbers.y ? small : random >> 8 * i & 0xFFu) << 8 * i;
    }
    return word;
}

__device__ uint32_t scale_word(PackedType type, uint64_t word, int32_t in_scales, uint32_t seed) {
    const uint32_t random = random_word(word, ~seed);
    if (has_ggml_scales(type)) return ggml_scale_word(type, in_scales, random);
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
    // Codes and scales alternate with each block or superblock.
    const int32_t n_blocks = has_superblock(type) ? 4 : 1;
    const int32_t block_size = n_blocks * block_bytes(type, 4);
    const int32_t codes = n_blocks * block_code_bytes(type, 4);
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < total;
         i += static_cast<int64_t>(gridDim.x) * n_threads) {
        const int64_t tile = i / words, byte = i % words * 4;
        const auto in_block = static_cast<int32_t>(byte % block_size);
        std::byte* to = data + tile / tiles_per_expert * expert_stride +
                        tile % tiles_per_expert * tile_size + byte;
        *reinterpret_cast<uint32_t*>(to) = in_block < codes
                                               ? code_word(type, i, seed)
                                               : scale_word(type, i, in_block - codes, seed);
    }
}

__global__ void fill_floats(float* data, int64_t n, float scale, float offset, uint32_t seed) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * n_threads)
        data[i] = offset + random_value(i, seed, scale);
}

__global__ void fill_pairs(uint32_t* data, int64_t n, float scale, uint32_t seed) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * n_threads + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * n_threads)
        data[i] =
            pair_of(random_value(2 * i, seed, scale), random_value(2 * i + 1, seed, scale), true);
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

void fill_tables(const DevicePlacement::Region& region, const moe_format& format,
                 std::byte* block) {
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
    fill_pairs<<<grid(), n_threads>>>(static_cast<uint32_t*>(data), count / 2, 1.0f, seed);
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
                                          shape.rows * shape.columns / 2, scale, seed + 50);
    }
    check_cuda(cudaDeviceSynchronize(), "fill_weights");
}

}  // namespace moe::bench
