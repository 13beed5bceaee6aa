// Builds a Kernel from PTX text; builder.hpp documents the steps.
#include "tests/emulator/builder.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

namespace emulator {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    const char* between = " \t\r\n";
    for (size_t at = 0; (at = text.find_first_not_of(between, at)) != text.npos;) {
        const size_t end = std::min(text.find_first_of(between, at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

uint64_t number_in(std::string_view text) {
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

// Reads "[.space] [.align N] .type name[N]".
struct Declaration {
    uint64_t alignment = 1, bytes = 0;
    std::string_view name;
    unsigned element_bits = 8;
};

Declaration declaration_in(std::string_view text) {
    Declaration found;
    const size_t equals = text.find('=');
    const auto words = words_of(text.substr(0, equals));
    uint64_t alignment = 0;
    for (size_t i = 0; i < words.size(); ++i) {
        if (words[i] == ".align" && i + 1 < words.size()) alignment = number_in(words[++i]);
        const Type type = words[i].starts_with('.') ? type_named(words[i].substr(1)) : Type::none;
        if (type != Type::none) found.element_bits = bits_of(type);
    }
    found.alignment = alignment ? alignment : found.element_bits / 8;
    std::string_view last = words.back();
    const size_t bracket = last.find('[');
    uint64_t count = 1;
    if (bracket != last.npos) count = number_in(last.substr(bracket + 1));
    found.name = last.substr(0, bracket);
    found.bytes = count * found.element_bits / 8;
    return found;
}

template <class T>
T round_up(T value, T multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

std::vector<uint64_t> initial_values(std::string_view declaration) {
    const Declaration declared = declaration_in(declaration);
    std::vector<uint64_t> storage(declared.bytes / 8 + 3, 0);
    const size_t equals = declaration.find('=');
    if (equals == declaration.npos) return storage;
    auto* to = reinterpret_cast<std::byte*>(storage.data());
    const size_t step = declared.element_bits / 8;
    size_t at = 0;
    for (size_t from = equals; at + step <= declared.bytes; at += step) {
        from = declaration.find_first_of("-0123456789", from);
        if (from == declaration.npos) break;
        const std::string word(
            declaration.substr(from, declaration.find_first_of(",} \n", from) - from));
        uint64_t value = 0;
        if (word.size() == 10 && (word[1] == 'f' || word[1] == 'F'))
            value = std::strtoull(word.c_str() + 2, nullptr, 16);
        else
            value = static_cast<uint64_t>(std::strtoll(word.c_str(), nullptr, 0));
        std::memcpy(to + at, &value, step);
        from += word.size();
    }
    return storage;
}

}  // namespace

void Module::read(const std::string& from) {
    path = from;
    std::ifstream file(from, std::ios::binary);
    if (!file) throw Fault("cannot read " + from);
    text.assign(std::istreambuf_iterator<char>(file), {});
    items = items_of(text);
    for (const FileItem& item : items) {
        if (item.kind == FileItem::Kind::function && item.body) functions[item.name] = &item;
        if (item.kind != FileItem::Kind::variable) continue;
        if (item.declaration.find(".shared") != item.declaration.npos)
            shared[item.name] = &item;
        else if (item.declaration.starts_with(".") &&
                 item.declaration.find(".extern") == item.declaration.npos)
            variables[item.name] = initial_values(item.declaration);
    }
}

void Builder::build(const FileItem& item) {
    kernel_.name = item.name;
    constant(~uint64_t{0}, 1);
    constant(0, 1);
    read_parameters(item.declaration);
    scopes_.emplace_back().is_function = true;
    build_body(module_.text, item.body, item.line);
    // The end of the body acts as an exit.
    Statement end;
    end.kind = Statement::Kind::instruction;
    end.text = "exit";
    end.opcode = {"exit"};
    add(end);
    close_scope();
    RegisterAssignment(*this).run();
    kernel_.dynamic_shared = round_up(shared_base + kernel_.static_shared, dynamic_alignment_);
}

void Builder::read_parameters(std::string_view declaration) {
    Scope& scope = scopes_.emplace_back();
    const size_t open = declaration.find('('), close = declaration.rfind(')');
    uint64_t at = 0;
    if (open != declaration.npos && close != declaration.npos) {
        for (size_t from = open + 1; from < close;) {
            const size_t end = std::min(declaration.find(',', from), close);
            const auto part = declaration.substr(from, end - from);
            from = end + 1;
            if (words_of(part).empty()) continue;
            const Declaration declared = declaration_in(part);
            at = round_up(at, declared.alignment);
            kernel_.parameters.emplace_back(at, declared.bytes);
            scope.symbols[declared.name] = {Space::param, at};
            at += declared.bytes;
        }
    }
    const size_t max = declaration.find(".maxntid");
    if (max == declaration.npos) return;
    uint32_t threads = 1;
    for (size_t from = max + 8, i = 0; i < 3 && from < declaration.size(); ++i) {
        from = declaration.find_first_not_of(" \t\n,", from);
        if (from == declaration.npos || declaration[from] < '0' || declaration[from] > '9') break;
        threads *= static_cast<uint32_t>(number_in(declaration.substr(from)));
        from = declaration.find_first_not_of("0123456789", from);
    }
    kernel_.max_threads = threads;
}

void Builder::build_body(std::string_view text, size_t begin, uint32_t line) {
    StatementReader reader(text, begin, line);
    Statement statement;
    for (reader.next(statement); statement.kind != Statement::Kind::end; reader.next(statement)) {
        switch (statement.kind) {
            case Statement::Kind::open:
                scopes_.emplace_back();
                break;
            case Statement::Kind::close:
                close_scope();
                break;
            case Statement::Kind::directive:
                declare(statement.text);
                break;
            case Statement::Kind::label:
                bind_label(statement.text);
                break;
            default:
                add(statement);
        }
    }
}

void Builder::declare(std::string_view text) {
    if (text.starts_with(".reg")) return declare_registers(text.substr(4));
    if (text.starts_with(".shared") || text.starts_with(".local") || text.starts_with(".param"))
        return declare_space(text);
    if (text.starts_with(".branchtargets")) {
        // It follows its label, which is the last label defined.
        auto& lists = scopes_.back().jump_lists;
        std::vector<std::string_view> labels;
        for (std::string_view word : words_of(text.substr(14)))
            labels.push_back(word.substr(0, word.find(',')));
        lists[last_label_] = std::move(labels);
        return;
    }
    if (text.starts_with(".pragma") || text.starts_with(".loc")) return;
    throw Fault(kernel_.name + ": unknown directive " + std::string(text.substr(0, 60)));
}

void Builder::declare_registers(std::string_view text) {
    const auto words = words_of(text);
    const unsigned bits = bits_of(type_named(words.at(0).substr(1)));
    size_t from = text.find(words[0]) + words[0].size();
    while ((from = text.find_first_not_of(" \t\n,", from)) != text.npos) {
        const size_t end = std::min(text.find_first_of(" \t\n,", from), text.size());
        const std::string_view name = text.substr(from, end - from);
        const size_t bracket = name.find('<');
        if (bracket == name.npos) {
            scopes_.back().registers[name] = new_register(bits);
        } else {
            scopes_.back().prefixes[name.substr(0, bracket)] = {bits};
        }
        from = end;
    }
}

void Builder::declare_space(std::string_view text) {
    const Declaration declared = declaration_in(text);
    if (text.starts_with(".shared")) {
        auto at = round_up<uint64_t>(kernel_.static_shared, declared.alignment);
        kernel_.static_shared = static_cast<uint32_t>(at + declared.bytes);
        scopes_.back().symbols[declared.name] = {Space::shared, shared_base + at};
        return;
    }
    auto at = round_up<uint64_t>(kernel_.local_bytes, std::max<uint64_t>(declared.alignment, 8));
    kernel_.local_bytes = static_cast<uint32_t>(at + declared.bytes);
    scopes_.back().symbols[declared.name] = {Space::local, at};
}

uint32_t Builder::allocate_shared(const FileItem& item) {
    if (auto known = shared_offsets_.find(item.name); known != shared_offsets_.end())
        return known->second;
    const Declaration declared = declaration_in(item.declaration);
    auto at = round_up<uint64_t>(kernel_.static_shared, declared.alignment);
    kernel_.static_shared = static_cast<uint32_t>(at + declared.bytes);
    return shared_offsets_[item.name] = static_cast<uint32_t>(shared_base + at);
}

void Builder::bind_label(std::string_view name) {
    scopes_.back().labels[name] = static_cast<uint32_t>(kernel_.code.size());
    last_label_ = name;
}

void Builder::close_scope() {
    Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    for (const auto& [instruction, name] : scope.open_branches) {
        const auto label = scope.labels.find(name);
        if (label != scope.labels.end()) {
            flows_[instruction].targets.push_back(label->second);
        } else if (scope.is_function || scopes_.empty()) {
            throw Fault(kernel_.name + ": no label " + std::string(name));
        } else {
            scopes_.back().open_branches.emplace_back(instruction, name);
        }
    }
}

void Builder::add(const Statement& statement) {
    const size_t code = kernel_.code.size(), references = references_.size();
    statement_ = &statement;
    try {
        decode(statement);
    } catch (const UnknownForm&) {
        kernel_.code.resize(code);
        references_.resize(references);
        flows_.erase(static_cast<uint32_t>(code));
        Instruction& in = emit(unknown_instruction);
        in.immediate = static_cast<int64_t>(kernel_.texts.size());
        kernel_.texts.emplace_back(statement.text);
    }
}

void Builder::decode(const Statement& statement) {
    const Decoder decoder = decoder_of(statement.opcode[0]);
    if (!decoder) throw UnknownForm{};
    decoder(*this, statement);
}

Instruction& Builder::emit(Handler run) {
    Instruction& in = kernel_.code.emplace_back();
    in.run = run;
    in.line = statement_->line;
    in.guard_flip = statement_->guard_negated ? ~0u : 0;
    if (!statement_->guard.empty()) {
        const auto reg = find_register(statement_->guard);
        if (!reg || registers_[*reg] != 1) throw UnknownForm{};
        refer(6, *reg, true, false);
    }
    return in;
}

void Builder::refer(uint32_t field, uint32_t reg, bool is_read, bool is_written) {
    // A guarded instruction may leave the register unchanged, so the register counts as read.
    if (is_written && !statement_->guard.empty()) is_read = true;
    const auto instruction = static_cast<uint32_t>(kernel_.code.size() - 1);
    references_.push_back({instruction, field, reg, is_read, is_written});
}

uint32_t Builder::new_register(unsigned bits) {
    registers_.push_back(static_cast<uint8_t>(bits));
    return static_cast<uint32_t>(registers_.size() - 1);
}

std::optional<uint32_t> Builder::find_register(std::string_view name) {
    size_t digits = name.size();
    while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    for (size_t i = scopes_.size(); i-- > 0;) {
        Scope& scope = scopes_[i];
        if (auto found = scope.registers.find(name); found != scope.registers.end())
            return found->second;
        auto prefix = scope.prefixes.find(name.substr(0, digits));
        if (prefix != scope.prefixes.end() && digits < name.size())
            return scope.registers[name] = new_register(prefix->second.bits);
        if (scope.is_function) break;
    }
    return std::nullopt;
}

std::optional<Symbol> Builder::symbol(std::string_view name) {
    for (size_t i = scopes_.size(); i-- > 0;) {
        const auto found = scopes_[i].symbols.find(name);
        if (found != scopes_[i].symbols.end()) return found->second;
    }
    if (const auto found = module_.shared.find(name); found != module_.shared.end()) {
        if (found->second->declaration.find(".extern") == std::string_view::npos)
            return Symbol{Space::shared, allocate_shared(*found->second)};
        // The offset of the dynamic array is known once all static ones are.
        const Declaration declared = declaration_in(found->second->declaration);
        dynamic_alignment_ =
            std::max(dynamic_alignment_, static_cast<uint32_t>(declared.alignment));
        return Symbol{Space::shared, UINT64_MAX};
    }
    if (const auto found = module_.variables.find(name); found != module_.variables.end())
        return Symbol{Space::global, std::bit_cast<uint64_t>(found->second.data())};
    return std::nullopt;
}

uint32_t Builder::constant(uint64_t value, unsigned bits) {
    const int index = bits == 1 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    if (bits == 1) value = value ? ~uint64_t{0} : 0;
    if (bits == 16) value &= 0xFFFF;
    if (bits == 32) value &= 0xFFFFFFFF;
    auto [entry, is_new] = constants_[index].try_emplace(value, 0);
    if (!is_new) return entry->second;
    auto& words = kernel_.constants;
    entry->second = constant_bit | static_cast<uint32_t>(words.size() * 8);
    if (bits == 16) value *= 0x0001000100010001u;
    if (bits == 32) value |= value << 32;
    words.insert(words.end(), bits == 1 ? 1 : bits / 2, value);
    return entry->second;
}

uint32_t Builder::resolve(const Argument& argument, unsigned bits, bool* is_register) {
    *is_register = false;
    if (argument.kind == Argument::Kind::number) {
        if (bits == 0) throw UnknownForm{};
        return constant(argument.bits, bits);
    }
    if (argument.kind != Argument::Kind::name) throw UnknownForm{};
    const auto reg = find_register(argument.text);
    if (!reg || (bits && registers_[*reg] != bits)) throw UnknownForm{};
    *is_register = true;
    return *reg;
}

namespace {

uint32_t index_of(Builder::Field field) {
    constexpr Builder::Field fields[] = {&Instruction::d, &Instruction::a, &Instruction::b,
                                         &Instruction::c, &Instruction::e, &Instruction::f};
    return static_cast<uint32_t>(std::find(std::begin(fields), std::end(fields), field) - fields);
}

}  // namespace

void Builder::read(Field field, const Argument& argument, unsigned bits) {
    bool is_register = false;
    const uint32_t found = resolve(argument, bits, &is_register);
    if (is_register) return refer(index_of(field), found, true, false);
    last().*field = found;
}

void Builder::write(Field field, const Argument& argument, unsigned bits) {
    if (argument.text == "_") return refer(index_of(field), new_register(bits), false, true);
    bool is_register = false;
    const uint32_t found = resolve(argument, bits, &is_register);
    if (!is_register) throw UnknownForm{};
    refer(index_of(field), found, false, true);
}

void Builder::add_list(const Argument& argument, unsigned bits, bool is_read, bool is_written) {
    auto& lists = kernel_.lists;
    lists.push_back(0);
    const auto field = static_cast<uint32_t>(lists.size() + 15);
    if (argument.text == "_") return refer(field, new_register(bits), false, true);
    bool is_register = false;
    const uint32_t found = resolve(argument, bits, &is_register);
    if (is_register) return refer(field, found, is_read, is_written);
    if (is_written) throw UnknownForm{};
    lists.back() = found;
}

void Builder::list_read(const Argument& argument, unsigned bits) {
    add_list(argument, bits, true, false);
}

void Builder::list_write(const Argument& argument, unsigned bits) {
    add_list(argument, bits, false, true);
}

void Builder::list_update(const Argument& argument, unsigned bits) {
    add_list(argument, bits, true, true);
}

unsigned Builder::width(const Argument& argument) {
    if (argument.kind != Argument::Kind::name) return 0;
    const auto reg = find_register(argument.text);
    return reg ? registers_[*reg] : 0;
}

// a is the base, 64 bits wide if mode is 1, else 32.
void Builder::read_address(const Argument& argument) {
    if (argument.kind != Argument::Kind::address) throw UnknownForm{};
    Instruction& in = last();
    in.immediate = argument.offset;
    in.mode = 1;
    if (argument.text.empty()) {
        in.a = constant(0, 64);
    } else if (const auto reg = find_register(argument.text)) {
        in.mode = registers_[*reg] == 64;
        if (registers_[*reg] < 32) throw UnknownForm{};
        refer(1, *reg, true, false);
    } else if (const auto found = symbol(argument.text)) {
        if (found->space == Space::param) throw UnknownForm{};
        const bool is_dynamic = found->space == Space::shared && found->at == UINT64_MAX;
        in.a = is_dynamic ? 0 : constant(found->at, 64);
        if (is_dynamic) in.mode = 2;  // Kernel::dynamic_shared
        if (in.space == Space::generic || in.space == Space::param) in.space = found->space;
    } else {
        throw UnknownForm{};
    }
}

void Builder::branch_to(std::string_view label) {
    const auto at = static_cast<uint32_t>(kernel_.code.size() - 1);
    flows_[at].falls_through = !statement_->guard.empty();
    scopes_.back().open_branches.emplace_back(at, label);
}

void Builder::may_pass() {
    flows_[static_cast<uint32_t>(kernel_.code.size() - 1)].falls_through = true;
}

const std::vector<std::string_view>& Builder::targets_named(std::string_view name) {
    for (size_t i = scopes_.size(); i-- > 0;) {
        const auto found = scopes_[i].jump_lists.find(name);
        if (found != scopes_[i].jump_lists.end()) return found->second;
    }
    throw UnknownForm{};
}

void Builder::leave() {
    if (is_in_function()) {
        branch_to(ends_.back());
    } else {
        flows_[static_cast<uint32_t>(kernel_.code.size() - 1)].falls_through =
            !statement_->guard.empty();
    }
}

// Inlines "call (result), name, (arguments)": the body of the function replaces the call, and its
// parameters are the caller's.
void Builder::call(const Statement& statement) {
    const Argument* name = nullptr;
    std::vector<const Argument*> actual;
    for (const Argument& argument : statement.arguments) {
        if (argument.kind == Argument::Kind::name && !name) name = &argument;
        for (const Argument& part : argument.parts) actual.push_back(&part);
    }
    const auto found = name ? module_.functions.find(name->text) : module_.functions.end();
    if (found == module_.functions.end() || ends_.size() > 20) throw UnknownForm{};
    if (!statement.guard.empty()) throw UnknownForm{};
    const FileItem& item = *found->second;
    Scope scope;
    scope.is_function = true;
    size_t n = 0;
    for (size_t at = 0; (at = item.declaration.find(".param", at)) != item.declaration.npos; ++n) {
        const size_t end =
            std::min(item.declaration.find_first_of(",)", at), item.declaration.size());
        const Declaration formal = declaration_in(item.declaration.substr(at, end - at));
        const auto given = n < actual.size() ? symbol(actual[n]->text) : std::nullopt;
        if (!given) throw UnknownForm{};
        scope.symbols[formal.name] = *given;
        at = end;
    }
    static const std::string_view end_label = "(end)";
    scopes_.push_back(std::move(scope));
    ends_.push_back(end_label);
    const Statement* outer = statement_;
    build_body(module_.text, item.body, item.line);
    ends_.pop_back();
    scopes_.back().labels[end_label] = static_cast<uint32_t>(kernel_.code.size());
    close_scope();
    statement_ = outer;
}

Decoder decoder_of(std::string_view name) {
    // Where two tables have a name, the later one wins: the integer decoder forwards floats.
    static const auto table = [] {
        std::unordered_map<std::string_view, Decoder> all;
        for (auto* group :
             {float_decoders, integer_decoders, logic_decoders, convert_decoders, compare_decoders,
              move_decoders, access_decoders, atomic_decoders, copy_decoders, barrier_decoders,
              exchange_decoders, matrix_decoders, wgmma_decoders, control_decoders})
            for (const DecoderEntry& entry : group()) all[entry.name] = entry.decode;
        return all;
    }();
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second;
}

}  // namespace emulator
