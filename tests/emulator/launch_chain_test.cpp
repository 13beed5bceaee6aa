// Tests programmatic dependent launch: before its wait a kernel reads the old data, behind it the
// data of the preceding kernels.
#include "tests/emulator/launch_chain.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

namespace {

using emulator::LaunchChain;
using emulator::Neighbours;

std::string kernel(const char* name, const char* body) {
    return std::string(".visible .entry ") + name +
           "(.param .u64 p)\n{\n.reg .b64 %rd<4>;\n.reg .b32 %r<4>;\nld.param.u64 %rd0, [p];\n" +
           body + "ret;\n}\n";
}

const std::string ptx =
    ".version 8.0\n.target sm_90a\n.address_size 64\n" +
    // It lets the next launch begin, then stores.
    kernel("writer",
           "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nbar.sync 0;\n"
           "mov.u32 %r0, 7;\nst.global.u32 [%rd0], %r0;\n") +
    // It stores, then lets the next launch begin.
    kernel("late",
           "griddepcontrol.wait;\nmov.u32 %r0, 9;\nst.global.u32 [%rd0], %r0;\n"
           "griddepcontrol.launch_dependents;\n") +
    // It copies word 0 before and behind its wait, to words 1 and 2.
    kernel("reader",
           "griddepcontrol.launch_dependents;\nld.global.u32 %r0, [%rd0];\ngriddepcontrol.wait;\n"
           "ld.global.u32 %r1, [%rd0];\nst.global.u32 [%rd0+4], %r0;\n"
           "st.global.u32 [%rd0+8], %r1;\n") +
    // It copies word 0 to word 3, without a wait.
    kernel("careless", "ld.global.u32 %r0, [%rd0];\nst.global.u32 [%rd0+12], %r0;\n") +
    kernel("breaks", "griddepcontrol.launch_dependents;\ntrap;\n");

class Chain : public testing::Test {
  protected:
    Chain() : program(memory) {
        memory.add(words, sizeof words);
        const std::string path =
            testing::TempDir() + "launch_chain_test_" + std::to_string(getpid()) + ".ptx";
        std::ofstream(path) << ptx;
        program.add_file(path);
        std::remove(path.c_str());
    }
    void start(const char* kernel, uint32_t blocks = 3) {
        emulator::Launch launch;
        launch.grid.x = blocks;
        launch.block.x = 64;
        launch.resident_blocks = 2;
        const uint32_t* pointer = words;
        launch.parameters.resize(8);
        std::memcpy(launch.parameters.data(), &pointer, 8);
        chain.start([this, kernel, launch](Neighbours& neighbours) {
            program.run(kernel, launch, &neighbours);
        });
    }

    uint32_t words[16] = {};
    emulator::Memory memory;
    emulator::Program program;
    LaunchChain chain;
};

TEST_F(Chain, WhatIsReadBeforeTheWaitIsOld) {
    start("writer", 2);
    start("reader", 2);
    chain.finish();
    EXPECT_EQ(words[0], 7u);
    EXPECT_EQ(words[1], 0u);
    EXPECT_EQ(words[2], 7u);
}

// Two of three blocks are resident at a time: the third begins when one of them has ended.
TEST_F(Chain, NothingBeginsBeforeEveryBlockAllowsIt) {
    start("late");
    start("reader");
    chain.finish();
    EXPECT_EQ(words[1], 9u);
    EXPECT_EQ(words[2], 9u);
}

TEST_F(Chain, AWaitIsForAllBefore) {
    start("writer", 2);
    start("reader");
    start("reader");
    start("late");
    chain.finish();
    EXPECT_EQ(words[0], 9u);
    EXPECT_EQ(words[2], 7u);
}

TEST_F(Chain, WhoDoesNotWaitReadsWhatIsThere) {
    words[3] = 5;
    start("writer", 2);
    start("careless");
    EXPECT_EQ(words[3], 0u);
    EXPECT_EQ(words[0], 0u);
    chain.finish();
    EXPECT_EQ(words[0], 7u);
    start("careless");
    EXPECT_EQ(words[3], 7u);
}

TEST_F(Chain, AFaultComesOut) {
    start("breaks", 2);
    EXPECT_THROW(chain.finish(), emulator::Fault);
    start("late");
    chain.finish();
    EXPECT_EQ(words[0], 9u);
}

}  // namespace
