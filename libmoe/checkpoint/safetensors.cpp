// Reading safetensors headers.
#include "libmoe/checkpoint/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/corrupt.hpp"
#include "libmoe/checkpoint/json.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

static_assert(std::endian::native == std::endian::little, "both containers are little-endian");

constexpr uint64_t largest_header = 100'000'000;  // of the reference reader
constexpr uint64_t largest_integer = uint64_t{1} << 48;
constexpr int header_depth = 3;
constexpr size_t max_unknown_fields = 16;

// Depth 1 is the header object, 2 a tensor's (or the metadata's) object, 3 an array in it.
class HeaderEvents final : public JsonEvents {
  public:
    HeaderEvents(std::pmr::memory_resource& memory, const File& source, uint32_t file,
                 uint64_t data_begin, TensorIndex& index)
        : source_(source),
          file_(file),
          data_begin_(data_begin),
          index_(index),
          name_(&memory),
          key_(&memory),
          seen_(&memory) {}

    void begin(bool is_array) override {
        ++depth_;
        if (depth_ == 1 && is_array) fail_corrupt(source_, "the header is not an object");
        if (depth_ == 2) {
            if (is_array) fail_corrupt_tensor(source_, name_, "is an array, an object is wanted");
            begin_tensor();
        }
        if (depth_ == 3) begin_field(is_array);
    }

    void end() override {
        if (depth_ == 2 && !in_metadata_) finish_tensor();
        if (depth_ == 3) field_ = Field::None;
        --depth_;
    }

    void key(std::string_view name) override {
        if (depth_ == 1) {
            name_ = name;
        } else if (depth_ == 2) {
            begin_key(name);
        }
    }

    void value(const JsonValue& value) override {
        if (depth_ == 0) fail_corrupt(source_, "the header is not an object");
        if (depth_ == 1)
            fail_corrupt_tensor(source_, name_, "is not an object but {}", text_of(value));
        if (in_metadata_) {
            if (value.kind != JsonValue::Kind::Text) fail_metadata_value(text_of(value));
        } else if (depth_ == 2) {
            field_value(value);
        } else if (field_ == Field::Shape) {
            add_dimension(value);
        } else if (field_ == Field::Offsets) {
            add_offset(value);
        }
    }

  private:
    enum class Field { None, Type, Shape, Offsets, Unknown };

    [[noreturn]] void fail_metadata(const char* what) const {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: __metadata__ {}", source_.name(), what);
    }

