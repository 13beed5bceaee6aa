// Splits PTX text into statements; ptx_text.hpp documents them.
#include "tests/emulator/ptx_text.hpp"

#include <array>
#include <cctype>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/emulator/machine.hpp"

namespace emulator {
namespace {

constexpr std::array<std::pair<std::string_view, Type>, 25> types{{
    {"pred", Type::pred}, {"b8", Type::b8},         {"b16", Type::b16},
    {"b32", Type::b32},   {"b64", Type::b64},       {"b128", Type::b128},
    {"u8", Type::u8},     {"u16", Type::u16},       {"u32", Type::u32},
    {"u64", Type::u64},   {"s8", Type::s8},         {"s16", Type::s16},
    {"s32", Type::s32},   {"s64", Type::s64},       {"f16", Type::f16},
    {"bf16", Type::bf16}, {"f16x2", Type::f16x2},   {"bf16x2", Type::bf16x2},
    {"f32", Type::f32},   {"f64", Type::f64},       {"e4m3x2", Type::e4m3x2},
    {"e4m3", Type::e4m3}, {"e5m2x2", Type::e5m2x2}, {"e2m1x2", Type::e2m1x2},
    {"", Type::none},
}};

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
           c == '.' || c == ':';
}

bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}

void split_opcode(std::string_view word, std::vector<std::string_view>& parts) {
    parts.clear();
    for (size_t from = 0;;) {
        const size_t point = word.find('.', from);
        parts.push_back(word.substr(from, point - from));
        if (point == word.npos) return;
        from = point + 1;
    }
}

}  // namespace

Type type_named(std::string_view name) {
    for (const auto& [known, type] : types)
        if (known == name) return type;
    return Type::none;
}

unsigned bits_of(Type type) {
    switch (type) {
        case Type::pred:
            return 1;
        case Type::b8:
        case Type::u8:
        case Type::s8:
        case Type::e2m1x2:
        case Type::e4m3:
            return 8;
        case Type::b16:
        case Type::u16:
        case Type::s16:
        case Type::f16:
        case Type::bf16:
        case Type::e4m3x2:
        case Type::e5m2x2:
            return 16;
        case Type::b64:
        case Type::u64:
        case Type::s64:
        case Type::f64:
            return 64;
        case Type::b128:
            return 128;
        case Type::none:
            return 0;
        default:
            return 32;
    }
}

bool is_signed(Type type) {
    return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

bool is_float(Type type) {
    return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64;
}

bool Statement::has(std::string_view modifier) const {
    for (std::string_view part : opcode)
        if (part == modifier) return true;
    return false;
}

Type Statement::type(size_t index) const {
    for (size_t i = 1; i < opcode.size(); ++i) {
        const Type type = type_named(opcode[i]);
        if (type != Type::none && index-- == 0) return type;
    }
    return Type::none;
}

Type Statement::last_type() const {
    for (size_t i = opcode.size(); i-- > 1;) {
        const Type type = type_named(opcode[i]);
        if (type != Type::none) return type;
    }
    return Type::none;
}

void StatementReader::fail(const char* what) const {
    throw Fault("PTX line " + std::to_string(line_) + ": " + what + " at '" +
                std::string(text_.substr(at_, 40)) + "'");
}

void StatementReader::skip_space() {
    for (; at_ < text_.size(); ++at_) {
        const char c = text_[at_];
        if (c == '\n') {
            ++line_;
        } else if (c == '/' && text_.substr(at_, 2) == "//") {
            at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
        } else if (c == '/' && text_.substr(at_, 2) == "/*") {
            const size_t end = std::min(text_.find("*/", at_), text_.size() - 2) + 1;
            for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
        } else if (!std::isspace(static_cast<unsigned char>(c))) {
            return;
        }
    }
}

std::string_view StatementReader::read_word() {
    const size_t from = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
}

void StatementReader::next(Statement& statement) {
    skip_space();
    statement.guard = {};
    statement.guard_negated = false;
    statement.arguments.clear();
    statement.line = line_;
    if (at_ >= text_.size()) fail("no end of the body");
    const char c = text_[at_];
    if (c == '{') {
        ++at_, ++depth_;
        statement.kind = Statement::Kind::open;
    } else if (c == '}') {
        ++at_;
        statement.kind = depth_-- == 0 ? Statement::Kind::end : Statement::Kind::close;
    } else if (c == ';') {
        ++at_;
        next(statement);
    } else if (c == '.') {
        read_directive(statement);
    } else if (!read_label(statement)) {
        read_instruction(statement);
    }
}

bool StatementReader::read_label(Statement& statement) {
    size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    if (end == at_ || end + 1 >= text_.size() || text_[end] != ':' || text_[end + 1] == ':')
        return false;
    statement.kind = Statement::Kind::label;
    statement.text = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
}

void StatementReader::read_directive(Statement& statement) {
    const size_t end = text_.find(';', at_);
    if (end == text_.npos) fail("a directive without end");
    statement.kind = Statement::Kind::directive;
    statement.text = text_.substr(at_, end - at_);
    for (char c : statement.text) line_ += c == '\n';
    at_ = end + 1;
}

void StatementReader::read_instruction(Statement& statement) {
    statement.kind = Statement::Kind::instruction;
    if (text_[at_] == '@') {
        ++at_;
        statement.guard_negated = at_ < text_.size() && text_[at_] == '!';
        at_ += statement.guard_negated;
        statement.guard = read_word();
        skip_space();
    }
    statement.text = read_word();
    if (statement.text.empty()) fail("no instruction");
    split_opcode(statement.text, statement.opcode);
    read_arguments(statement.arguments, ';');
}

void StatementReader::read_arguments(std::vector<Argument>& arguments, char closing) {
    for (;;) {
        skip_space();
        if (at_ >= text_.size()) fail("no end of the arguments");
        if (text_[at_] == closing) break;
        if (text_[at_] == ',') {
            ++at_;
            continue;
        }
        read_argument(arguments.emplace_back());
    }
    ++at_;
}

void StatementReader::read_argument(Argument& argument) {
    const char c = text_[at_];
    if (c == '{' || c == '(') {
        ++at_;
        argument.kind = c == '{' ? Argument::Kind::vector : Argument::Kind::list;
        return read_arguments(argument.parts, c == '{' ? '}' : ')');
    }
    if (c == '[') return read_address(argument);
    if (c == '!' || c == '-') {
        ++at_;
        argument.negated = true;
        skip_space();
    }
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) return read_number(argument);
    argument.text = read_word();
    if (argument.text.empty()) fail("no argument");
    if (at_ < text_.size() && text_[at_] == '|') {
        Argument first = argument, second;
        ++at_;
        second.text = read_word();
        argument.kind = Argument::Kind::pair;
        argument.parts = {first, second};
    }
}

