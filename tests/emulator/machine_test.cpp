// The emulator on small kernels whose results are known.
#include "tests/emulator/machine.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>

namespace {

using emulator::Fault;
using emulator::Launch;

constexpr const char* head = ".version 8.0\n.target sm_90a\n.address_size 64\n";

// One kernel "k" with one pointer as its parameter, in %rd0.
std::string kernel(const std::string& body, const std::string& before = "") {
    return head + before +
           ".visible .entry k(.param .u64 p)\n{\n"
           ".reg .pred %p<20>; .reg .b16 %h<40>; .reg .b32 %r<200>; .reg .f32 %f<200>;\n"
           ".reg .b64 %rd<40>;\n"
           "ld.param.u64 %rd0, [p];\n" +
           body + "ret;\n}\n";
}

// Tests run in processes side by side.
std::string own_file() {
    return testing::TempDir() + "machine_test_" + std::to_string(getpid()) + ".ptx";
}

// The address of element %r0 = thread of the buffer, of `bytes` each, is in %rd1.
std::string own_element(int bytes) {
    return "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, " + std::to_string(bytes) +
           ";\nadd.s64 %rd1, %rd0, %rd1;\n";
}

class Machine : public testing::Test {
  protected:
    Machine() : words(4096, 0), program(memory) { memory.add(words.data(), words.size() * 4); }

    void run(const std::string& text, Launch launch) {
        const std::string path = own_file();
        std::ofstream(path) << text;
        program.add_file(path);
        std::remove(path.c_str());
        EXPECT_TRUE(program.unknown_instructions("k").empty());
        const uint32_t* pointer = words.data();
        launch.parameters.resize(8);
        std::memcpy(launch.parameters.data(), &pointer, 8);
        program.run("k", launch);
    }
    void run(const std::string& text, uint32_t threads = 32, uint32_t blocks = 1) {
        Launch launch;
        launch.block.x = threads;
        launch.grid.x = blocks;
        run(text, launch);
    }
    std::string fault_of(const std::string& text, uint32_t threads = 32) {
        try {
            run(text, threads);
        } catch (const Fault& fault) {
            return fault.what();
        }
        return "no fault";
    }
    float as_float(size_t i) const {
        float value;
        std::memcpy(&value, &words[i], 4);
        return value;
    }

