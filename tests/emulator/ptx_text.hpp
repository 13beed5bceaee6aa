// Splits PTX text into statements: labels, braces, directives and instructions with their
// arguments. It knows no instruction by name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace emulator {

enum class Type : uint8_t {
    none,
    pred,
    b8,
    b16,
    b32,
    b64,
    b128,
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    f16,
    bf16,
    f16x2,
    bf16x2,
    f32,
    f64,
    e4m3,
    e4m3x2,
    e5m2x2,
    e2m1x2,
};

Type type_named(std::string_view name);
unsigned bits_of(Type type);
bool is_signed(Type type);
bool is_float(Type type);

struct Argument {
    enum class Kind : uint8_t { name, number, address, vector, list, pair };
    Kind kind = Kind::name;
    bool negated = false;   // !%p, or -%r
    std::string_view text;  // the name, or the base of an address
    uint64_t bits = 0;      // value of a number
    int64_t offset = 0;     // offset of an address
    std::vector<Argument> parts;
};

struct Statement {
    enum class Kind : uint8_t { instruction, label, open, close, directive, end };
    Kind kind = Kind::end;
    bool guard_negated = false;
    uint32_t line = 0;
    std::string_view guard;
    std::string_view text;                 // label, directive or whole opcode
    std::vector<std::string_view> opcode;  // split at its dots
    std::vector<Argument> arguments;

    bool has(std::string_view modifier) const;
    // Returns the type modifiers by their order; none past the last.
    Type type(size_t index = 0) const;
    // Returns the last type modifier.
    Type last_type() const;
};

// Reads the body of a kernel or function, from behind its opening brace to its closing brace, which
// gives an `end`.
class StatementReader {
  public:
    StatementReader(std::string_view text, size_t begin, uint32_t line)
        : text_(text), at_(begin), line_(line) {}
    void next(Statement& statement);

  private:
    void skip_space();
    bool read_label(Statement& statement);
    void read_directive(Statement& statement);
    void read_instruction(Statement& statement);
    void read_arguments(std::vector<Argument>& arguments, char closing);
    void read_argument(Argument& argument);
    void read_address(Argument& argument);
    void read_number(Argument& argument);
    std::string_view read_word();
    [[noreturn]] void fail(const char* what) const;

    std::string_view text_;
    size_t at_;
    uint32_t line_;
    int depth_ = 0;
};

// An item of a file outside of bodies.
struct FileItem {
    enum class Kind : uint8_t { kernel, function, variable };
    Kind kind;
    std::string_view name;
    std::string_view declaration;  // text from its first word to its brace or semicolon
    size_t body = 0;               // offset behind the opening brace; 0: no body
    uint32_t line = 0;             // line of the body
};

std::vector<FileItem> items_of(std::string_view text);

}  // namespace emulator