void StatementReader::read_number(Argument& argument) {
    argument.kind = Argument::Kind::number;
    const std::string word(read_word());
    if (word.size() == 10 && (word[1] == 'f' || word[1] == 'F')) {
        argument.bits = std::strtoull(word.c_str() + 2, nullptr, 16);
    } else if (word.size() == 18 && (word[1] == 'd' || word[1] == 'D')) {
        argument.bits = std::strtoull(word.c_str() + 2, nullptr, 16);
    } else {
        char* end = nullptr;
        argument.bits = std::strtoull(word.c_str(), &end, 0);
        if (*end == 'U') ++end;
        if (*end) fail("not a number");
    }
    if (argument.negated) argument.bits = -argument.bits;
    argument.negated = false;
}

void StatementReader::read_address(Argument& argument) {
    ++at_;
    argument.kind = Argument::Kind::address;
    for (skip_space(); text_[at_] != ']'; skip_space()) {
        if (text_[at_] == '+') {
            ++at_;
            continue;
        }
        Argument part;
        read_argument(part);
        if (part.kind == Argument::Kind::number) {
            argument.offset += static_cast<int64_t>(part.bits);
        } else if (argument.text.empty()) {
            argument.text = part.text;
        } else {
            fail("an address of two names");
        }
    }
    ++at_;
}

namespace {

// Returns the name that the declaration declares: the last word before its parameters, size or
// value.
std::string_view name_in(std::string_view declaration, FileItem::Kind kind) {
    size_t end = declaration.size();
    if (kind == FileItem::Kind::variable) {
        end = std::min(declaration.find('='), declaration.find('['));
        end = std::min(end, declaration.size());
    } else {
        size_t from = declaration.find(kind == FileItem::Kind::kernel ? ".entry" : ".func");
        from += kind == FileItem::Kind::kernel ? 6 : 5;
        size_t open = declaration.find('(', from);
        const size_t first = declaration.find_first_not_of(" \t\n", from);
        if (first == open)
            from = declaration.find(')', open) + 1, open = declaration.find('(', from);
        end = std::min(open, declaration.size());
    }
    while (end && !is_name(declaration[end - 1])) --end;
    size_t begin = end;
    while (begin && is_name(declaration[begin - 1])) --begin;
    return declaration.substr(begin, end - begin);
}

bool contains(std::string_view text, std::string_view what) {
    return text.find(what) != text.npos;
}

// Returns the offset behind the brace that closes the one before `at`.
size_t end_of_body(std::string_view text, size_t at) {
    for (int depth = 1; depth && at < text.size();) {
        at = text.find_first_of("{}\"/", at);
        if (at == text.npos) return text.size();
        if (text[at] == '"') {
            at = text.find('"', at + 1);
        } else if (text.substr(at, 2) == "//") {
            at = text.find('\n', at);
        } else if (text[at] != '/') {
            depth += text[at] == '{' ? 1 : -1;
        }
        if (at == text.npos) return text.size();
        ++at;
    }
    return at;
}

FileItem::Kind kind_of(std::string_view declaration) {
    if (contains(declaration, ".entry")) return FileItem::Kind::kernel;
    return contains(declaration, ".func") ? FileItem::Kind::function : FileItem::Kind::variable;
}

}  // namespace

std::vector<FileItem> items_of(std::string_view text) {
    std::vector<FileItem> items;
    size_t at = 0, counted = 0;
    uint32_t line = 1;
    while ((at = text.find_first_not_of(" \t\r\n", at)) != text.npos) {
        const std::string_view line_text = text.substr(at);
        const bool is_line = line_text.starts_with("//") || line_text.starts_with(".version") ||
                             line_text.starts_with(".target") ||
                             line_text.starts_with(".address_size") ||
                             line_text.starts_with(".file") || line_text.starts_with(".loc");
        if (is_line) {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        size_t end = text.find_first_of(";{", at);
        if (end == text.npos) break;
        const bool has_values = contains(text.substr(at, end - at), "=");
        if (has_values) end = text.find(';', end);
        FileItem item{};
        item.kind = kind_of(text.substr(at, std::min<size_t>(end - at, 4000)));
        item.declaration = text.substr(at, end - at);
        item.name = name_in(item.declaration, item.kind);
        at = end + 1;
        for (; counted < at; ++counted) line += text[counted] == '\n';
        item.line = line;
        if (text[end] == '{') {
            item.body = at;
            at = end_of_body(text, at);
        }
        items.push_back(item);
    }
    return items;
}

}  // namespace emulator