    [[noreturn]] void fail_metadata_value(std::string_view what) const {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: __metadata__ has a value that is not a text: '{}' is {}",
             source_.name(), printable(key_).text, what);
    }

    void begin_tensor() {
        in_metadata_ = name_ == "__metadata__";
        if (in_metadata_ && metadata_seen_) fail_metadata("appears twice");
        metadata_seen_ |= in_metadata_;
        entry_ = {};
        n_offsets_ = 0;
        has_type_ = has_shape_ = has_offsets_ = false;
        seen_.clear();
    }

    void begin_key(std::string_view name) {
        if (!seen_.emplace(name).second) {
            if (in_metadata_) {
                fail(MOE_ERROR_CORRUPT_FILE, "{}: __metadata__ has a key twice: '{}'",
                     source_.name(), printable(name).text);
            }
            fail_corrupt_tensor(source_, name_, "the field '{}' appears twice",
                                printable(name).text);
        }
        if (in_metadata_) {
            key_ = name;
            return;
        }
        if (seen_.size() > max_unknown_fields)
            fail_corrupt_tensor(source_, name_, "has more than {} fields", max_unknown_fields);
        field_ = name == "dtype"          ? Field::Type
                 : name == "shape"        ? Field::Shape
                 : name == "data_offsets" ? Field::Offsets
                                          : Field::Unknown;
    }

    void begin_field(bool is_array) {
        const char* what = is_array ? "an array" : "an object";
        if (in_metadata_) fail_metadata_value(what);
        if (field_ == Field::Type)
            fail_corrupt_tensor(source_, name_, "dtype is not a text but {}", what);
        if (field_ == Field::Unknown) return;
        if (!is_array)
            fail_corrupt_tensor(source_, name_, "{} is not an array but {}", field_name(), what);
        (field_ == Field::Shape ? has_shape_ : has_offsets_) = true;
    }

    const char* field_name() const { return field_ == Field::Shape ? "shape" : "data_offsets"; }

    void field_value(const JsonValue& value) {
        if (field_ == Field::Unknown) return;
        if (field_ != Field::Type)
            fail_corrupt_tensor(source_, name_, "{} is not an array but {}", field_name(),
                                text_of(value));
        if (value.kind != JsonValue::Kind::Text)
            fail_corrupt_tensor(source_, name_, "dtype is not a text but {}", text_of(value));
        entry_.element = safetensors_element(value.text);
        if (!entry_.element)
            fail_corrupt_tensor(source_, name_, "unknown dtype '{}'", printable(value.text).text);
        has_type_ = true;
    }

    uint64_t integer(const JsonValue& value) const {
        if (value.kind == JsonValue::Kind::Negative) {
            fail_corrupt_tensor(source_, name_, "{} has the negative number {}", field_name(),
                                value.negative_integer);
        }
        if (value.kind != JsonValue::Kind::Unsigned) {
            fail_corrupt_tensor(source_, name_, "{} has a value that is not an integer: {}",
                                field_name(), text_of(value));
        }
        if (value.unsigned_integer > largest_integer) {
            fail_corrupt_tensor(source_, name_, "{} has {}, more than 2^48", field_name(),
                                value.unsigned_integer);
        }
        return value.unsigned_integer;
    }

    void add_dimension(const JsonValue& value) {
        if (entry_.rank == TensorEntry::max_rank) {
            fail_corrupt_tensor(source_, name_, "has more than {} dimensions",
                                TensorEntry::max_rank);
        }
        entry_.shape[entry_.rank++] = static_cast<int64_t>(integer(value));
    }

    void add_offset(const JsonValue& value) {
        if (n_offsets_ == 2)
            fail_corrupt_tensor(source_, name_, "data_offsets has more than two numbers");
        offsets_[n_offsets_++] = integer(value);
    }

    void finish_tensor() {
        if (!has_type_) fail_corrupt_tensor(source_, name_, "has no dtype");
        if (!has_shape_) fail_corrupt_tensor(source_, name_, "has no shape");
        if (!has_offsets_) fail_corrupt_tensor(source_, name_, "has no data_offsets");
        if (n_offsets_ != 2)
            fail_corrupt_tensor(source_, name_, "data_offsets has {} numbers, not two", n_offsets_);
        const auto [begin, end] = offsets_;
        const uint64_t data_bytes = source_.size() - data_begin_;
        if (begin > end)
            fail_corrupt_tensor(source_, name_, "data_offsets begin at {}, after their end {}",
                                begin, end);
        if (end > data_bytes) {
            fail_corrupt_tensor(source_, name_, "data_offsets end at {}, but the data has {} bytes",
                                end, data_bytes);
        }
        if (end - begin != shape_bytes()) {
            fail_corrupt_tensor(
                source_, name_, "data_offsets span {} bytes, but {} of shape {} takes {}",
                end - begin, entry_.element->name, shape_text(entry_.dims()), shape_bytes());
        }
        entry_.name = name_;
        entry_.file = file_;
        entry_.offset = data_begin_ + begin;
        entry_.bytes = end - begin;
        index_.add(entry_, source_.name());
    }

    uint64_t shape_bytes() const {
        std::optional<uint64_t> bits = entry_.element->block_bits;
        for (const int64_t dim : entry_.dims()) {
            bits = try_multiply(*bits, static_cast<uint64_t>(dim));
            if (!bits)
                fail_corrupt_tensor(source_, name_, "the size of shape {} overflows",
                                    shape_text(entry_.dims()));
        }
        if (*bits % 8 != 0) {
            fail_corrupt_tensor(source_, name_, "{} of shape {} is not a whole number of bytes",
                                entry_.element->name, shape_text(entry_.dims()));
        }
        return *bits / 8;
    }

    const File& source_;
    uint32_t file_;
    uint64_t data_begin_;
    TensorIndex& index_;
    std::pmr::string name_;
    std::pmr::string key_;                  // of the metadata
    std::pmr::set<std::pmr::string> seen_;  // keys of the current object
    int depth_ = 0;
    bool metadata_seen_ = false;
    bool in_metadata_ = false;
    bool has_type_ = false;
    bool has_shape_ = false;
    bool has_offsets_ = false;
    Field field_ = Field::None;
    TensorEntry entry_;
    uint64_t n_offsets_ = 0;
    uint64_t offsets_[2] = {};
};

