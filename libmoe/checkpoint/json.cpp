// The bridge to nlohmann's SAX parser, and config.json flattened into settings.
#include "libmoe/checkpoint/json.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr int max_config_depth = 32;

// The member names are those that nlohmann's parser calls.
class SaxBridge {
  public:
    SaxBridge(std::string_view file, int max_depth, JsonEvents& events)
        : file_(file), max_depth_(max_depth), events_(events) {}

    bool null() { return give({}); }
    bool boolean(bool flag) { return give({.kind = JsonValue::Kind::Flag, .flag = flag}); }
    bool number_integer(int64_t number) {
        return give({.kind = JsonValue::Kind::Negative, .negative_integer = number});
    }
    bool number_unsigned(uint64_t number) {
        return give({.kind = JsonValue::Kind::Unsigned, .unsigned_integer = number});
    }
    bool number_float(double number, const std::string&) {
        return give({.kind = JsonValue::Kind::Real, .real = number});
    }
    bool string(std::string& text) { return give({.kind = JsonValue::Kind::Text, .text = text}); }
    bool binary(nlohmann::json::binary_t&) { return false; }
    bool start_object(size_t) { return open(false); }
    bool end_object() { return close(); }
    bool start_array(size_t) { return open(true); }
    bool end_array() { return close(); }
    bool key(std::string& name) {
        events_.key(name);
        return true;
    }
    bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: not valid JSON at byte {}: {}", file_, position,
             printable(error.what()).text);
    }

  private:
    bool give(const JsonValue& value) {
        events_.value(value);
        return true;
    }
    bool open(bool is_array) {
        if (++depth_ > max_depth_) {
            fail(MOE_ERROR_CORRUPT_FILE, "{}: JSON nested deeper than {}", file_, max_depth_);
        }
        events_.begin(is_array);
        return true;
    }
    bool close() {
        --depth_;
        events_.end();
        return true;
    }

    std::string_view file_;
    int max_depth_;
    int depth_ = 0;
    JsonEvents& events_;
};

class SettingsEvents final : public JsonEvents {
  public:
    SettingsEvents(std::string_view file, Settings& settings) : file_(file), settings_(settings) {}

    void begin(bool is_array) override {
        if (levels_.empty() && is_array) fail_not_object();
        if (!levels_.empty()) next_element();
        levels_.push_back({path_.size(), is_array, 0});
    }
    void end() override { levels_.pop_back(); }
    void key(std::string_view name) override {
        path_.resize(levels_.back().path);
        if (!path_.empty()) path_ += '.';
        path_ += name;
    }
    void value(const JsonValue& value) override {
        if (levels_.empty()) fail_not_object();
        next_element();
        using Kind = JsonValue::Kind;
        switch (value.kind) {
            case Kind::Null:
                settings_.add_null(path_);
                break;
            case Kind::Flag:
                settings_.add_flag(path_, value.flag);
                break;
            case Kind::Unsigned:
                add_unsigned(value.unsigned_integer);
                break;
            case Kind::Negative:
                settings_.add_integer(path_, value.negative_integer);
                break;
            case Kind::Real:
                settings_.add_real(path_, value.real);
                break;
            case Kind::Text:
                settings_.add_text(path_, value.text);
                break;
        }
    }

  private:
    struct Level {
        size_t path;  // length of the path of the container itself
        bool is_array;
        uint64_t count;
    };

    [[noreturn]] void fail_not_object() const {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the JSON is not an object", file_);
    }
    void next_element() {
        Level& level = levels_.back();
        if (level.is_array) key(std::to_string(level.count++));
    }
    void add_unsigned(uint64_t number) {
        if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            settings_.add_real(path_, static_cast<double>(number));
        } else {
            settings_.add_integer(path_, static_cast<int64_t>(number));
        }
    }

    std::string_view file_;
    Settings& settings_;
    std::string path_;
    std::vector<Level> levels_;
};

}  // namespace

std::string text_of(const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::Null:
            return "null";
        case JsonValue::Kind::Flag:
            return value.flag ? "true" : "false";
        case JsonValue::Kind::Unsigned:
            return fmt::format("{}", value.unsigned_integer);
        case JsonValue::Kind::Negative:
            return fmt::format("{}", value.negative_integer);
        case JsonValue::Kind::Real:
            return fmt::format("{}", value.real);
        case JsonValue::Kind::Text:
            return fmt::format("'{}'", printable(value.text).text);
    }
    return "?";
}

void parse_json(std::string_view text, std::string_view file, int max_depth, JsonEvents& events) {
    SaxBridge bridge(file, max_depth, events);
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &bridge)) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: not valid JSON", file);
    }
}

namespace {

// Python writes Infinity, -Infinity and NaN, which are no JSON: as texts here, so that a file which
// has them somewhere can be read, and who asks for such a number is refused.
std::string with_quoted_numbers(std::string_view text) {
    std::string out;
    bool in_string = false;
    for (size_t i = 0; i < text.size();) {
        size_t n = 1;
        if (!in_string)
            for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
                if (text.substr(i).starts_with(word)) n = std::max(n, word.size());
        if (n > 1) {
            out.append("\"").append(text.substr(i, n)).append("\"");
        } else {
            if (text[i] == '"') in_string = !in_string;
            if (in_string && text[i] == '\\') n = std::min<size_t>(2, text.size() - i);
            out.append(text.substr(i, n));
        }
        i += n;
    }
    return out;
}

// Two readers of one text.
class BothEvents final : public JsonEvents {
  public:
    BothEvents(JsonEvents& first, JsonEvents& second) : first_(first), second_(second) {}

    void begin(bool is_array) override {
        first_.begin(is_array);
        second_.begin(is_array);
    }
    void end() override {
        first_.end();
        second_.end();
    }
    void key(std::string_view name) override {
        first_.key(name);
        second_.key(name);
    }
    void value(const JsonValue& value) override {
        first_.value(value);
        second_.value(value);
    }

  private:
    JsonEvents& first_;
    JsonEvents& second_;
};

void parse_config_json(std::string_view text, std::string_view file, JsonEvents& events) {
    const bool is_plain = text.find("Infinity") == text.npos && text.find("NaN") == text.npos;
    if (is_plain) return parse_json(text, file, max_config_depth, events);
    parse_json(with_quoted_numbers(text), file, max_config_depth, events);
}

}  // namespace

void read_settings_json(std::string_view text, std::string_view file, Settings& settings,
                        JsonEvents* also) {
    SettingsEvents events(file, settings);
    if (also) {
        BothEvents both(events, *also);
        parse_config_json(text, file, both);
    } else {
        parse_config_json(text, file, events);
    }
    settings.finish(Settings::Duplicates::LastWins);
}

}  // namespace moe