    std::vector<uint32_t> words;
    emulator::Memory memory;
    emulator::Program program;
};

bool contains(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

TEST_F(Machine, LanesPartAndMeet) {
    // Each lane counts to its number in a loop of its own; odd lanes then take another way.
    run(kernel(own_element(4) +
               "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\n"
               "LOOP:\nsetp.ge.u32 %p1, %r1, %r0;\n@%p1 bra DONE;\n"
               "add.u32 %r2, %r2, %r1;\nadd.u32 %r1, %r1, 1;\nbra LOOP;\n"
               "DONE:\nand.b32 %r3, %r0, 1;\nsetp.eq.u32 %p2, %r3, 1;\n@!%p2 bra EVEN;\n"
               "add.u32 %r2, %r2, 1000;\nbra END;\nEVEN:\nadd.u32 %r2, %r2, 2000;\n"
               "END:\nshfl.sync.idx.b32 %r4, %r2, 7, 31, -1;\n"
               "shl.b32 %r4, %r4, 16;\nor.b32 %r2, %r2, %r4;\nst.global.u32 [%rd1], %r2;\n"));
    for (uint32_t i = 0; i < 32; ++i)
        EXPECT_EQ(words[i], i * (i - 1) / 2 + (i % 2 ? 1000 : 2000) + (1021u << 16)) << i;
}

TEST_F(Machine, GuardsAndChoices) {
    run(kernel(
        own_element(4) +
        "mov.u32 %r1, 5;\nsetp.lt.u32 %p1, %r0, 10;\nsetp.gt.and.u32 %p2, %r0, 3, %p1;\n"
        "@%p1 add.u32 %r1, %r1, 1;\n@!%p2 add.u32 %r1, %r1, 10;\n"
        "selp.b32 %r2, 100, 200, %p2;\nadd.u32 %r1, %r1, %r2;\nst.global.u32 [%rd1], %r1;\n"));
    for (uint32_t i = 0; i < 32; ++i) {
        const bool p1 = i<10, p2 = i> 3 && p1;
        EXPECT_EQ(words[i], 5u + p1 + (p2 ? 0 : 10) + (p2 ? 100 : 200)) << i;
    }
}

TEST_F(Machine, BarrierOrdersWarps) {
    // Every thread reads what the last one has written, into a static array.
    run(kernel(own_element(4) +
                   "mov.u32 %r5, array;\nshl.b32 %r1, %r0, 2;\nadd.u32 %r1, %r5, %r1;\n"
                   "mul.lo.u32 %r2, %r0, 3;\nst.shared.u32 [%r1], %r2;\nbar.sync 0;\n"
                   "ld.shared.u32 %r3, [array+508];\nst.global.u32 [%rd1], %r3;\n",
               ".shared .align 4 .b8 array[512];\n"),
        128);
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(words[i], 381u) << i;
}

TEST_F(Machine, NamedBarrierOfHalfTheBlock) {
    run(kernel(own_element(4) +
                   "setp.ge.u32 %p1, %r0, 64;\n@%p1 bra REST;\n"
                   "setp.ge.u32 %p2, %r0, 32;\n@%p2 st.shared.u32 [word], 77;\n"
                   "bar.sync 3, 64;\nld.shared.u32 %r1, [word];\nst.global.u32 [%rd1], %r1;\n"
                   "REST:\n",
               ".shared .align 4 .b8 word[4];\n"),
        96);
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(words[i], 77u) << i;
    EXPECT_EQ(words[64], 0u);
}

TEST_F(Machine, Shuffles) {
    run(kernel(own_element(16) + "shfl.sync.bfly.b32 %r1, %r0, 5, 31, -1;\n"
                                 "shfl.sync.up.b32 %r2|%p1, %r0, 3, 0, -1;\n"
                                 "shfl.sync.down.b32 %r3|%p2, %r0, 2, 0x181f, -1;\n"
                                 "vote.sync.ballot.b32 %r4, %p1, -1;\n"
                                 "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};\n"));
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(words[4 * i], i ^ 5);
        EXPECT_EQ(words[4 * i + 1], i < 3 ? i : i - 3);
        EXPECT_EQ(words[4 * i + 2], i % 8 < 6 ? i + 2 : i);
        EXPECT_EQ(words[4 * i + 3], 0xFFFFFFF8u);
    }
}

TEST_F(Machine, ReductionsAndMatches) {
    run(kernel(own_element(16) +
               "redux.sync.add.u32 %r1, %r0, -1;\nredux.sync.max.u32 %r2, %r0, -1;\n"
               "and.b32 %r3, %r0, 3;\nmatch.any.sync.b32 %r4, %r3, -1;\n"
               "setp.ge.u32 %p1, %r0, 16;\nvote.sync.any.pred %p2, %p1, -1;\n"
               "selp.u32 %r5, 1, 0, %p2;\nst.global.v4.u32 [%rd1], {%r1, %r2, %r4, %r5};\n"));
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(words[4 * i], 496u);
        EXPECT_EQ(words[4 * i + 1], 31u);
        EXPECT_EQ(words[4 * i + 2], 0x11111111u << i % 4);
        EXPECT_EQ(words[4 * i + 3], 1u);
    }
}

TEST_F(Machine, WholeNumbers) {
    run(kernel(
            "mov.u32 %r1, 0x80000001;\nmov.u32 %r2, 0x12345678;\n"
            "mul.hi.u32 %r10, %r1, %r2;\nmad.lo.s32 %r11, %r1, %r2, 7;\n"
            "div.s32 %r12, %r1, 3;\nrem.s32 %r13, %r1, 1000;\nshr.s32 %r14, %r1, 4;\n"
            "shr.u32 %r15, %r1, 40;\nbfe.s32 %r16, %r2, 4, 4;\nbfi.b32 %r17, %r2, %r1, 8, 12;\n"
            "prmt.b32 %r18, %r1, %r2, 0xF405;\nlop3.b32 %r19, %r1, %r2, 0x0F0F0F0F, 0x96;\n"
            "popc.b32 %r20, %r2;\nclz.b32 %r21, %r2;\nbfind.u32 %r22, %r2;\nbrev.b32 %r23, %r2;\n"
            "shf.l.wrap.b32 %r24, %r1, %r2, 4;\ndp4a.u32.u32 %r25, %r2, 0x01020304, 5;\n"
            "st.global.v4.u32 [%rd0], {%r10, %r11, %r12, %r13};\n"
            "st.global.v4.u32 [%rd0+16], {%r14, %r15, %r16, %r17};\n"
            "st.global.v4.u32 [%rd0+32], {%r18, %r19, %r20, %r21};\n"
            "st.global.v4.u32 [%rd0+48], {%r22, %r23, %r24, %r25};\n"),
        1);
    const uint32_t a = 0x80000001, b = 0x12345678;
    const int32_t s = static_cast<int32_t>(a);
    const uint32_t expected[] = {static_cast<uint32_t>(uint64_t{a} * b >> 32), a * b + 7,
                                 static_cast<uint32_t>(s / 3), static_cast<uint32_t>(s % 1000),
                                 0xF8000000, 0, 7, (a & ~0xFFF00u) | 0x67800,
                                 // bytes 5, 0, 4 and the sign of 7
                                 0x00780156, a ^ b ^ 0x0F0F0F0F, 13, 3, 28, 0x1E6A2C48, 0x23456788,
                                 0x12 * 1 + 0x34 * 2 + 0x56 * 3 + 0x78 * 4 + 5};
    for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(words[i], expected[i]) << i;
}

