// A GPU emulated on the CPU: it reads the PTX of kernels and runs them lane by lane, according to
// the PTX manual. It has no notion of time. It shows what a kernel computes, what it reads and
// writes, and whether it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

struct Dim3 {
    uint32_t x = 1, y = 1, z = 1;
};

// Memory that kernels may access. Pointers are host pointers. It is safe to use from several
// threads.
class Memory {
  public:
    void add(const void* begin, size_t bytes);
    void remove(const void* begin);
    // Returns the end of the allocation that holds `address`, 0 if none does.
    uintptr_t end_of(uintptr_t address, uintptr_t* begin) const;

  private:
    mutable std::mutex mutex_;
    std::map<uintptr_t, size_t> ranges_;
};

// An error of a running kernel: a bad address, an unknown instruction, a trap, a deadlock. The text
// names the kernel, block, thread and PTX line.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct KernelFacts {
    uint32_t static_shared_bytes = 0;
    uint32_t parameter_bytes = 0;
    uint32_t max_threads = 1024;  // .maxntid
};

struct Launch {
    Dim3 grid, block, cluster;
    uint32_t dynamic_shared_bytes = 0;
    std::vector<std::byte> parameters;  // laid out as the kernel's .param space
    uint32_t multiprocessors = 132;     // value of %nsmid
    uint32_t resident_blocks = 264;     // concurrent blocks, rounded up to whole clusters
    uint32_t host_threads = 1;          // host threads that split the blocks; one is deterministic
};

// Interface of a launch to those before and after it, where it may begin before they have ended.
class Neighbours {
  public:
    virtual ~Neighbours() = default;
    virtual bool has_earlier() const = 0;  // earlier launches have not ended
    virtual void end_earlier() = 0;        // returns when they have
    // Called once, when every block has let the next launch begin. It returns when this launch
    // continues.
    virtual void let_next_begin() = 0;
};

// The kernels of a set of PTX files. Files are indexed when they are added, and kernels are parsed
// at their first use.
class Program {
  public:
    explicit Program(const Memory& memory);
    ~Program();
    void add_file(const std::string& path);
    // Looks up a mangled name; false if no file has it.
    bool has(std::string_view kernel) const;
    KernelFacts facts(std::string_view kernel);
    // Returns the offset and size of each parameter in the .param space.
    std::vector<std::pair<uint32_t, uint32_t>> parameters(std::string_view kernel);
    // Lists the opcodes that the emulator does not know; running one is a Fault.
    std::vector<std::string> unknown_instructions(std::string_view kernel);
    // Runs a kernel to its end, or throws Fault. A launch that several host threads run neither
    // begins early nor lets the next one begin early.
    void run(std::string_view kernel, const Launch& launch, Neighbours* neighbours = nullptr);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace emulator
