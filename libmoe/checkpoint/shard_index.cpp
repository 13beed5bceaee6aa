// Reading model.safetensors.index.json: {"metadata": ..., "weight_map": {tensor: file}}.
#include <algorithm>
#include <functional>
#include <map>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/json.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/checkpoint/safetensors.hpp"

namespace moe {
namespace {

constexpr int max_depth = 8;
constexpr size_t max_shards = 10000;

class IndexEvents final : public JsonEvents {
  public:
    IndexEvents(std::pmr::memory_resource& memory, std::string_view file, ShardIndex& out)
        : file_(file), out_(out), tensor_(&memory), numbers_(&memory) {}

    void begin(bool is_array) override {
        ++depth_;
        if (depth_ == 1 && is_array) fail(MOE_ERROR_CORRUPT_FILE, "{}: not an object", file_);
        if (!in_map_) return;
        if (depth_ == 2 && is_array)
            fail(MOE_ERROR_CORRUPT_FILE, "{}: weight_map is an array", file_);
        if (depth_ == 3) fail_value(is_array ? "an array" : "an object");
    }
    void end() override { --depth_; }
    void key(std::string_view name) override {
        if (depth_ == 1) {
            in_map_ = name == "weight_map";
            if (in_map_ && map_seen_) {
                fail(MOE_ERROR_CORRUPT_FILE, "{}: weight_map appears twice", file_);
            }
            map_seen_ |= in_map_;
        } else if (depth_ == 2 && in_map_) {
            tensor_ = name;
        }
    }
    void value(const JsonValue& value) override {
        if (depth_ == 0) fail(MOE_ERROR_CORRUPT_FILE, "{}: not an object", file_);
        if (!in_map_) return;
        if (depth_ == 1) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: weight_map is not an object but {}", file_,
                 text_of(value));
        }
        if (value.kind != JsonValue::Kind::Text) fail_value(text_of(value));
        check_file_name(value.text);
        if (out_.places.size() == TensorIndex::max_tensors) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: more than {} tensors", file_,
                 TensorIndex::max_tensors);
        }
        out_.places.push_back({tensor_, shard(value.text)});
    }

  private:
    [[noreturn]] void fail_value(std::string_view what) const {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: weight_map gives tensor '{}' no file name but {}", file_,
             printable(tensor_).text, what);
    }
    // A shard lies beside the index: a plain name that leads nowhere else.
    void check_file_name(std::string_view name) const {
        const bool plain = !name.empty() && name != "." && name.find("..") == name.npos &&
                           name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
        if (plain) return;
        fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}': '{}' is not a plain file name", file_,
             printable(tensor_).text, printable(name).text);
    }
    uint32_t shard(std::string_view name) {
        const auto known = numbers_.find(name);
        if (known != numbers_.end()) return known->second;
        const auto number = static_cast<uint32_t>(out_.shards.size());
        if (number == max_shards) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}': '{}' is one file more than {}", file_,
                 printable(tensor_).text, printable(name).text, max_shards);
        }
        out_.shards.emplace_back(name);
        numbers_.emplace(name, number);
        return number;
    }

    std::string_view file_;
    ShardIndex& out_;
    std::pmr::string tensor_;
    int depth_ = 0;
    bool in_map_ = false;
    bool map_seen_ = false;
    std::pmr::map<std::pmr::string, uint32_t, std::less<>> numbers_;  // of the shards
};

void reject_duplicates(const ShardIndex& index, std::string_view file_name) {
    const auto twice =
        std::adjacent_find(index.places.begin(), index.places.end(),
                           [](const ShardIndex::Place& a, const ShardIndex::Place& b) {
                               return a.tensor == b.tensor;
                           });
    if (twice == index.places.end()) return;
    fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}' appears twice", file_name,
         printable(twice->tensor).text);
}

}  // namespace

ShardIndex read_shard_index(std::pmr::memory_resource& memory, std::string_view text,
                            std::string_view file_name) {
    ShardIndex index{std::pmr::vector<std::pmr::string>(&memory),
                     std::pmr::vector<ShardIndex::Place>(&memory)};
    IndexEvents events(memory, file_name, index);
    parse_json(text, file_name, max_depth, events);
    if (index.places.empty()) fail(MOE_ERROR_CORRUPT_FILE, "{}: has no weight_map", file_name);
    std::sort(
        index.places.begin(), index.places.end(),
        [](const ShardIndex::Place& a, const ShardIndex::Place& b) { return a.tensor < b.tensor; });
    reject_duplicates(index, file_name);
    return index;
}

void check_shard_index(const ShardIndex& shards, const TensorIndex& index,
                       std::string_view index_name) {
    for (const ShardIndex::Place& place : shards.places) {
        const TensorEntry* entry = index.find(place.tensor);
        if (entry && entry->file == place.shard) continue;
        const Printable wanted = printable(shards.shards[place.shard]);
        if (!entry) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}' should be in {} and is not", index_name,
                 printable(place.tensor).text, wanted.text);
        }
        fail(MOE_ERROR_CORRUPT_FILE, "{}: tensor '{}' should be in {} and is in {}", index_name,
             printable(place.tensor).text, wanted.text, printable(shards.shards[entry->file]).text);
    }
}

}  // namespace moe
