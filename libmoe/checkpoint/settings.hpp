// The scalars that describe a model, of config.json or of a GGUF header: a sorted table from key to
// value whose getters check type and range and name the file and the key when they fail.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

using SettingKeys = std::initializer_list<std::string_view>;

class Settings {
  public:
    enum class Duplicates { LastWins, Reject };
    enum class Kind : uint8_t { Integer, Real, Flag, Text, Array };
    struct Entry {
        std::string_view key;
        Kind kind;
        int64_t integer;
        double real;
        std::string_view text;
        mutable bool was_read = false;  // by a getter
    };

    // `file` is what sentences name.
    Settings(std::pmr::memory_resource& memory, std::string_view file);

    // More than a model ever has is MOE_ERROR_CORRUPT_FILE.
    void add_integer(std::string_view key, int64_t value);
    void add_real(std::string_view key, double value);
    void add_flag(std::string_view key, bool value);
    // Long texts are cut: only short ones are ever compared.
    void add_text(std::string_view key, std::string_view value);
    // A value of which getters return the length alone.
    void add_array(std::string_view key, int64_t length);
    // To the getters but flag() it is as if the key were absent.
    void add_null(std::string_view key);
    void finish(Duplicates duplicates);

    // Every getter looks for prefix + key before key.
    void set_prefix(std::string_view prefix) { prefix_ = prefix; }
    void set_file(std::string_view file) { file_ = file; }
    std::string_view file() const { return file_; }

    bool has(std::string_view key) const { return look_up(key) != nullptr; }
    // Is there a key that starts so?
    bool has_part(std::string_view stem) const;
    // The first of the keys that exists. A wrong type or a value outside [low, high] is
    // MOE_ERROR_CORRUPT_FILE.
    std::optional<int64_t> find_integer(SettingKeys keys, int64_t low, int64_t high) const;
    // The same; absence is MOE_ERROR_NOT_FOUND.
    int64_t integer(SettingKeys keys, int64_t low, int64_t high) const;
    std::optional<float> find_number(std::string_view key) const;
    float number(std::string_view key) const;  // absence as of integer
    std::optional<bool> find_flag(std::string_view key) const;
    // The first of the keys that exists, else `implied`. Null is false to the model's own code, so
    // where true is implied it is MOE_ERROR_UNSUPPORTED.
    bool flag(SettingKeys keys, bool implied) const;
    std::optional<std::string_view> find_text(std::string_view key) const;
    // The length of an array; none where the key is absent or something else.
    std::optional<int64_t> find_length(std::string_view key) const;

    // All of them, sorted by key; of equal keys the last one counts. A layer is built under the
    // checkpoint's lock, so that nothing reads while another thread looks at was_read.
    std::span<const Entry> entries() const { return entries_; }
    std::string_view prefix() const { return prefix_; }

  private:
    static const char* kind_name(Kind kind);
    std::string_view intern(std::string_view text);
    void add(std::string_view key, Entry entry);
    const Entry* find(std::string_view key) const;  // for a getter: marks what it finds
    const Entry* look_up(std::string_view key) const;
    const Entry* find_exact(std::string_view key) const;
    bool is_null(std::string_view key) const;
    bool has_exact_part(std::string_view stem) const;
    [[noreturn]] void fail_type(const Entry& entry, const char* wanted) const;
    [[noreturn]] void fail_missing(SettingKeys keys) const;

    std::pmr::monotonic_buffer_resource texts_;
    size_t text_bytes_ = 0;
    std::pmr::vector<std::string_view> nulls_;  // keys
    std::pmr::vector<Entry> entries_;
    std::pmr::string file_;
    std::pmr::string prefix_;
};

// Settings that lie together under a name; keys are what follows the stem. Those of a single module
// may override them: `inner` is the stem of these, after the other one.
class SettingsPart {
  public:
    SettingsPart(const Settings& settings, std::string_view stem, std::string_view inner = {})
        : settings_(settings), stem_(stem), inner_(inner) {}

    bool is_of_module() const { return !inner_.empty(); }
    bool has(std::string_view key) const;
    std::optional<int64_t> find_integer(std::string_view key, int64_t low, int64_t high) const;
    int64_t integer(std::string_view key, int64_t low, int64_t high) const;
    std::optional<bool> find_flag(std::string_view key) const;
    std::optional<std::string_view> find_text(std::string_view key) const;

  private:
    std::string whole(std::string_view key) const;

    const Settings& settings_;
    std::string_view stem_;
    std::string_view inner_;
};

}  // namespace moe
