// Tests the emulator on small kernels: convergence of threads, barriers, memory, copies and faults.
#include "tests/emulator/kernel_test.hpp"

namespace emulator::test {
namespace {

class Machine : public KernelTest {};

bool contains(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

TEST_F(Machine, LanesPartAndMeet) {
    // Each lane counts to its number in its own loop; odd lanes then branch elsewhere.
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
    // Every thread reads from a static array what the last thread has written.
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

// Thread 40 of 96 says yes, then all but thread 70 do.
TEST_F(Machine, BarriersReducePredicates) {
    run(kernel(own_element(4) +
               "setp.eq.u32 %p1, %r0, 40;\nbar.red.or.pred %p2, 0, %p1;\n"
               "selp.u32 %r1, 1, 0, %p2;\n"
               "bar.red.and.pred %p2, 0, %p1;\nselp.u32 %r2, 2, 0, %p2;\nor.b32 %r1, %r1, %r2;\n"
               "setp.eq.u32 %p1, %r0, 70;\nbar.red.and.pred %p2, 0, !%p1;\n"
               "selp.u32 %r2, 4, 0, %p2;\nor.b32 %r1, %r1, %r2;\n"
               "setp.lt.u32 %p1, %r0, 96;\nbar.red.and.pred %p2, 1, 96, %p1;\n"
               "selp.u32 %r2, 8, 0, %p2;\nor.b32 %r1, %r1, %r2;\nst.global.u32 [%rd1], %r1;\n"),
        96);
    for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(words[i], 9u) << i;
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
    // Half of the lanes reach their shuffle only behind a barrier.
    text = fault_of(kernel(own_element(4) +
                           "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra HERE;\nbar.warp.sync -1;\nHERE:\n"
                           "shfl.sync.idx.b32 %r2, %r0, 0, 31, -1;\n"));
    EXPECT_TRUE(contains(text, "deadlock")) << text;
}

TEST_F(Machine, ALaneThatSpinsLetsOthersRun) {
    // Lane 0 spins on a value that lane 1 stores behind the loop.
    run(kernel(own_element(4) +
               "setp.ne.u32 %p1, %r0, 0;\n@%p1 bra OTHERS;\n"
               "SPIN:\nld.volatile.global.u32 %r1, [%rd0+4];\nsetp.eq.u32 %p2, %r1, 0;\n"
               "@%p2 bra SPIN;\nst.global.u32 [%rd0], 5;\nbra END;\n"
               "OTHERS:\nst.global.u32 [%rd1], 9;\nEND:\n"));
    EXPECT_EQ(words[0], 5u);
    EXPECT_EQ(words[1], 9u);
}

TEST_F(Machine, BlocksWaitForEachOther) {
    // A counter makes a barrier of the whole grid.
    run(kernel("mov.u32 %r0, %ctaid.x;\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\n"
               "atom.global.add.u32 %r1, [%rd0+1024], 1;\n"
               "SPIN:\nld.volatile.global.u32 %r2, [%rd0+1024];\nsetp.lt.u32 %p1, %r2, 1600;\n"
               "@%p1 bra SPIN;\nst.global.u32 [%rd1], %r2;\n"),
        32, 50);
    for (uint32_t i = 0; i < 50; ++i) EXPECT_EQ(words[i], 1600u);
}

TEST_F(Machine, ThreadsOfTheHostShareTheBlocks) {
    // The same barrier of the grid precedes a sum by atomics.
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
        // Parity 1 is the phase before the first, which is complete.
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%r9], 1; selp.u32 %r3, 1, 0, p; "
        "}\n"
        "ld.shared.u32 %r4, [tile+28];\n"
        "WAIT:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r9], 0;\n@!%p1 bra WAIT;\n"
        "ld.shared.u32 %r5, [tile+28];\n"
        "st.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5};\n"
        // A bulk store copies it back; it happens at its wait.
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
    std::ofstream(path) << ptx_header
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
}  // namespace emulator::test
