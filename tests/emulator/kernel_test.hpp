// Fixture of tests that run one small kernel, written in PTX, on a buffer of words.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/emulator/machine.hpp"

namespace emulator::test {

inline constexpr const char* ptx_header = ".version 8.0\n.target sm_90a\n.address_size 64\n";

// Returns the text of one kernel "k" with one pointer parameter, in %rd0.
inline std::string kernel(const std::string& body, const std::string& before = "") {
    return ptx_header + before +
           ".visible .entry k(.param .u64 p)\n{\n"
           ".reg .pred %p<20>; .reg .b16 %h<40>; .reg .b32 %r<200>; .reg .f32 %f<200>;\n"
           ".reg .b64 %rd<40>;\n"
           "ld.param.u64 %rd0, [p];\n" +
           body + "ret;\n}\n";
}

// Tests run in parallel processes, so each needs its own file.
inline std::string own_file() {
    return testing::TempDir() + "machine_test_" + std::to_string(getpid()) + ".ptx";
}

// Computes in %rd1 the address of element %r0 = thread of the buffer, `bytes` each.
inline std::string own_element(int bytes) {
    return "mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, " + std::to_string(bytes) +
           ";\nadd.s64 %rd1, %rd0, %rd1;\n";
}

class KernelTest : public testing::Test {
  protected:
    KernelTest() : words(4096, 0), program(memory) { memory.add(words.data(), words.size() * 4); }

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
    Memory memory;
    Program program;
};

}  // namespace emulator::test