TEST_F(Machine, Floats) {
    run(kernel("mov.f32 %f1, 0f3FC00001;\nmov.f32 %f2, 0f40490FDB;\nmov.f32 %f3, 0fC0A00000;\n"
               "fma.rn.f32 %f10, %f1, %f2, %f3;\nfma.rm.f32 %f11, %f1, %f2, %f3;\n"
               "div.rn.f32 %f12, %f1, %f2;\nmin.f32 %f13, %f1, 0f7FC00000;\n"
               "max.NaN.f32 %f14, %f1, 0f7FC00000;\nmin.f32 %f15, 0f00000000, 0f80000000;\n"
               "add.sat.f32 %f16, %f1, %f2;\nmul.ftz.f32 %f17, 0f00400000, 0f40000000;\n"
               "ex2.approx.ftz.f32 %f18, %f1;\ncvt.rni.f32.f32 %f19, 0f40200000;\n"
               "fma.rn.f32 %f20, 0f3F800001, 0f3F800001, 0fBF800002;\nsqrt.rn.f32 %f21, %f2;\n"
               "copysign.f32 %f22, %f3, %f2;\nneg.f32 %f23, %f2;\n"
               "setp.ltu.f32 %p1, %f1, 0f7FC00000;\nselp.f32 %f24, %f1, %f2, %p1;\n"
               "setp.lt.f32 %p1, %f1, 0f7FC00000;\nselp.f32 %f25, %f1, %f2, %p1;\n"
               "st.global.v4.f32 [%rd0], {%f10, %f11, %f12, %f13};\n"
               "st.global.v4.f32 [%rd0+16], {%f14, %f15, %f16, %f17};\n"
               "st.global.v4.f32 [%rd0+32], {%f18, %f19, %f20, %f21};\n"
               "st.global.v4.f32 [%rd0+48], {%f22, %f23, %f24, %f25};\n"),
        1);
    const float a = 1.5000001f, b = 3.14159274f, c = -5;
    const double exact = double(a) * b + c;
    const float near = std::fma(a, b, c);
    EXPECT_EQ(as_float(0), near);
    EXPECT_EQ(as_float(1), near > exact ? std::nextafter(near, -9.f) : near);
    EXPECT_EQ(as_float(2), a / b);
    EXPECT_EQ(as_float(3), a);
    EXPECT_EQ(words[4], 0x7FFFFFFFu);
    EXPECT_EQ(words[5], 0x80000000u);
    EXPECT_EQ(as_float(6), 1.0f);
    EXPECT_EQ(words[7], 0u);
    EXPECT_NEAR(as_float(8), std::exp2(a), 1e-6);
    EXPECT_EQ(as_float(9), 2.0f);
    EXPECT_EQ(as_float(10), 0x1p-46f);
    EXPECT_EQ(as_float(11), std::sqrt(b));
    EXPECT_EQ(as_float(12), -b);
    EXPECT_EQ(as_float(13), -b);
    EXPECT_EQ(as_float(14), a);
    EXPECT_EQ(as_float(15), b);
}

TEST_F(Machine, SmallFloats) {
    run(kernel("mov.f32 %f1, 0f3F808000;\nmov.f32 %f2, 0f3F818000;\nmov.f32 %f3, 0f477FF000;\n"
               "cvt.rn.bf16x2.f32 %r10, %f1, %f2;\ncvt.rn.f16x2.f32 %r11, %f3, 0f33000001;\n"
               "cvt.rn.f16.f32 %h1, 0f387FC000;\ncvt.u32.u16 %r12, %h1;\n"
               "mov.b16 %h2, 0x0001;\ncvt.f32.f16 %f13, %h2;\n"
               "mov.b16 %h3, 0x7E08;\ncvt.rn.f16x2.e4m3x2 %r14, %h3;\n"
               "fma.rn.bf16x2 %r15, 0x3F804000, 0x40403F80, 0x3F803F80;\n"
               "cvt.rn.satfinite.e4m3x2.f32 %h4, %f3, 0f3F880000;\ncvt.u32.u16 %r16, %h4;\n"
               "mov.f32 %f4, 0f4F800000;\ncvt.rzi.s32.f32 %r17, %f4;\n"
               "st.global.v4.u32 [%rd0], {%r10, %r11, %r12, %r14};\n"
               "st.global.f32 [%rd0+16], %f13;\n"
               "st.global.u32 [%rd0+20], %r15;\nst.global.v2.u32 [%rd0+24], {%r16, %r17};\n"),
        1);
    EXPECT_EQ(words[0], 0x3F803F82u);  // halfway, to even
    EXPECT_EQ(words[1], 0x7C000001u);
    EXPECT_EQ(words[2], 0x03FFu);
    EXPECT_EQ(words[3], 0x5F002400u);  // 448 and 2^-6
    EXPECT_EQ(as_float(4), 0x1p-24f);
    EXPECT_EQ(words[5], 0x40804040u);  // 1 * 3 + 1, 2 * 1 + 1
    EXPECT_EQ(words[6], 0x7E38u);      // to even
    EXPECT_EQ(words[7], 0x7FFFFFFFu);
}

