// The largest instruction set that the library may use, for the life of an object.
#pragma once

#include <cstdlib>
#include <string>

namespace moe::test {

class InstructionSet {
  public:
    explicit InstructionSet(const char* most) {
        if (const char* before = std::getenv(name)) before_ = before;
        setenv(name, most, 1);
    }
    ~InstructionSet() {
        if (before_.empty())
            unsetenv(name);
        else
            setenv(name, before_.c_str(), 1);
    }
    InstructionSet(const InstructionSet&) = delete;
    InstructionSet& operator=(const InstructionSet&) = delete;

  private:
    static constexpr const char* name = "MOE_CPU_ISA";
    std::string before_;
};

}  // namespace moe::test