uint64_t header_bytes(const File& source) {
    if (source.size() < 8) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes are too few for a safetensors file",
             source.name(), source.size());
    }
    uint64_t bytes;
    source.read(0, 8, &bytes);
    if (bytes == 0) fail(MOE_ERROR_CORRUPT_FILE, "{}: the header length is 0", source.name());
    const bool is_text = (bytes & 0xff) == '{';
    if (is_text && bytes > source.size() - 8) {
        fail(
            MOE_ERROR_CORRUPT_FILE,
            "{}: begins with '{{': it is no safetensors file; give the folder that holds the model",
            source.name());
    }
    if (bytes > largest_header) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the header length {} is more than {}", source.name(),
             bytes, largest_header);
    }
    if (bytes > source.size() - 8) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the header length {} is more than the file has left ({})",
             source.name(), bytes, source.size() - 8);
    }
    return bytes;
}

// Tensors in the order of their data must follow each other from the first byte to the last.
void check_tiling(std::pmr::memory_resource& memory, const File& source, uint64_t data_begin,
                  std::span<const TensorEntry> entries) {
    std::pmr::vector<const TensorEntry*> order(&memory);
    order.reserve(entries.size());
    for (const TensorEntry& entry : entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
        return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
    });
    uint64_t end = data_begin;
    for (const TensorEntry* entry : order) {
        if (entry->offset != end) {
            const char* what =
                entry->offset < end ? "overlaps the tensor before it" : "leaves a gap before it";
            fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}': {} (begins at {}, {} is wanted)",
                 source.name(), printable(entry->name).text, what, entry->offset - data_begin,
                 end - data_begin);
        }
        end = entry->offset + entry->bytes;
    }
    if (end != source.size()) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes follow the last tensor", source.name(),
             source.size() - end);
    }
}

}  // namespace

void read_safetensors(std::pmr::memory_resource& memory, const File& source, uint32_t file,
                      TensorIndex& index) {
    const uint64_t bytes = header_bytes(source);
    std::pmr::vector<char> header(bytes, &memory);
    source.read(8, bytes, header.data());
    std::string_view text(header.data(), bytes);
    if (text.front() != '{') {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the header does not start with '{{' but with '{}'",
             source.name(), printable(text.substr(0, 1)).text);
    }
    text = text.substr(0, text.find_last_not_of(' ') + 1);  // writers pad with spaces
    if (text.back() != '}') {
        fail(MOE_ERROR_CORRUPT_FILE,
             "{}: the header does not end with '}}' and spaces but with '{}'", source.name(),
             printable(text.substr(text.size() - 1)).text);
    }
    const size_t first = index.entries().size();
    HeaderEvents events(memory, source, file, 8 + bytes, index);
    parse_json(text, source.name(), header_depth, events);
    check_tiling(memory, source, 8 + bytes, index.entries().subspan(first));
}

}  // namespace moe
