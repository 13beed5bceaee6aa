// ValueDequant of the CUDA kernels against the packed layout read bit by bit, on random
// blocks of every type, and the layout's reading against blocks written down by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "libmoe/cuda/dequant/values.cuh"
#include "libmoe/packed/unpack.hpp"
#include "tests/weights/packed_value.hpp"

namespace moe::cuda {
namespace {

constexpr PackedType all_types[] = {
    PackedType::f32,
    PackedType::f16,
    PackedType::bf16,
    PackedType::e4m3,
    PackedType::nvfp4,
    PackedType::mxfp4,
    PackedType::kbit2,
    PackedType::kbit3,
    PackedType::kbit4,
    PackedType::kbit5,
    PackedType::kbit2_f32,
    PackedType::kbit3_f32,
    PackedType::kbit4_f32,
    PackedType::kbit5_f32,
    PackedType::q8_0,
    PackedType::q4_k,
    PackedType::q5_k,
    PackedType::q2_k,
    PackedType::q3_k,
    PackedType::q6_k,
    PackedType::iq4_xs,
    PackedType::iq2_xxs,
    PackedType::iq2_xs,
    PackedType::iq3_xxs,
    PackedType::iq3_s,
    PackedType::q4_0,
    PackedType::iq4_nl,
    PackedType::q5_0,
    PackedType::q4_1,
    PackedType::q5_1,
    grid_type(PackedType::grid_e4m3, GridScale::e8m0, GridZero::middle, 32),
    grid_type(PackedType::grid_e4m3, GridScale::f32, GridZero::middle, 0),
    grid_type(PackedType::grid_1, GridScale::f16, GridZero::middle, 32),
    grid_type(PackedType::grid_2, GridScale::f16, GridZero::packed, 64),
    grid_type(PackedType::grid_3, GridScale::bf16, GridZero::middle, 128),
    grid_type(PackedType::grid_4, GridScale::f16, GridZero::packed_minus_one, 48),
    grid_type(PackedType::grid_5, GridScale::f16, GridZero::packed, 16),
    grid_type(PackedType::grid_6, GridScale::bf16, GridZero::packed, 32),
    grid_type(PackedType::grid_7, GridScale::f32, GridZero::packed_minus_one, 128),
    grid_type(PackedType::grid_8, GridScale::f32, GridZero::packed, 32),
    grid_type(PackedType::grid_codebook, GridScale::f32, GridZero::middle, 64)};

bool has_float_scales(PackedType type) {
    return type == PackedType::e4m3 || has_f32_scales(type);
}

uint16_t random_f16(std::mt19937& random) {
    return float_to_f16(std::uniform_real_distribution<float>(-0.01f, 0.01f)(random));
}

// Of a tile: two superblocks.
constexpr int32_t tile_columns = 512;

// A tile with codes and scales that a real matrix may have.
struct RandomTile {
    PackedType type;
    int32_t k;
    std::vector<uint32_t> words;
    float codebook[64];

    RandomTile(PackedType of, uint32_t seed)
        : type(of), k(tile_columns), words(tile_bytes(of, k) / 4) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
        for (float& value : codebook) value = uniform(random);
        for (uint32_t& word : words) word = static_cast<uint32_t>(random());
        for (int64_t k0 = 0; k0 < k; k0 += 64) {
            if (is_grid(type)) fill_records(random, block_offset(type, k0).scales);
            fill_block(random, block_offset(type, k0));
        }
    }
    std::byte* at(int64_t offset) { return reinterpret_cast<std::byte*>(words.data()) + offset; }

    // The records of a block. Zero points may be any bytes.
    void fill_records(std::mt19937& random, int64_t first) {
        std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
        const int64_t last = first + grid_record(type, 63);
        for (int64_t r = first; r <= last; r += grid_record_bytes(type)) {
            for (int i = 0; i < 16; ++i) {
                const float value = uniform(random);
                const uint16_t half = grid_scale_of(type) == GridScale::f16 ? float_to_f16(value)
                                                                            : float_to_bf16(value);
                const auto power = static_cast<uint8_t>(112 + random() % 8);
                const void* from = grid_scale_bytes(type) == 4   ? static_cast<const void*>(&value)
                                   : grid_scale_bytes(type) == 2 ? static_cast<const void*>(&half)
                                                                 : &power;
                std::memcpy(at(r + i * grid_scale_bytes(type)), from,
                            static_cast<size_t>(grid_scale_bytes(type)));
            }
        }
    }