TEST_F(Machine, MatrixProduct) {
    std::vector<float> a(256), b(128);
    for (int i = 0; i < 256; ++i) a[i] = static_cast<float>((i * 7) % 13 - 6);
    for (int i = 0; i < 128; ++i) b[i] = static_cast<float>((i * 5) % 11 - 5);
    const auto bf16 = [](float x) {
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        return static_cast<uint16_t>(bits >> 16);
    };
    auto* halves = reinterpret_cast<uint16_t*>(words.data() + 1024);
    for (int i = 0; i < 256; ++i) halves[i] = bf16(a[i]);        // [16][16]
    for (int i = 0; i < 128; ++i) halves[256 + i] = bf16(b[i]);  // [16][8]
    // A by ldmatrix from shared memory, B by ldmatrix.trans.
    run(kernel(own_element(16) +
                   "shl.b32 %r1, %r0, 4;\ncvt.u64.u32 %rd2, %r1;\nadd.s64 %rd2, %rd0, %rd2;\n"
                   "mov.u32 %r9, tile;\nadd.u32 %r1, %r9, %r1;\n"
                   "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+4096];\n"
                   "st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};\n"
                   "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+4608];\n"
                   "st.shared.v4.u32 [%r1+512], {%r2, %r3, %r4, %r5};\nbar.warp.sync -1;\n"
                   // row of A: lane & 15, columns from 8 (lane >> 4)
                   "and.b32 %r6, %r0, 15;\nshr.u32 %r7, %r0, 4;\nshl.b32 %r6, %r6, 5;\n"
                   "shl.b32 %r7, %r7, 4;\nadd.u32 %r6, %r6, %r7;\nadd.u32 %r6, %r6, %r9;\n"
                   "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r6];\n"
                   "and.b32 %r6, %r0, 15;\nshl.b32 %r6, %r6, 4;\nadd.u32 %r6, %r6, %r9;\n"
                   "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r6+512];\n"
                   "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, "
                   "{%r10, %r11, %r12, %r13}, {%r14, %r15}, "
                   "{0f3F800000, 0f3F800000, 0f3F800000, 0f3F800000};\n"
                   "st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};\n",
               ".shared .align 16 .b8 tile[1024];\n"));
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
            float sum = 1;
            for (int k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[k * 8 + column];
            const int lane = row % 8 * 4 + column / 2;
            EXPECT_EQ(as_float(static_cast<size_t>(4 * lane + row / 8 * 2 + column % 2)), sum)
                << row << ' ' << column;
        }
    }
}

TEST_F(Machine, ByteProduct) {
    // Lane 4 g + t: A's rows g and g + 8, k 4 t and 16 + 4 t from on; B's column g.
    const auto a = [](int row, int k) { return (row * 37 + k * 11) % 256; };
    const auto b = [](int k, int column) { return (k * 29 + column * 53) % 256 - 128; };
    auto* bytes = reinterpret_cast<uint8_t*>(words.data() + 1024);
    for (int lane = 0; lane < 32; ++lane)
        for (int r = 0; r < 6; ++r)
            for (int part = 0; part < 4; ++part) {
                const int k = 4 * (lane % 4) + part + 16 * (r < 4 ? r / 2 : r - 4);
                bytes[32 * lane + 4 * r + part] =
                    static_cast<uint8_t>(r < 4 ? a(lane / 4 + 8 * (r % 2), k) : b(k, lane / 4));
            }
    for (const bool is_signed : {true, false}) {
        run(kernel(own_element(16) +
                   "shl.b32 %r1, %r0, 5;\ncvt.u64.u32 %rd2, %r1;\nadd.s64 %rd2, %rd0, %rd2;\n"
                   "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+4096];\n"
                   "ld.global.v2.u32 {%r6, %r7}, [%rd2+4112];\nmov.u32 %r8, 5;\n"
                   "mma.sync.aligned.m16n8k32.row.col.s32." +
                   std::string(is_signed ? "s8" : "u8") +
                   ".s8.s32 {%r10, %r11, %r12, %r13}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, "
                   "{%r8, %r8, %r8, %r8};\n"
                   "st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};\n"));
        for (int row = 0; row < 16; ++row)
            for (int column = 0; column < 8; ++column) {
                int sum = 5;
                for (int k = 0; k < 32; ++k)
                    sum += (is_signed ? static_cast<int8_t>(a(row, k)) : a(row, k)) * b(k, column);
                const int lane = row % 8 * 4 + column / 2;
                const auto place = static_cast<size_t>(4 * lane + row / 8 * 2 + column % 2);
                EXPECT_EQ(static_cast<int>(words[place]), sum) << row << ' ' << column;
            }
    }
}

