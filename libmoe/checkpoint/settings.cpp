// The table of settings and its checked getters.
#include "libmoe/checkpoint/settings.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr size_t longest_text = 256;
// Keys of nested JSON repeat what they lie in: without a limit a short file could fill the memory.
constexpr size_t most_entries = size_t{1} << 20;
constexpr size_t most_text_bytes = size_t{64} << 20;

}  // namespace

Settings::Settings(std::pmr::memory_resource& memory, std::string_view file)
    : texts_(&memory), nulls_(&memory), entries_(&memory), file_(file, &memory), prefix_(&memory) {}

const char* Settings::kind_name(Kind kind) {
    switch (kind) {
        case Kind::Integer:
            return "an integer";
        case Kind::Real:
            return "a fraction";
        case Kind::Flag:
            return "true or false";
        case Kind::Text:
            return "a text";
        case Kind::Array:
            return "an array";
    }
    return "?";
}

std::string_view Settings::intern(std::string_view text) {
    if (text.empty()) return {};
    if (text.size() > most_text_bytes - text_bytes_) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: names and texts of more than {} bytes, up to '{}'", file_,
             most_text_bytes, printable(text).text);
    }
    text_bytes_ += text.size();
    char* copy = static_cast<char*>(texts_.allocate(text.size(), 1));
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
}

void Settings::add(std::string_view key, Entry entry) {
    if (entries_.size() == most_entries) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: more than {} values, up to '{}'", file_, most_entries,
             printable(key).text);
    }
    entry.key = intern(key);
    entries_.push_back(entry);
}

void Settings::add_integer(std::string_view key, int64_t value) {
    add(key, {{}, Kind::Integer, value, 0, {}});
}

void Settings::add_real(std::string_view key, double value) {
    add(key, {{}, Kind::Real, 0, value, {}});
}

void Settings::add_flag(std::string_view key, bool value) {
    add(key, {{}, Kind::Flag, value, 0, {}});
}

void Settings::add_text(std::string_view key, std::string_view value) {
    add(key, {{}, Kind::Text, 0, 0, intern(value.substr(0, longest_text))});
}

void Settings::add_array(std::string_view key, int64_t length) {
    add(key, {{}, Kind::Array, length, 0, {}});
}

void Settings::add_null(std::string_view key) {
    // More of them than there may be values say nothing more.
    if (nulls_.size() < most_entries) nulls_.push_back(intern(key));
}

bool Settings::is_null(std::string_view key) const {
    const auto is_this = [&](std::string_view null) {
        const bool has_prefix = !prefix_.empty() && null.starts_with(prefix_);
        return null == key || (has_prefix && null.substr(prefix_.size()) == key);
    };
    return std::any_of(nulls_.begin(), nulls_.end(), is_this);
}

void Settings::finish(Duplicates duplicates) {
    const auto by_key = [](const Entry& a, const Entry& b) { return a.key < b.key; };
    const auto same_key = [](const Entry& a, const Entry& b) { return a.key == b.key; };
    std::stable_sort(entries_.begin(), entries_.end(), by_key);
    if (duplicates == Duplicates::LastWins) return;
    const auto twice = std::adjacent_find(entries_.begin(), entries_.end(), same_key);
    if (twice == entries_.end()) return;
    fail(MOE_ERROR_CORRUPT_FILE, "{}: the key '{}' appears twice", file_,
         printable(twice->key).text);
}

const Settings::Entry* Settings::find_exact(std::string_view key) const {
    const auto after =
        std::upper_bound(entries_.begin(), entries_.end(), key,
                         [](std::string_view k, const Entry& e) { return k < e.key; });
    if (after == entries_.begin() || (after - 1)->key != key) return nullptr;
    return &*(after - 1);
}

const Settings::Entry* Settings::look_up(std::string_view key) const {
    if (!prefix_.empty()) {
        std::string prefixed(prefix_);
        prefixed += key;
        if (const Entry* entry = find_exact(prefixed)) return entry;
    }
    return find_exact(key);
}

const Settings::Entry* Settings::find(std::string_view key) const {
    const Entry* entry = look_up(key);
    if (entry) entry->was_read = true;
    return entry;
}

bool Settings::has_exact_part(std::string_view stem) const {
    const auto first =
        std::lower_bound(entries_.begin(), entries_.end(), stem,
                         [](const Entry& e, std::string_view s) { return e.key < s; });
    return first != entries_.end() && first->key.starts_with(stem);
}

