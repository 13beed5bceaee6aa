// npy.cpp - reading and writing .npy. The header is a Python dict literal with three keys; the
// parser below takes exactly that and nothing else, inside a buffer whose length was proved first.
#include "npy.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "moe_cpp.hpp"
#include "output_path.hpp"

namespace moe::cli {
namespace {

constexpr char magic[] = "\x93NUMPY";
constexpr size_t magic_size = 6;
constexpr uint64_t largest_npy_header = 65536;

[[noreturn]] void refuse_npy(const std::string& path, const std::string& what) {
    refuse_file(path, what, MOE_ERROR_CORRUPT_FILE);
}

struct Header {
    std::string descr;
    std::string order;
    std::vector<int64_t> shape;
};

// A cursor over the dict literal.
class DictParser {
  public:
    DictParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

    Header parse() {
        Header header;
        expect('{');
        while (!take('}')) {
            parse_item(header);
            if (!take(',')) {
                expect('}');
                break;
            }
        }
        return header;
    }

  private:
    void skip_spaces() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    }
    bool take(char wanted) {
        skip_spaces();
        if (at_ >= text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }
    void expect(char wanted) {
        if (!take(wanted))
            refuse_npy(path_, fmt::format("no '{}' at byte {} of the npy header", wanted, at_));
    }
    std::string word() {
        expect('\'');
        const size_t end = text_.find('\'', at_);
        if (end == std::string_view::npos)
            refuse_npy(path_, "a string of the npy header does not end");
        const std::string value(text_.substr(at_, end - at_));
        at_ = end + 1;
        return value;
    }
    std::string bare_word() {
        skip_spaces();
        const size_t begin = at_;
        while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
        return std::string(text_.substr(begin, at_ - begin));
    }
    int64_t number() {
        skip_spaces();
        int64_t value = 0;
        const size_t begin = at_;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
            if (value > (int64_t{1} << 48)) refuse_npy(path_, "the npy shape is too large");
            value = value * 10 + (text_[at_++] - '0');
        }
        if (at_ == begin)
            refuse_npy(path_, fmt::format("no number at byte {} of the npy header", at_));
        return value;
    }
    std::vector<int64_t> tuple() {
        std::vector<int64_t> numbers;
        expect('(');
        while (!take(')')) {
            if (numbers.size() == 8) refuse_npy(path_, "the npy shape has more than 8 dimensions");
            numbers.push_back(number());
            if (!take(',')) {
                expect(')');
                break;
            }
        }
        return numbers;
    }
    void parse_item(Header& header) {
        const std::string key = word();
        expect(':');
        if (key == "descr") {
            header.descr = word();
        } else if (key == "fortran_order") {
            header.order = bare_word();
        } else if (key == "shape") {
            header.shape = tuple();
        } else {
            refuse_npy(path_, "unknown npy header key '" + key + "'");
        }
    }

