// Reading GGUF headers.
#include "libmoe/checkpoint/gguf.hpp"

#include <bit>
#include <limits>
#include <string>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/corrupt.hpp"
#include "libmoe/checkpoint/cursor.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr uint64_t longest_key = 65535;
constexpr uint64_t longest_string = uint64_t{1} << 30;
constexpr uint64_t longest_array = uint64_t{1} << 30;
// Arrays of numbers up to this length may have a value for each layer and are kept.
constexpr uint64_t longest_kept_array = 512;
constexpr uint64_t longest_tensor_name = 63;
constexpr uint64_t smallest_pair = 8 + 1 + 4 + 1;  // key length, key, type, value
constexpr uint64_t smallest_info =
    8 + 1 + 4 + 8 + 4 + 8;  // name length, name, rank, one size, type, offset
constexpr uint32_t max_rank = 4;
constexpr std::string_view alignment_key = "general.alignment";

enum ValueType : uint32_t {
    value_u8,
    value_i8,
    value_u16,
    value_i16,
    value_u32,
    value_i32,
    value_f32,
    value_bool,
    value_string,
    value_array,
    value_u64,
    value_i64,
    value_f64,
    value_count
};
// 0: not of fixed size
constexpr uint64_t value_bytes[value_count] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

class Reader {
  public:
    Reader(std::pmr::memory_resource& memory, const File& source, uint32_t file, Settings& settings,
           TensorIndex& index)
        : source_(source),
          file_(file),
          settings_(settings),
          index_(index),
          cursor_(memory, source) {}

    void read() {
        read_version();
        const auto n_tensors = cursor_.value<uint64_t>("the tensor count");
        const auto n_pairs = cursor_.value<uint64_t>("the key count");
        cursor_.need_items(n_pairs, smallest_pair, "the key count");
        cursor_.need_items(n_tensors, smallest_info, "the tensor count");
        for (uint64_t i = 0; i < n_pairs; ++i) read_pair();
        settings_.finish(Settings::Duplicates::Reject);
        cursor_.need_items(n_tensors, smallest_info, "the tensor infos");
        const size_t first = index_.entries().size();
        for (uint64_t i = 0; i < n_tensors; ++i) read_info();
        check_extent(first);
    }

  private:
    template <class... Args>
    [[noreturn]] void fail_key(fmt::format_string<Args...> format, Args&&... args) const {
        fail_corrupt(source_, "the key '{}' {}", printable(key_).text,
                     fmt::vformat(format, fmt::make_format_args(args...)));
    }

    void read_version() {
        const std::string_view magic = cursor_.bytes(4, "the magic");
        if (magic != "GGUF")
            fail_corrupt(source_, "the magic is not GGUF but '{}'", printable(magic).text);
        const auto version = cursor_.value<uint32_t>("the version");
        if (version == 2 || version == 3) return;
        if (version == 0) fail_corrupt(source_, "version 0");
        if ((version & 0xffff) == 0) {
            fail(MOE_ERROR_UNSUPPORTED, "{}: big-endian GGUF files are not read", source_.name());
        }
        fail(MOE_ERROR_UNSUPPORTED, "{}: GGUF version {} is not read, only 2 and 3", source_.name(),
             version);
    }

    uint64_t read_length(uint64_t limit, const char* what) {
        const auto length = cursor_.value<uint64_t>(what);
        if (length > limit)
            fail_corrupt(source_, "{} of {} bytes is longer than {}", what, length, limit);
        return length;
    }

    void read_pair() {
        cursor_.set_subject({});
        key_ = cursor_.bytes(read_length(longest_key, "a key"), "a key");
        if (key_.empty()) fail_corrupt(source_, "a key is empty");
        if (key_.find('\0') != key_.npos) fail_key("holds a NUL");
        cursor_.set_subject(key_);
        const auto type = cursor_.value<uint32_t>("a value type");
        if (type >= value_count) fail_key("has the unknown value type {}", type);
        if (key_ == alignment_key) return read_alignment(type);
        if (type == value_array) return read_array();
        read_scalar(key_, type);
    }

