// A kernel in the form that the emulator runs: instructions with a handler and operand offsets into
// a warp's registers.
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

// A handler returns this to the loop of its warp.
enum class Step : uint8_t {
    next,     // continue with the next instruction
    jumped,   // Warp::pc or Warp::pcs are set
    blocked,  // the lanes in Warp::stay retry later, the others continue
    yielded,  // next, after a turn of the other warps
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
    uint32_t target = 0;  // branch target
    uint32_t line = 0;
    Space space = Space::generic;
    uint8_t bytes = 0;  // size of one element of an access
    uint8_t count = 0;  // elements of an access, or of the list
    uint8_t mode = 0;   // further input of the handler
};

struct Kernel {
    std::string name;
    std::vector<Instruction> code;
    std::vector<uint32_t> lists;
    std::vector<std::string> texts;   // text of unknown instructions
    std::vector<uint64_t> constants;  // 32 lanes each; a predicate is one word
    uint32_t register_bytes = 0;
    // Offset and bytes of registers that may be read before they are written.
    std::vector<std::pair<uint32_t, uint32_t>> unset;
    std::vector<std::pair<uint32_t, uint32_t>> parameters;  // offset, size
    uint32_t static_shared = 0;   // without the bytes reserved at shared_base
    uint32_t dynamic_shared = 0;  // offset of the dynamic array
    uint32_t local_bytes = 0;     // per thread
    uint32_t max_threads = 1024;
};

// The 32-bit address at which a block's shared memory begins. The bytes before it are reserved for
// the system, so address zero faults there, too.
constexpr uint32_t shared_base = 1024;
constexpr uint32_t max_shared_bytes = 227 * 1024;
// The top byte of a shared::cluster address is the block's rank plus one; zero means the own block.
constexpr unsigned cluster_shift = 24;
constexpr uint64_t shared_window = 0xE000000000000000u;
constexpr uint64_t local_window = 0xD000000000000000u;
constexpr uint64_t window_mask = 0xFFFFFFFF00000000u;

}  // namespace emulator