    const std::string& path_;
    std::string_view text_;
    size_t at_ = 0;
};

uint64_t file_size(std::ifstream& file, const std::string& path) {
    file.seekg(0, std::ios::end);
    const std::streamoff size = file.tellg();
    file.seekg(0);
    if (!file || size < 0) throw Failure(path + ": cannot be read", MOE_ERROR_IO);
    return static_cast<uint64_t>(size);
}

std::string read_exactly(std::ifstream& file, const std::string& path, uint64_t bytes) {
    std::string text(bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(bytes));
    if (!file) refuse_npy(path, fmt::format("ends before the {} bytes it promises", bytes));
    return text;
}

// Reads magic, version and header text; *out_begin is where the data starts.
std::string read_header_text(std::ifstream& file, const std::string& path, uint64_t size,
                             uint64_t* out_begin) {
    if (size < 10) refuse_npy(path, fmt::format("{} bytes are too few for a .npy file", size));
    const std::string start = read_exactly(file, path, 8);
    if (std::memcmp(start.data(), magic, magic_size) != 0) refuse_npy(path, "is not a .npy file");
    const int version = static_cast<unsigned char>(start[6]);
    if (version < 1 || version > 3)
        refuse_npy(path, fmt::format("npy version {} is unknown", version));
    const uint64_t length_bytes = version == 1 ? 2 : 4;
    const std::string length_text = read_exactly(file, path, length_bytes);
    uint64_t length = 0;
    for (uint64_t i = length_bytes; i-- > 0;) {
        length = length << 8 | static_cast<unsigned char>(length_text[i]);
    }
    *out_begin = 8 + length_bytes + length;
    if (length > largest_npy_header || *out_begin > size) {
        refuse_npy(path, fmt::format("npy header of {} bytes in a file of {}", length, size));
    }
    return read_exactly(file, path, length);
}

std::string shape_words(const std::vector<int64_t>& shape) {
    return fmt::format("({})", fmt::join(shape, ", "));
}

void check_header(const Header& header, const std::string& path, uint64_t data_bytes) {
    if (header.descr != "<f4")
        refuse_npy(path, "dtype must be '<f4' (float32), found '" + header.descr + "'");
    if (header.order != "False") {
        refuse_npy(path, "must be in C order, found fortran_order: " + header.order);
    }
    if (header.shape.size() != 2) {
        refuse_npy(path, "shape must be (tokens, hidden), found " + shape_words(header.shape));
    }
    const auto rows = static_cast<uint64_t>(header.shape[0]);
    const auto columns = static_cast<uint64_t>(header.shape[1]);
    const uint64_t available = data_bytes / sizeof(float);
    const bool fits = columns == 0 || rows <= available / columns;
    if (!fits || rows * columns * sizeof(float) != data_bytes) {
        refuse_npy(path, fmt::format("shape {} does not agree with {} bytes of data",
                                     shape_words(header.shape), data_bytes));
    }
}

void write_array(const std::string& path, const char* descr, int64_t rows, int64_t columns,
                 const void* data, size_t bytes) {
    std::string header = fmt::format(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}", descr, rows, columns);
    header.append(63 - (magic_size + 4 + header.size()) % 64, ' ');
    header += '\n';
    OutputPath output = OutputPath::file(path);
    std::ofstream file(output.partial(), std::ios::binary | std::ios::trunc);
    file.write(magic, magic_size);
    file.put(1).put(0);
    file.put(static_cast<char>(header.size() & 255)).put(static_cast<char>(header.size() >> 8));
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    file.close();
    if (!file) throw Failure(path + ": cannot be written: " + std::strerror(errno), MOE_ERROR_IO);
    output.commit();
}

}  // namespace

FloatArray read_npy(const std::string& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        refuse_file(path, "is a folder, not a .npy file");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Failure(path + ": cannot be opened: " + std::strerror(errno), MOE_ERROR_IO);
    const uint64_t size = file_size(file, path);
    uint64_t begin = 0;
    const std::string text = read_header_text(file, path, size, &begin);
    const Header header = DictParser(path, text).parse();
    check_header(header, path, size - begin);
    FloatArray array{header.shape[0], header.shape[1], {}};
    array.values.resize(static_cast<size_t>(array.rows * array.columns));
    file.read(reinterpret_cast<char*>(array.values.data()),
              static_cast<std::streamsize>(array.values.size() * sizeof(float)));
    if (!file) refuse_npy(path, "ends before its data does");
    return array;
}

void write_npy(const std::string& path, int64_t rows, int64_t columns,
               const std::vector<float>& values) {
    write_array(path, "<f4", rows, columns, values.data(), values.size() * sizeof(float));
}

void write_npy(const std::string& path, int64_t rows, int64_t columns,
               const std::vector<int32_t>& values) {
    write_array(path, "<i4", rows, columns, values.data(), values.size() * sizeof(int32_t));
}

}  // namespace moe::cli
