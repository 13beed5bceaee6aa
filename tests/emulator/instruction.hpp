// Kernels as the emulator runs them: instructions that know their handler, and where in a warp's
// registers their operands lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/machine.hpp"

namespace emulator {

struct Warp;
struct Instruction;

// What a handler says to the loop of its warp.
enum class Step : uint8_t {
    next,     // on to the instruction that follows
    jumped,   // Warp::pc or the lanes' own places are set
    blocked,  // the lanes in Warp::stay come here again later, the others go on
    yielded,  // as next, and other warps shall have their turn
};

using Handler = Step (*)(Warp&, const Instruction&);

enum class Space : uint8_t { generic, global, shared, local, param };

// An operand is the offset of its 32 lanes in the registers of the warp, or, with the top bit, in
// the constants of the kernel. A predicate is one word with a bit for each lane.
constexpr uint32_t constant_bit = 0x80000000u;

struct Instruction {
    Handler run = nullptr;
    uint32_t d = 0, a = 0, b = 0, c = 0, e = 0, f = 0;
    uint32_t guard = constant_bit;  // the first constant is the predicate that is true
    uint32_t guard_flip = 0;
    int64_t immediate = 0;
    uint32_t list = 0;    // more operands: an index into Kernel::lists
    uint32_t target = 0;  // of a branch
    uint32_t line = 0;
    Space space = Space::generic;
    uint8_t bytes = 0;  // of one element of an access
    uint8_t count = 0;  // elements of an access, or of the list
    uint8_t mode = 0;   // what else the handler wants to know
};

struct Kernel {
    std::string name;
    std::vector<Instruction> code;
    std::vector<uint32_t> lists;
    std::vector<std::string> texts;   // of instructions that nobody knows
    std::vector<uint64_t> constants;  // of 32 lanes; a predicate is one
    uint32_t register_bytes = 0;
    std::vector<std::pair<uint32_t, uint32_t>> unset;  // slots that may be read unwritten: bytes
    std::vector<std::pair<uint32_t, uint32_t>> parameters;  // offset, size
    uint32_t static_shared = 0;   // without the first bytes that the system keeps
    uint32_t dynamic_shared = 0;  // where the dynamic array begins
    uint32_t local_bytes = 0;     // for each thread
    uint32_t max_threads = 1024;
};

// Where the shared memory of a block begins, in its 32-bit addresses: the bytes before are the
// system's, so that address zero is wrong there, too.
constexpr uint32_t shared_base = 1024;
constexpr uint32_t max_shared_bytes = 227 * 1024;
// The top byte of a shared::cluster address is the block's rank plus one; zero is the own block.
constexpr unsigned cluster_shift = 24;
constexpr uint64_t shared_window = 0xE000000000000000u;
constexpr uint64_t local_window = 0xD000000000000000u;
constexpr uint64_t window_mask = 0xFFFFFFFF00000000u;

}  // namespace emulator