    void fill_block(std::mt19937& random, BlockOffset place) {
        std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
        std::byte* codes = at(place.codes);
        std::byte* scales = at(place.scales);
        for (int i = 0; i < block_code_bytes(type, 4); ++i) {
            if ((type == PackedType::e4m3 || kind_of(type) == PackedType::grid_e4m3) &&
                (codes[i] & std::byte{0x7F}) == std::byte{0x7F}) {
                codes[i] = std::byte{0x7E};
            }
        }
        for (int i = 0; i < 1024; ++i) {
            const float value = uniform(random);
            const uint16_t f16 = random_f16(random);
            if (type == PackedType::f32) std::memcpy(codes + 4 * i, &value, 4);
            if (type == PackedType::f16) std::memcpy(codes + 2 * i, &f16, 2);
            const uint16_t bf16 = float_to_bf16(value);
            if (type == PackedType::bf16) std::memcpy(codes + 2 * i, &bf16, 2);
        }
        for (int i = 0; has_float_scales(type) && i < block_scale_bytes(type, 4) / 4; ++i) {
            const float value = uniform(random);
            std::memcpy(scales + 4 * i, &value, 4);
        }
        for (int i = 0; type == PackedType::q8_0 && i < 32; ++i) {
            const uint16_t f16 = random_f16(random);
            std::memcpy(scales + 2 * i, &f16, 2);
        }
        for (int i = 0; type == PackedType::mxfp4 && i < 32; ++i) {
            scales[i] = static_cast<std::byte>(110 + random() % 18);
        }
        // Every half-word: those that are float16 in a head are then finite.
        const int head_words = has_ggml_scales(type) ? shared_scale_bytes(type) / 2 : 0;
        for (int i = 0; i < head_words; ++i) {
            scales[2 * i + 1] &= std::byte{0xBF};
        }
    }
};

float expected(RandomTile& tile, int64_t k0, int32_t lane, int i) {
    const BlockOffset place = block_offset(tile.type, k0);
    return packed_value(tile.type, tile.at(place.codes), tile.at(place.scales), tile.codebook, k0,
                        lane, {i / 8, i / 2 % 4, i % 2});
}

template <PackedType type>
void expect_floats(RandomTile& tile) {
    double size = 0;
    for (int64_t k0 = 0; k0 < 256; k0 += 64) {
        const BlockOffset place = block_offset(tile.type, k0);
        for (int lane = 0; lane < 32; ++lane) {
            const auto words = ValueDequant<type>::load(tile.type, tile.at(place.codes),
                                                        tile.at(place.scales), lane, k0);
            float values[32];
            dequantize_floats<type>(words, tile.codebook, values);
            for (int i = 0; i < 32; ++i) {
                ASSERT_EQ(values[i], expected(tile, k0, lane, i))
                    << "type " << static_cast<int>(type) << " lane " << lane << " value " << i;
                size += std::abs(values[i]);
            }
        }
    }
    EXPECT_GT(size, 0);
}

template <Operand operand>
float widen(uint32_t bits) {
    const auto half = static_cast<uint16_t>(bits);
    return operand == Operand::bf16 ? bf16_to_float(half) : f16_to_float(half);
}

template <PackedType type, Operand operand>
void expect_operands(RandomTile& tile) {
    for (int64_t k0 = 0; k0 < 256; k0 += 64) {
        const BlockOffset place = block_offset(tile.type, k0);
        for (int lane = 0; lane < 32; ++lane) {
            const auto words = ValueDequant<type>::load(tile.type, tile.at(place.codes),
                                                        tile.at(place.scales), lane, k0);
            uint32_t a[16];
            dequantize_operands<operand, type>(words, tile.codebook, a);
            for (int i = 0; i < 32; ++i) {
                const float exact = expected(tile, k0, lane, i) / residual_scale(type, operand);
                const float rounded =
                    round_to_type(exact, operand == Operand::bf16 ? MOE_TYPE_BF16 : MOE_TYPE_F16);
                const float value = widen<operand>(a[i / 2] >> 16 * (i % 2));
                ASSERT_EQ(value, rounded)
                    << "type " << static_cast<int>(type) << " lane " << lane << " value " << i;
                if (is_e2m1(type)) {
                    ASSERT_EQ(value, exact);
                }
            }
        }
    }
}

// Every value of a tile, read bit by bit, is what unpack() says.
void expect_unpacked(RandomTile& tile, int half) {
    std::vector<float> unpacked(16 * static_cast<size_t>(tile.k));
    unpack(tile.at(0), tile.type, TileRows::all, 16, tile.k, {1.0f, tile.codebook + 32 * half},
           unpacked.data());
    for (int64_t k0 = 0; k0 < tile.k; k0 += 64) {
        const BlockOffset place = block_offset(tile.type, k0);
        for (int i = 0; i < 32 * 32; ++i) {
            const int lane = i / 32;
            const CodeIndex at{i / 8 % 4, i / 2 % 4, i % 2};
            if ((at.reg & 1) != half) continue;
            const float value = packed_value(tile.type, tile.at(place.codes), tile.at(place.scales),
                                             tile.codebook, k0, lane, at);
            const int64_t row = lane / 4 + 8 * half;
            const int64_t k = k0 + 16 * (lane % 4) + 4 * at.step + at.reg / 2 * 2 + at.parity;
            ASSERT_EQ(value, unpacked[static_cast<size_t>(row * tile.k + k)])
                << "type " << static_cast<int>(tile.type) << " row " << row << " k " << k;
        }
    }
}

TEST(dequant, the_layout_read_bit_by_bit_is_what_unpack_gives) {
    for (const PackedType type : all_types) {
        RandomTile tile(type, 9);
        expect_unpacked(tile, 0);
        expect_unpacked(tile, 1);
    }
}

TEST(dequant, full_blocks_give_the_values_of_the_layout) {
    for (const PackedType type : all_types) {
        RandomTile tile(type, 7);
        with_packed_type(type, [&]<PackedType of>() { expect_floats<of>(tile); });
    }
}

TEST(dequant, operands_are_the_values_rounded_once) {
    for (const PackedType type : all_types) {
        RandomTile tile(type, 8);
        with_packed_type(type, [&]<PackedType of>() {
            if constexpr (of != PackedType::f32) {
                expect_operands<of, Operand::bf16>(tile);
                expect_operands<of, Operand::f16>(tile);
            }
        });
    }
}

// Every bit of a block belongs to exactly one code.
TEST(dequant, codes_fill_their_block) {
    for (const PackedType type : all_types) {
        if (is_iq_grid(type)) continue;
        std::vector<int> used(8 * block_code_bytes(type, 4));
        for (int i = 0; i < 32 * 32; ++i) {
            const CodeIndex at{i / 8 % 4, i / 2 % 4, i % 2};
            for (int b = 0; b < code_bits(type); ++b) {
                const int bit = lane_bit(type, at, b);
                ++used[8 * lane_byte(type, i / 32, bit / 8) + bit % 8];
            }
        }
        EXPECT_EQ(used, std::vector<int>(used.size(), 1)) << static_cast<int>(type);
    }
}

// One code by hand: the lane of rows 5 and 13 and columns 32 to 47; step 1, register 3 is row 13
// and its columns 38 and 39.
TEST(dequant, nvfp4_by_hand) {
    alignas(16) std::byte block[576] = {};
    const int lane = 4 * 5 + 2;
    const uint32_t word = 0x20102020u;  // 0x2020: bits 13 and 5, -1; 0x2010: bits 13 and 4, -0.5
    std::memcpy(block + 16 * lane + 4, &word, 4);
    block[512 + 2 * lane + 1] = std::byte{10 << 3 | 4};  // 1.5
    const auto value = [&](int parity) {
        return packed_value(PackedType::nvfp4, block, block + 512, nullptr, 0, lane,
                            {1, 3, parity});
    };
    EXPECT_EQ(value(0), -1.0f * 1.5f);
    EXPECT_EQ(value(1), -0.5f * 1.5f);
}

TEST(dequant, nvfp4_holds_every_scale) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        ValueDequant<PackedType::nvfp4>::Words words{{0x07u << 6, 0x01u << 6, 0, 0}, byte};
        uint32_t a[16];
        dequantize_operands<Operand::bf16, PackedType::nvfp4>(words, nullptr, a);
        const float scale = nvfp4_scale(byte);
        EXPECT_EQ(scale, std::ldexp(1.0f + (byte & 7) / 8.0f, static_cast<int>(byte >> 3) - 10));
        EXPECT_EQ(widen<Operand::bf16>(a[0]) * 0x1p20f, 6.0f * scale) << byte;
        EXPECT_EQ(widen<Operand::bf16>(a[4]) * 0x1p20f, 0.5f * scale) << byte;
        dequantize_operands<Operand::f16, PackedType::nvfp4>(words, nullptr, a);
        EXPECT_EQ(widen<Operand::f16>(a[0]) * 0x1p9f, 6.0f * scale) << byte;
        EXPECT_EQ(widen<Operand::f16>(a[4]) * 0x1p9f, 0.5f * scale) << byte;
    }
}

}  // namespace
}  // namespace moe::cuda