    void read_alignment(uint32_t type) {
        if (type != value_u32) fail_key("is not of type u32 but of type {}", type);
        const auto alignment = cursor_.value<uint32_t>("the alignment");
        if (!std::has_single_bit(alignment)) fail_key("is {}, not a power of two", alignment);
        alignment_ = alignment;
        settings_.add_integer(key_, alignment);
    }

    void read_scalar(std::string_view key, uint32_t type) {
        switch (type) {
            case value_u8:
                return add_integer<uint8_t>(key);
            case value_i8:
                return add_integer<int8_t>(key);
            case value_u16:
                return add_integer<uint16_t>(key);
            case value_i16:
                return add_integer<int16_t>(key);
            case value_u32:
                return add_integer<uint32_t>(key);
            case value_i32:
                return add_integer<int32_t>(key);
            case value_i64:
                return add_integer<int64_t>(key);
            case value_u64:
                return add_unsigned(key);
            case value_f32:
                return settings_.add_real(key, cursor_.value<float>("a value"));
            case value_f64:
                return settings_.add_real(key, cursor_.value<double>("a value"));
            case value_bool:
                return settings_.add_flag(key, read_bool());
            default:
                return read_string(key);
        }
    }
    template <class T>
    void add_integer(std::string_view key) {
        settings_.add_integer(key, static_cast<int64_t>(cursor_.value<T>("a value")));
    }
    void add_unsigned(std::string_view key) {
        const auto number = cursor_.value<uint64_t>("a value");
        if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            return settings_.add_real(key, static_cast<double>(number));
        }
        settings_.add_integer(key, static_cast<int64_t>(number));
    }
    bool read_bool() {
        const auto byte = cursor_.value<uint8_t>("a value");
        if (byte > 1) fail_key("is a bool that is neither 0 nor 1 but {}", byte);
        return byte == 1;
    }
    void read_string(std::string_view key) {
        const uint64_t length = read_length(longest_string, "a string");
        cursor_.need_items(length, 1, "a string");
        const uint64_t kept = std::min(length, uint64_t{4096});
        settings_.add_text(key, cursor_.bytes(kept, "a string"));
        cursor_.skip(length - kept, "a string");
    }

    // "key.3" is the fourth number, as it is of a list of config.json.
    void read_array() {
        const auto type = cursor_.value<uint32_t>("an array's type");
        if (type == value_array) fail_key("is an array of arrays");
        if (type >= value_count) fail_key("is an array of an unknown type: {}", type);
        const auto count = cursor_.value<uint64_t>("an array's length");
        if (count > longest_array) fail_key("is an array of more than 2^30 elements: {}", count);
        cursor_.need_items(count, value_bytes[type] ? value_bytes[type] : 8, "an array");
        settings_.add_array(key_, static_cast<int64_t>(count));
        if (type == value_bool) {
            for (uint64_t i = 0; i < count; ++i) read_bool();
        } else if (type != value_string && count <= longest_kept_array) {
            for (uint64_t i = 0; i < count; ++i) read_scalar(fmt::format("{}.{}", key_, i), type);
        } else if (type == value_string) {
            for (uint64_t i = 0; i < count; ++i) {
                cursor_.skip(read_length(longest_string, "a string"), "a string");
            }
        } else {
            cursor_.skip(count * value_bytes[type], "an array");
        }
    }

    void read_info() {
        cursor_.set_subject({});
        name_ = cursor_.bytes(read_length(longest_tensor_name, "a tensor name"), "a tensor name");
        cursor_.set_subject(name_);
        TensorEntry entry;
        entry.name = name_;
        entry.file = file_;
        read_shape(entry);
        entry.ggml_type = cursor_.value<uint32_t>("a tensor's type");
        const Element* element = ggml_element(entry.ggml_type);
        entry.element = element ? element : &unknown_ggml_element;
        entry.offset = cursor_.value<uint64_t>("a tensor's offset");
        if (element) entry.bytes = tensor_bytes(entry);
        place(entry);
        index_.add(entry, source_.name());
    }

    void read_shape(TensorEntry& entry) {
        entry.rank = cursor_.value<uint32_t>("a tensor's rank");
        if (entry.rank < 1 || entry.rank > max_rank) {
            fail_corrupt_tensor(source_, name_, "has {} dimensions, 1 to {} are legal", entry.rank,
                                max_rank);
        }
        for (uint32_t i = 0; i < entry.rank; ++i) {
            const auto size = cursor_.value<uint64_t>("a tensor's shape");
            if (size == 0) fail_corrupt_tensor(source_, name_, "dimension {} is 0", i);
            if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
                fail_corrupt_tensor(source_, name_, "dimension {} is {}, more than 2^63 - 1", i,
                                    size);
            }
            entry.shape[entry.rank - 1 - i] =
                static_cast<int64_t>(size);  // the file has the fastest first
        }
    }

    uint64_t tensor_bytes(const TensorEntry& entry) const {
        const auto columns = static_cast<uint64_t>(entry.shape[entry.rank - 1]);
        const Element& element = *entry.element;
        if (columns % element.block_elements != 0) {
            fail_corrupt_tensor(source_, name_,
                                "rows of {} elements do not divide into {} blocks of {}", columns,
                                element.name, element.block_elements);
        }
        std::optional<uint64_t> bytes =
            try_multiply(columns / element.block_elements, element.block_bits / 8);
        for (uint32_t i = 0; bytes && i + 1 < entry.rank; ++i) {
            bytes = try_multiply(*bytes, static_cast<uint64_t>(entry.shape[i]));
        }
        if (!bytes)
            fail_corrupt_tensor(source_, name_, "the size of shape {} overflows",
                                shape_text(entry.dims()));
        return *bytes;
    }

    // Tensors follow each other, each padded to the alignment, in the order of their infos. One of
    // an unknown type ends where the next one begins.
    void place(const TensorEntry& entry) {
        if (entry.offset % alignment_ != 0) {
            fail_corrupt_tensor(source_, name_,
                                "the offset {} is not a multiple of the alignment {}", entry.offset,
                                alignment_);
        }
        if (is_open_ && entry.offset >= next_offset_) {
            index_.entries_from(index_.entries().size() - 1)[0].bytes = entry.offset - next_offset_;
            next_offset_ = entry.offset;
        }
        is_open_ = entry.element == &unknown_ggml_element;
        if (entry.offset != next_offset_) {
            const char* what = entry.offset < next_offset_ ? "overlaps the tensor before it"
                                                           : "leaves a gap before it";
            fail_corrupt_tensor(source_, name_, "the offset {} {}, {} is wanted", entry.offset,
                                what, next_offset_);
        }
        const auto end = try_add(entry.offset, entry.bytes);
        const auto padded = end ? try_add(*end, alignment_ - 1) : end;
        if (!padded)
            fail_corrupt_tensor(source_, name_, "the offset {} and {} bytes overflow", entry.offset,
                                entry.bytes);
        next_offset_ = *padded & ~(alignment_ - 1);
    }

    // Makes the offsets absolute.
    void check_extent(size_t first) {
        const auto data_begin = try_add(cursor_.position(), alignment_ - 1);
        const uint64_t begin = data_begin ? *data_begin & ~(alignment_ - 1) : source_.size();
        const uint64_t data_bytes = begin < source_.size() ? source_.size() - begin : 0;
        if (is_open_ && next_offset_ <= data_bytes)
            index_.entries_from(index_.entries().size() - 1)[0].bytes = data_bytes - next_offset_;
        for (TensorEntry& entry : index_.entries_from(first)) {
            if (entry.bytes > data_bytes || entry.offset > data_bytes - entry.bytes) {
                name_ = entry.name;
                fail_corrupt_tensor(source_, name_,
                                    "{} bytes at {} are outside the data of {} bytes", entry.bytes,
                                    entry.offset, data_bytes);
            }
            entry.offset += begin;
        }
    }

    const File& source_;
    uint32_t file_;
    Settings& settings_;
    TensorIndex& index_;
    Cursor cursor_;
    uint64_t alignment_ = 32;
    uint64_t next_offset_ = 0;
    bool is_open_ = false;  // the last tensor's size is not known yet
    std::string key_;
    std::string name_;
};

}  // namespace

void read_gguf(std::pmr::memory_resource& memory, const File& source, uint32_t file,
               Settings& settings, TensorIndex& index) {
    Reader(memory, source, file, settings, index).read();
}

}  // namespace moe
