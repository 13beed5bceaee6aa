// Builds a Kernel from the PTX text of one. Inputs: a Module and the item of the kernel. Output:
// instructions with handlers and operand offsets.
//   1. names are resolved and called functions are inlined
//   2. each instruction goes to the decoder of its name
//   3. RegisterAssignment gives registers offsets in a warp's memory
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/emulator/instruction.hpp"
#include "tests/emulator/ptx_text.hpp"

namespace emulator {

// One PTX file. It owns the variables of its .global and .const space.
struct Module {
    std::string path, text;
    std::vector<FileItem> items;
    std::unordered_map<std::string_view, const FileItem*> functions, shared;
    std::unordered_map<std::string_view, std::vector<uint64_t>> variables;
    void read(const std::string& path);
};

struct Symbol {
    Space space = Space::global;
    uint64_t at = 0;
};

// An operand field of an instruction that names a register.
struct Reference {
    uint32_t instruction, field, reg;
    bool is_read, is_written;
};

// The successors of an instruction in the control flow.
struct Flow {
    std::vector<uint32_t> targets;
    bool falls_through = true;
};

// A decoder throws this when it does not know the form.
struct UnknownForm {};

class Builder {
  public:
    using Field = uint32_t Instruction::*;

    Builder(Module& module, Kernel& kernel) : module_(module), kernel_(kernel) {}
    void build(const FileItem& item);

    // Decoders call it for a new instruction; the calls below fill in the one last made.
    Instruction& emit(Handler run);
    Instruction& last() { return kernel_.code.back(); }
    // bits 0 means the width of the register. A number becomes a constant of `bits`.
    void read(Field field, const Argument& argument, unsigned bits);
    void write(Field field, const Argument& argument, unsigned bits);
    void read_address(const Argument& argument);
    void begin_list() { last().list = static_cast<uint32_t>(kernel_.lists.size()); }
    void list_read(const Argument& argument, unsigned bits);
    void list_write(const Argument& argument, unsigned bits);
    void list_update(const Argument& argument, unsigned bits);
    // Returns the width of a register, 0 if the argument is none.
    unsigned width(const Argument& argument);
    std::optional<Symbol> symbol(std::string_view name);
    void branch_to(std::string_view label);
    void may_pass();  // the branch is not always taken, guarded or not
    void leave();     // the instruction ends its threads, or returns from a function
    bool is_in_function() const { return !ends_.empty(); }
    void call(const Statement& statement);
    const std::vector<std::string_view>& targets_named(std::string_view name);

  private:
    friend class RegisterAssignment;
    struct Prefix {
        unsigned bits;
    };
    struct Scope {
        bool is_function = false;
        std::unordered_map<std::string_view, uint32_t> registers;
        std::unordered_map<std::string_view, Prefix> prefixes;
        std::unordered_map<std::string_view, Symbol> symbols;
        std::unordered_map<std::string_view, uint32_t> labels;
        std::unordered_map<std::string_view, std::vector<std::string_view>> jump_lists;
        std::vector<std::pair<uint32_t, std::string_view>> open_branches;
    };

    void read_parameters(std::string_view declaration);
    void build_body(std::string_view text, size_t begin, uint32_t line);
    void add(const Statement& statement);
    void decode(const Statement& statement);
    void declare(std::string_view text);
    void declare_registers(std::string_view text);
    void declare_space(std::string_view text);
    void bind_label(std::string_view name);
    void close_scope();
    std::optional<uint32_t> find_register(std::string_view name);
    uint32_t new_register(unsigned bits);
    uint32_t constant(uint64_t value, unsigned bits);
    uint32_t allocate_shared(const FileItem& item);
    uint32_t resolve(const Argument& argument, unsigned bits, bool* is_register);
    void refer(uint32_t field, uint32_t reg, bool is_read, bool is_written);
    void add_list(const Argument& argument, unsigned bits, bool is_read, bool is_written);

    Module& module_;
    Kernel& kernel_;
    const Statement* statement_ = nullptr;
    std::vector<Scope> scopes_;
    std::vector<std::string_view> ends_;  // labels behind the functions being inlined
    std::string_view last_label_;
    std::vector<uint8_t> registers_;  // width in bits
    std::vector<Reference> references_;
    std::unordered_map<uint32_t, Flow> flows_;
    std::unordered_map<std::string_view, uint32_t> shared_offsets_;
    std::unordered_map<uint64_t, uint32_t> constants_[4];
    uint32_t dynamic_alignment_ = 16;
};

using Decoder = void (*)(Builder&, const Statement&);
// Finds the decoder by the first word of the opcode; nullptr if there is none.
Decoder decoder_of(std::string_view name);

struct DecoderEntry {
    std::string_view name;
    Decoder decode;
};
// Each file with handlers has a table.
std::vector<DecoderEntry> integer_decoders();
std::vector<DecoderEntry> logic_decoders();
std::vector<DecoderEntry> float_decoders();
std::vector<DecoderEntry> convert_decoders();
std::vector<DecoderEntry> compare_decoders();
std::vector<DecoderEntry> move_decoders();
std::vector<DecoderEntry> access_decoders();
std::vector<DecoderEntry> atomic_decoders();
std::vector<DecoderEntry> copy_decoders();
std::vector<DecoderEntry> barrier_decoders();
std::vector<DecoderEntry> exchange_decoders();
std::vector<DecoderEntry> matrix_decoders();
std::vector<DecoderEntry> wgmma_decoders();
std::vector<DecoderEntry> control_decoders();

// Faults with the unknown instruction, which texts[immediate] names.
Step unknown_instruction(Warp& warp, const Instruction& in);

// Assigns registers to offsets in a warp's memory, by their live ranges.
class RegisterAssignment {
  public:
    explicit RegisterAssignment(Builder& builder) : b_(builder) {}
    void run();

  private:
    struct Range {
        uint32_t begin = UINT32_MAX, end = 0;
    };
    void find_blocks();
    void find_shared();
    void find_live();
    void extend_ranges();
    void assign_offsets();
    void patch();

    Builder& b_;
    std::vector<uint32_t> starts_;              // starts of basic blocks, and the end
    std::vector<uint32_t> block_of_;            // basic block of each instruction
    std::vector<std::vector<uint32_t>> after_;  // successor blocks
    std::vector<uint32_t> shared_index_;        // index of each register that several blocks use
    std::vector<uint32_t> shared_registers_;
    std::vector<std::vector<uint64_t>> live_in_, live_out_;
    std::vector<Range> ranges_;
    std::vector<uint32_t> offsets_;
};

}  // namespace emulator
