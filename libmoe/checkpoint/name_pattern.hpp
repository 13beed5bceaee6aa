// Regular expressions over the names of modules, as configurations have them: of Python's and
// PCRE's syntax what such names need. There is no recursion over the name, and the work has a
// limit, so that no file can make a match last.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

namespace moe {

class NamePattern {
  public:
    // None: a syntax that is not understood (back references, look-behind, flags, ...), or a
    // pattern that is too long.
    static std::optional<NamePattern> parse(std::pmr::memory_resource& memory,
                                            std::string_view text);

    enum class Where : uint8_t { AtStart, Anywhere };
    // None: with the steps that were taken before it takes more than the limit.
    std::optional<bool> matches(std::string_view name, Where where, size_t& steps) const;

    size_t size() const { return program_.size() + sets_.size() * sizeof(Bytes); }

  private:
    friend class NamePatternParser;

    using Bytes = std::bitset<256>;
    enum class Op : uint8_t { Byte, Set, Split, Jump, Begin, End, Ahead, NotAhead, Match };
    // Byte: `value`. Set: `value` is an index of sets_. Split: goes on at the next instruction and
    // at `target`. Ahead: the next instructions up to a Match are looked for here, then `target`.
    struct Instruction {
        Op op;
        uint16_t value;
        uint32_t target;
    };
    struct Search;

    explicit NamePattern(std::pmr::memory_resource& memory) : program_(&memory), sets_(&memory) {}

    std::pmr::vector<Instruction> program_;
    std::pmr::vector<Bytes> sets_;
};

}  // namespace moe
