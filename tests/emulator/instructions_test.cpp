// Tests the results of instructions, in one lane and in a whole warp, where they are known.
#include <cmath>

#include "tests/emulator/kernel_test.hpp"

namespace emulator::test {
namespace {

class Instructions : public KernelTest {};

TEST_F(Instructions, Shuffles) {
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

TEST_F(Instructions, ReductionsAndMatches) {
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

TEST_F(Instructions, OneLaneIsElected) {
    run(kernel(
        own_element(16) +
        "elect.sync %r1|%p1, -1;\nselp.u32 %r2, 1, 0, %p1;\n"
        "{\n.reg .pred elected;\nelect.sync _|elected, -1;\nselp.u32 %r3, 1, 0, elected;\n}\n"
        "st.global.v4.u32 [%rd1], {%r0, %r1, %r2, %r3};\n"));
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(words[4 * i + 1], words[1]);
        EXPECT_EQ(words[4 * i + 2], i == words[1]);
        EXPECT_EQ(words[4 * i + 3], words[4 * i + 2]);
    }
}

TEST_F(Instructions, WholeNumbers) {
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

TEST_F(Instructions, Floats) {
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

TEST_F(Instructions, SmallFloats) {
    run(kernel("mov.f32 %f1, 0f3F808000;\nmov.f32 %f2, 0f3F818000;\nmov.f32 %f3, 0f477FF000;\n"
               "cvt.rn.bf16x2.f32 %r10, %f1, %f2;\ncvt.rn.f16x2.f32 %r11, %f3, 0f33000001;\n"
               "cvt.rn.f16.f32 %h1, 0f387FC000;\ncvt.u32.u16 %r12, %h1;\n"
               "mov.b16 %h2, 0x0001;\ncvt.f32.f16 %f13, %h2;\n"
               "mov.b16 %h3, 0x7E08;\ncvt.rn.f16x2.e4m3x2 %r14, %h3;\n"
               "fma.rn.bf16x2 %r15, 0x3F804000, 0x40403F80, 0x3F803F80;\n"
               "mul.rn.f16x2 %r18, 0x02000001, 0x78007800;\n"
               "cvt.rn.satfinite.e4m3x2.f32 %h4, %f3, 0f3F880000;\ncvt.u32.u16 %r16, %h4;\n"
               "cvt.rn.satfinite.e4m3x2.f16x2 %h5, %r14;\ncvt.u32.u16 %r19, %h5;\n"
               "mov.u32 %r20, 0x7BFFBC40;\ncvt.rn.satfinite.e4m3x2.f16x2 %h6, %r20;\n"
               "cvt.u32.u16 %r20, %h6;\n"
               "mov.f32 %f4, 0f4F800000;\ncvt.rzi.s32.f32 %r17, %f4;\n"
               "st.global.v4.u32 [%rd0], {%r10, %r11, %r12, %r14};\n"
               "st.global.f32 [%rd0+16], %f13;\n"
               "st.global.u32 [%rd0+20], %r15;\nst.global.v2.u32 [%rd0+24], {%r16, %r17};\n"
               "st.global.u32 [%rd0+32], %r18;\n"
               "st.global.v2.u32 [%rd0+40], {%r19, %r20};\n"),
        1);
    EXPECT_EQ(words[0], 0x3F803F82u);  // halfway, to even
    EXPECT_EQ(words[1], 0x7C000001u);
    EXPECT_EQ(words[2], 0x03FFu);
    EXPECT_EQ(words[3], 0x5F002400u);  // 448 and 2^-6
    EXPECT_EQ(as_float(4), 0x1p-24f);
    EXPECT_EQ(words[5], 0x40804040u);  // 1 * 3 + 1, 2 * 1 + 1
    EXPECT_EQ(words[6], 0x7E38u);      // to even
    EXPECT_EQ(words[7], 0x7FFFFFFFu);
    EXPECT_EQ(words[10], 0x7E08u);     // 448 and 2^-6 again
    EXPECT_EQ(words[11], 0x7EB8u);     // 65504, to the largest; -1.0625, halfway, to even
    EXPECT_EQ(words[8], 0x3C001800u);  // 2^-15 and 2^-24, subnormal, times 2^15
}

TEST_F(Instructions, MatrixProduct) {
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
    // ldmatrix loads A from shared memory, ldmatrix.trans loads B.
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

TEST_F(Instructions, ByteProduct) {
    // Lane 4 g + t holds A's rows g and g + 8, k from 4 t and from 16 + 4 t, and B's column g.
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
                const auto index = static_cast<size_t>(4 * lane + row / 8 * 2 + column % 2);
                EXPECT_EQ(static_cast<int>(words[index]), sum) << row << ' ' << column;
            }
    }
}

TEST_F(Instructions, BytesWithTheirSign) {
    run(kernel(own_element(4) +
                   "mul.lo.u32 %r1, %r0, 0x12345678;\nshl.b32 %r2, %r0, 2;\nmov.u32 %r3, tile;\n"
                   "add.u32 %r2, %r3, %r2;\nst.shared.u32 [%r2], %r1;\n"
                   "ld.shared.s8 %r4, [%r2+1];\nst.global.u32 [%rd1], %r4;\n",
               ".shared .align 4 .b8 tile[128];\n"));
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const auto byte = static_cast<int8_t>(lane * 0x12345678u >> 8);
        EXPECT_EQ(static_cast<int32_t>(words[lane]), byte) << lane;
    }
}

// Copies B, eight rows of 128 bytes, to `tile`. %r9 becomes the first half of its descriptor, from
// byte 32 of the rows on.
const std::string b_in_shared_memory =
    "setp.ge.u32 %p3, %r0, 64;\n@%p3 bra FILLED;\n"
    "shl.b32 %r1, %r0, 4;\ncvt.u64.u32 %rd2, %r1;\nadd.s64 %rd2, %rd0, %rd2;\n"
    "mov.u32 %r9, tile;\nadd.u32 %r1, %r9, %r1;\n"
    "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+4096];\n"
    "st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};\nFILLED:\nbar.sync 0;\n"
    "mov.u32 %r9, tile;\nshr.u32 %r9, %r9, 4;\nadd.u32 %r9, %r9, 2;\n";

TEST_F(Instructions, WarpgroupProduct) {
    // B has eight rows of 64 values, swizzled by 128 bytes; the wgmma reads columns 16 to 31. A has
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
    run(kernel(own_element(16) + b_in_shared_memory +
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

TEST_F(Instructions, WarpgroupProductOfE4m3) {
    // Rows of B have 128 bytes, swizzled; the wgmma reads columns 32 to 63 and clears its sums. A
    // has 1.5 in every column of rows 0 to 7, and of rows 8 to 15 -2 in the first of each four
    // below 16.
    constexpr uint8_t codes[] = {0x00, 0x38, 0x40, 0x44, 0xB8, 0xC0, 0x08, 0x7E};
    constexpr float values[] = {0, 1, 2, 3, -1, -2, 0x1p-6f, 448};
    const auto at = [](int row, int k) { return static_cast<size_t>((row * 3 + k * 5) % 8); };
    auto* bytes = reinterpret_cast<uint8_t*>(words.data() + 1024);
    for (int row = 0; row < 8; ++row)
        for (int k = 0; k < 128; ++k)
            bytes[row * 128 + ((k / 16) ^ row) * 16 + k % 16] = codes[at(row, k)];
    run(kernel(own_element(16) + b_in_shared_memory +
                   "mov.b64 %rd5, {%r9, 1073741888};\nmov.u32 %r10, 0x3C3C3C3C;\n"
                   "mov.u32 %r11, 0x000000C0;\nmov.u32 %r12, 0;\n"
                   "mov.f32 %f1, 0f41200000;\nmov.f32 %f2, %f1;\nmov.f32 %f3, %f1;\nmov.f32 %f4, "
                   "%f1;\n"
                   "wgmma.fence.sync.aligned;\nsetp.ne.u32 %p1, 0, 0;\n"
                   "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f2, %f3, %f4}, "
                   "{%r10, %r11, %r10, %r12}, %rd5, %p1, 1, 1;\n"
                   "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
                   "st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};\n",
               ".shared .align 1024 .b8 tile[1024];\n"),
        128);
    for (int lane = 0; lane < 128; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int column = 2 * (lane % 4) + i % 2;
            float sum = 0;
            for (int k = 0; k < 32; ++k) {
                const float of_b = values[at(column, 32 + k)];
                if (i < 2)
                    sum += 1.5f * of_b;
                else if (k < 16 && k % 4 == 0)
                    sum -= 2 * of_b;
            }
            EXPECT_EQ(as_float(static_cast<size_t>(4 * lane + i)), sum) << lane << ' ' << i;
        }
    }
}

}  // namespace
}  // namespace emulator::test