TEST_F(Machine, WarpgroupProduct) {
    // B: eight rows of 64 values, swizzled by 128 bytes; the product takes columns 16 to 31. A:
    // ones in column `lane % 4 * 2` of each row.
    auto* halves = reinterpret_cast<uint16_t*>(words.data() + 1024);
    const auto small = [](int x) {
        const auto value = static_cast<float>(x);
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        return static_cast<uint16_t>(bits >> 16);
    };
    const auto value = [](int row, int k) { return (row * 3 + k * 5) % 17 - 8; };
    for (int row = 0; row < 8; ++row)
        for (int k = 0; k < 64; ++k)
            halves[row * 64 + ((k / 8) ^ row) * 8 + k % 8] = small(value(row, k));
    run(kernel(own_element(16) +
                   "setp.ge.u32 %p3, %r0, 64;\n@%p3 bra FILLED;\n"
                   "shl.b32 %r1, %r0, 4;\ncvt.u64.u32 %rd2, %r1;\nadd.s64 %rd2, %rd0, %rd2;\n"
                   "mov.u32 %r9, tile;\nadd.u32 %r1, %r9, %r1;\n"
                   "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+4096];\n"
                   "st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};\nFILLED:\nbar.sync 0;\n"
                   "mov.u32 %r9, tile;\nshr.u32 %r9, %r9, 4;\nadd.u32 %r9, %r9, 2;\n"
                   "mov.b64 %rd5, {%r9, 1073741888};\nmov.u32 %r10, 0x3F80;\nmov.u32 %r11, 0;\n"
                   "mov.f32 %f1, 0f41200000;\nmov.f32 %f2, %f1;\nmov.f32 %f3, %f1;\nmov.f32 %f4, "
                   "%f1;\n"
                   "wgmma.fence.sync.aligned;\nsetp.eq.u32 %p1, 0, 0;\n"
                   "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, "
                   "{%r10, %r10, %r11, %r11}, %rd5, %p1, 1, 1, 0;\n"
                   "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
                   "st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};\n",
               ".shared .align 1024 .b8 tile[1024];\n"),
        128);
    for (int lane = 0; lane < 128; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int column = 2 * (lane % 4) + i % 2;
            int sum = 10;
            for (int k = 0; k < 8; k += 2) sum += value(column, 16 + k);
            EXPECT_EQ(as_float(static_cast<size_t>(4 * lane + i)), static_cast<float>(sum));
        }
    }
}

TEST_F(Machine, BadAddressesAreFaults) {
    std::string text = fault_of(kernel(own_element(4) + "st.global.u32 [%rd1+16380], %r0;\n"));
    EXPECT_TRUE(contains(text, "global address")) << text;
    EXPECT_TRUE(contains(text, "thread (1,0,0)")) << text;
    EXPECT_TRUE(contains(text, "PTX line")) << text;
    text = fault_of(kernel("ld.global.u32 %r1, [%rd0+2];\n"));
    EXPECT_TRUE(contains(text, "not aligned")) << text;
    text = fault_of(kernel("mov.u32 %r1, 1024;\nst.shared.u32 [%r1], %r1;\n"));
    EXPECT_TRUE(contains(text, "shared address 0x400")) << text;
    text = fault_of(kernel("mov.u64 %rd1, 8;\nld.u32 %r1, [%rd1];\n"));
    EXPECT_TRUE(contains(text, "global address 0x8")) << text;
    text = fault_of(kernel("trap;\n"));
    EXPECT_TRUE(contains(text, "trap")) << text;
}

TEST_F(Machine, UnknownInstructionsAreNamed) {
    const std::string path = testing::TempDir() + "machine_test_unknown.ptx";
    std::ofstream(path) << kernel("frobnicate.rn.f32 %f1, %f2;\n");
    program.add_file(path);
    ASSERT_EQ(program.unknown_instructions("k").size(), 1u);
    Launch launch;
    launch.parameters.resize(8);
    try {
        program.run("k", launch);
        FAIL() << "no fault";
    } catch (const Fault& fault) {
        EXPECT_TRUE(contains(fault.what(), "frobnicate.rn.f32")) << fault.what();
    }
}