bool Settings::has_part(std::string_view stem) const {
    return has_exact_part(std::string(prefix_) += stem) || has_exact_part(stem);
}

void Settings::fail_type(const Entry& entry, const char* wanted) const {
    // Numbers to Python and texts to JSON: read_settings_json has put quotes around them.
    const bool is_word =
        entry.text == "NaN" || entry.text == "Infinity" || entry.text == "-Infinity";
    const std::string_view what = is_word ? entry.text : kind_name(entry.kind);
    fail(MOE_ERROR_CORRUPT_FILE, "{}: '{}' is {}, {} is wanted", file_, printable(entry.key).text,
         what, wanted);
}

void Settings::fail_missing(SettingKeys keys) const {
    std::string names;
    for (const std::string_view key : keys) {
        if (!names.empty()) names += "' nor '";
        names += key;
    }
    const std::string part = prefix_.empty() ? "" : fmt::format(" (prefix '{}')", prefix_);
    fail(MOE_ERROR_NOT_FOUND, "{}: has no key '{}'{}", file_, names, part);
}

std::optional<int64_t> Settings::find_integer(SettingKeys keys, int64_t low, int64_t high) const {
    for (const std::string_view key : keys) {
        const Entry* entry = find(key);
        if (!entry) continue;
        if (entry->kind != Kind::Integer) fail_type(*entry, "an integer");
        if (entry->integer < low || entry->integer > high) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: '{}' is {}, outside {} to {}", file_,
                 printable(entry->key).text, entry->integer, low, high);
        }
        return entry->integer;
    }
    return std::nullopt;
}

int64_t Settings::integer(SettingKeys keys, int64_t low, int64_t high) const {
    if (const auto value = find_integer(keys, low, high)) return *value;
    fail_missing(keys);
}

std::optional<float> Settings::find_number(std::string_view key) const {
    const Entry* entry = find(key);
    if (!entry) return std::nullopt;
    if (entry->kind == Kind::Integer) return static_cast<float>(entry->integer);
    if (entry->kind != Kind::Real) fail_type(*entry, "a number");
    if (!std::isfinite(static_cast<float>(entry->real))) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: '{}' is {}, not finite in float32", file_,
             printable(entry->key).text, entry->real);
    }
    return static_cast<float>(entry->real);
}

float Settings::number(std::string_view key) const {
    if (const auto value = find_number(key)) return *value;
    fail_missing({key});
}

std::optional<bool> Settings::find_flag(std::string_view key) const {
    const Entry* entry = find(key);
    if (!entry) return std::nullopt;
    if (entry->kind != Kind::Flag) fail_type(*entry, "true or false");
    return entry->integer != 0;
}

bool Settings::flag(SettingKeys keys, bool implied) const {
    for (const std::string_view key : keys)
        if (const auto value = find_flag(key)) return *value;
    for (const std::string_view key : keys)
        if (implied && is_null(key))
            fail(MOE_ERROR_UNSUPPORTED,
                 "{}: '{}' is null, but where the key is absent it means true: it must say which",
                 file_, key);
    return implied;
}

std::optional<std::string_view> Settings::find_text(std::string_view key) const {
    const Entry* entry = find(key);
    if (!entry) return std::nullopt;
    if (entry->kind != Kind::Text) fail_type(*entry, "a text");
    return entry->text;
}

std::optional<int64_t> Settings::find_length(std::string_view key) const {
    const Entry* entry = find(key);
    if (!entry || entry->kind != Kind::Array) return std::nullopt;
    return entry->integer;
}

std::string SettingsPart::whole(std::string_view key) const {
    std::string name = std::string(stem_).append(inner_).append(key);
    return inner_.empty() || settings_.has(name) ? name : std::string(stem_).append(key);
}

bool SettingsPart::has(std::string_view key) const {
    return settings_.has(whole(key));
}

std::optional<int64_t> SettingsPart::find_integer(std::string_view key, int64_t low,
                                                  int64_t high) const {
    return settings_.find_integer({whole(key)}, low, high);
}

int64_t SettingsPart::integer(std::string_view key, int64_t low, int64_t high) const {
    return settings_.integer({whole(key)}, low, high);
}

std::optional<bool> SettingsPart::find_flag(std::string_view key) const {
    return settings_.find_flag(whole(key));
}

std::optional<std::string_view> SettingsPart::find_text(std::string_view key) const {
    return settings_.find_text(whole(key));
}

}  // namespace moe