TEST_F(Machine, DeadlocksAreFaults) {
    std::string text = fault_of(kernel(own_element(4) + "bar.sync 1, 96;\n"), 64);
    EXPECT_TRUE(contains(text, "deadlock")) << text;
    EXPECT_TRUE(contains(text, "warp 1")) << text;
    // Half of the lanes never come to the shuffle: they have it behind a barrier.
    text = fault_of(kernel(own_element(4) +
                           "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra HERE;\nbar.warp.sync -1;\nHERE:\n"
                           "shfl.sync.idx.b32 %r2, %r0, 0, 31, -1;\n"));
    EXPECT_TRUE(contains(text, "deadlock")) << text;
}

TEST_F(Machine, ALaneThatSpinsLetsOthersRun) {
    // Lane 0 waits in a loop for what lane 1 stores behind it.
    run(kernel(own_element(4) +
               "setp.ne.u32 %p1, %r0, 0;\n@%p1 bra OTHERS;\n"
               "SPIN:\nld.volatile.global.u32 %r1, [%rd0+4];\nsetp.eq.u32 %p2, %r1, 0;\n"
               "@%p2 bra SPIN;\nst.global.u32 [%rd0], 5;\nbra END;\n"
               "OTHERS:\nst.global.u32 [%rd1], 9;\nEND:\n"));
    EXPECT_EQ(words[0], 5u);
    EXPECT_EQ(words[1], 9u);
}

TEST_F(Machine, BlocksWaitForEachOther) {
    // A barrier of the whole grid by a counter.
    run(kernel("mov.u32 %r0, %ctaid.x;\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\n"
               "atom.global.add.u32 %r1, [%rd0+1024], 1;\n"
               "SPIN:\nld.volatile.global.u32 %r2, [%rd0+1024];\nsetp.lt.u32 %p1, %r2, 1600;\n"
               "@%p1 bra SPIN;\nst.global.u32 [%rd1], %r2;\n"),
        32, 50);
    for (uint32_t i = 0; i < 50; ++i) EXPECT_EQ(words[i], 1600u);
}

TEST_F(Machine, ThreadsOfTheHostShareTheBlocks) {
    // The same barrier of the grid, and a sum by atomics.
    Launch launch;
    launch.grid.x = 64;
    launch.block.x = 96;
    launch.host_threads = 4;
    run(kernel(own_element(4) +
               "atom.global.add.u32 %r1, [%rd0+1024], 1;\n"
               "SPIN:\nld.volatile.global.u32 %r2, [%rd0+1024];\nsetp.lt.u32 %p1, %r2, 6144;\n"
               "@%p1 bra SPIN;\natom.global.add.u32 %r3, [%rd1], %r0;\n"),
        launch);
    for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(words[i], 64 * i);
    launch.resident_blocks = 8;
    EXPECT_THROW(
        run(kernel("mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 40;\n@%p1 trap;\n"), launch),
        Fault);
}

TEST_F(Machine, BlocksRunTheirWarpsInBothOrders) {
    // The first lane of each warp takes a ticket of its block: [block][warp].
    run(kernel("mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nand.b32 %r2, %r0, 31;\n"
               "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra END;\nshr.u32 %r3, %r0, 5;\n"
               "mad.lo.u32 %r3, %r1, 2, %r3;\nmul.wide.u32 %rd1, %r3, 4;\n"
               "add.s64 %rd1, %rd0, %rd1;\nmul.wide.u32 %rd2, %r1, 4;\n"
               "add.s64 %rd2, %rd0, %rd2;\natom.global.add.u32 %r4, [%rd2+64], 1;\n"
               "st.global.u32 [%rd1], %r4;\nEND:\n"),
        64, 2);
    EXPECT_EQ(words[0], 1u);
    EXPECT_EQ(words[1], 0u);
    EXPECT_EQ(words[2], 0u);
    EXPECT_EQ(words[3], 1u);
}

constexpr const char* copy_text =
    "mov.u32 %r1, tile;\nst.shared.u32 [tile], 1;\nst.shared.u32 [tile+4], 1;\n"
    "cp.async.ca.shared.global [%r1], [%rd0+64], 4;\ncp.async.commit_group;\n"
    "cp.async.ca.shared.global [%r1+4], [%rd0+68], 4;\ncp.async.commit_group;\n"
    "ld.shared.u32 %r2, [tile];\n"
    "cp.async.wait_group 1;\nld.shared.v2.u32 {%r3, %r4}, [tile];\n"
    "cp.async.wait_all;\nld.shared.u32 %r5, [tile+4];\n"
    "st.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5};\n";

TEST_F(Machine, CopiesOfThreadsComeWhenTheyAreWaitedFor) {
    words[16] = 42, words[17] = 43;
    run(kernel(copy_text, ".shared .align 16 .b8 tile[16];\n"), 1);
    EXPECT_EQ(words[0], 1u);
    EXPECT_EQ(words[1], 42u);
    EXPECT_EQ(words[2], 1u);
    EXPECT_EQ(words[3], 43u);
}

TEST_F(Machine, BulkLoadsComeWithTheirBarrier) {
    for (uint32_t i = 0; i < 8; ++i) words[16 + i] = 100 + i;
    const std::string text =
        "mov.u32 %r1, tile;\nmov.u32 %r9, barrier;\nmbarrier.init.shared.b64 [%r9], 1;\n"
        "st.shared.u32 [tile+28], 1;\n"
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 32;\nadd.s64 %rd2, %rd0, 64;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2], 32, "
        "[%r9];\n"
        "ld.shared.u32 %r2, [tile+28];\n"
        // Parity 1 is the phase before the first: it is over.
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%r9], 1; selp.u32 %r3, 1, 0, p; "
        "}\n"
        "ld.shared.u32 %r4, [tile+28];\n"
        "WAIT:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r9], 0;\n@!%p1 bra WAIT;\n"
        "ld.shared.u32 %r5, [tile+28];\n"
        "st.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5};\n"
        // And back, by a bulk store: it moves when it is waited for.
        "add.s64 %rd3, %rd0, 128;\ncp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r1], 32;\n"
        "cp.async.bulk.commit_group;\nld.global.u32 %r6, [%rd3+28];\n"
        "cp.async.bulk.wait_group.read 0;\nst.shared.u32 [tile+28], 7;\n"
        "st.global.u32 [%rd0+16], %r6;\n";
    run(kernel(text, ".shared .align 16 .b8 tile[32];\n.shared .align 8 .b8 barrier[8];\n"), 1);
    EXPECT_EQ(words[0], 1u);
    EXPECT_EQ(words[1], 1u);
    EXPECT_EQ(words[2], 1u);
    EXPECT_EQ(words[3], 107u);
    EXPECT_EQ(words[4], 0u);
    for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(words[32 + i], 100 + i);
}

TEST_F(Machine, BulkPrefetchesAreOfMemoryThatIsThere) {
    const auto prefetch = [](const char* bytes) {
        return kernel(std::string("cp.async.bulk.prefetch.L2.global [%rd0], ") + bytes + ";\n");
    };
    run(prefetch("64"), 1);
    EXPECT_THROW(run(prefetch("1073741824"), 1), Fault);
    EXPECT_THROW(run(prefetch("8"), 1), Fault);
}

TEST_F(Machine, ArrivalsBehindCopies) {
    words[16] = 42;
    run(
        kernel("mov.u32 %r1, tile;\nmov.u32 %r9, barrier;\nmbarrier.init.shared.b64 [%r9], 32;\n"
               "bar.warp.sync -1;\nst.shared.u32 [tile], 1;\n"
               "cp.async.ca.shared.global [%r1], [%rd0+64], 4;\n"
               "cp.async.mbarrier.arrive.noinc.shared.b64 [%r9];\nld.shared.u32 %r2, [tile];\n"
               "WAIT:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r9], 0;\n@!%p1 bra WAIT;\n"
               "ld.shared.u32 %r3, [tile];\nst.global.v2.u32 [%rd0], {%r2, %r3};\n",
               ".shared .align 16 .b8 tile[16];\n.shared .align 8 .b8 barrier[8];\n"));
    EXPECT_EQ(words[0], 1u);
    EXPECT_EQ(words[1], 42u);
}

TEST_F(Machine, BlocksOfAClusterStoreIntoEachOther) {
    Launch launch;
    launch.grid.x = 4;
    launch.cluster.x = 2;
    launch.block.x = 32;
    run(kernel(
            "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %cluster_ctarank;\nxor.b32 %r2, %r1, 1;\n"
            "mov.u32 %r8, "
            "%ctaid.x;\nbarrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
            "mov.u32 %r3, tile;\nmapa.shared::cluster.u32 %r4, %r3, %r2;\n"
            "add.u32 %r5, %r8, 10;\ncvt.rn.f32.u32 %f1, %r5;\nst.shared::cluster.f32 [%r4], %f1;\n"
            "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
            "ld.shared.f32 %f2, [tile];\nmul.wide.u32 %rd1, %r8, 4;\nadd.s64 %rd1, %rd0, %rd1;\n"
            "st.global.f32 [%rd1], %f2;\n",
            ".shared .align 4 .b8 tile[4];\n"),
        launch);
    const float expected[] = {11, 10, 13, 12};
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(as_float(i), expected[i]);
}

TEST_F(Machine, FunctionsAreCalled) {
    const std::string function =
        ".func (.param .b32 out) twice(.param .b32 in)\n;\n"
        ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .f32 %f<3>; .reg .pred %p<2>;\n"
        "ld.param.f32 %f1, [in];\nsetp.lt.f32 %p1, %f1, 0f00000000;\n@%p1 bra NEGATIVE;\n"
        "add.f32 %f2, %f1, %f1;\nst.param.f32 [out+0], %f2;\nret;\n"
        "NEGATIVE:\nst.param.f32 [out+0], 0f00000000;\nret;\n}\n";
    run(kernel(own_element(4) +
                   "cvt.rn.f32.u32 %f5, %r0;\nsub.f32 %f5, %f5, 0f40A00000;\n"
                   "{ // callseq 0, 0\n.param .b32 param0;\nst.param.f32 [param0+0], %f5;\n"
                   ".param .b32 retval0;\ncall.uni (retval0),\ntwice,\n(\nparam0\n);\n"
                   "ld.param.f32 %f6, [retval0+0];\n}\nst.global.f32 [%rd1], %f6;\n",
               function));
    for (int i = 0; i < 32; ++i)
        EXPECT_EQ(as_float(static_cast<size_t>(i)),
                  i < 5 ? 0.0f : 2.0f * static_cast<float>(i - 5));
}

TEST_F(Machine, GenericAddressesOfEverySpace) {
    run(kernel(own_element(16) +
                   "mov.u64 %rd5, tile;\ncvta.shared.u64 %rd6, %rd5;\nadd.u32 %r1, %r0, 7;\n"
                   "mul.wide.u32 %rd7, %r0, 4;\nadd.s64 %rd8, %rd6, %rd7;\nst.u32 [%rd8], %r1;\n"
                   "cvta.to.shared.u64 %rd9, %rd8;\ncvt.u32.u64 %r2, %rd9;\nld.shared.u32 %r3, "
                   "[%r2];\n"
                   "mov.u64 %rd10, stack;\nst.local.u32 [%rd10+4], %r0;\ncvta.local.u64 %rd11, "
                   "%rd10;\n"
                   "ld.u32 %r4, [%rd11+4];\nld.global.u32 %r5, [table+8];\nmov.u64 %rd12, p;\n"
                   "ld.param.u64 %rd13, [%rd12];\nsub.s64 %rd13, %rd13, %rd0;\ncvt.u32.u64 %r6, "
                   "%rd13;\n"
                   "st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r6};\n",
               ".shared .align 4 .b8 tile[128];\n.global .align 4 .b32 table[4] = {5, 6, -7, 8};\n")
            .insert(kernel("",
                           ".shared .align 4 .b8 tile[128];\n.global .align 4 .b32 table[4] = "
                           "{5, 6, -7, 8};\n")
                        .find("ld.param.u64 %rd0"),
                    ".local .align 4 .b8 stack[8];\n"));
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(words[4 * i], i + 7);
        EXPECT_EQ(words[4 * i + 1], i);
        EXPECT_EQ(words[4 * i + 2], static_cast<uint32_t>(-7));
        EXPECT_EQ(words[4 * i + 3], 0u);
    }
}

TEST_F(Machine, DynamicSharedMemoryAndPoison) {
    Launch launch;
    launch.block.x = 32;
    launch.dynamic_shared_bytes = 64;
    run(kernel("mov.u32 %r1, stages;\nld.shared.u32 %r2, [%r1+60];\nand.b32 %r3, %r1, 1023;\n"
               "st.global.v2.u32 [%rd0], {%r2, %r3};\n",
               ".shared .align 4 .b8 first[20];\n.extern .shared .align 1024 .b8 stages[];\n"),
        launch);
    EXPECT_EQ(words[0], 0xFFFFFFFFu);
    EXPECT_EQ(words[1], 0u);
    launch.dynamic_shared_bytes = 32;
    EXPECT_THROW(run(kernel("mov.u32 %r1, stages;\nld.shared.u32 %r2, [%r1+60];\n",
                            ".extern .shared .align 16 .b8 stages[];\n"),
                     launch),
                 Fault);
}

TEST_F(Machine, Facts) {
    const std::string path = own_file();
    std::ofstream(path) << head
                        << ".shared .align 8 .b8 x[24];\n"
                           ".entry f(.param .u8 a, .param .align 8 .b8 b[20], .param .u32 c)\n"
                           ".maxntid 128, 2, 1\n{\n.reg .b32 %r<2>;\n"
                           "ld.shared.u32 %r1, [x];\nret;\n}\n";
    program.add_file(path);
    EXPECT_TRUE(program.has("f"));
    EXPECT_FALSE(program.has("g"));
    const auto facts = program.facts("f");
    EXPECT_EQ(facts.static_shared_bytes, 24u);
    EXPECT_EQ(facts.max_threads, 256u);
    EXPECT_EQ(facts.parameter_bytes, 32u);
    const std::vector<std::pair<uint32_t, uint32_t>> expected = {{0, 1}, {8, 20}, {28, 4}};
    EXPECT_EQ(program.parameters("f"), expected);
}

}  // namespace
