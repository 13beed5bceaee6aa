// JSON as a stream of events, so that duplicate keys are seen and nothing is built that was not
// requested. The parser itself is nlohmann's; only json.cpp includes it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>

#include "libmoe/checkpoint/settings.hpp"

namespace moe {

struct JsonValue {
    enum class Kind { Null, Flag, Unsigned, Negative, Real, Text };
    Kind kind = Kind::Null;
    bool flag = false;
    uint64_t unsigned_integer = 0;
    int64_t negative_integer = 0;
    double real = 0;
    std::string_view text = {};  // valid during the event
};

// For a sentence: null, true, -3, 1.5, 'text'.
std::string text_of(const JsonValue& value);

class JsonEvents {
  public:
    virtual ~JsonEvents() = default;
    virtual void begin(bool is_array) = 0;
    virtual void end() = 0;
    virtual void key(std::string_view name) = 0;
    virtual void value(const JsonValue& value) = 0;
};

// Fails with MOE_ERROR_CORRUPT_FILE when text is not one JSON value, nests deeper than max_depth,
// or is not UTF-8. `file` is for the sentence. What the events throw passes through.
void parse_json(std::string_view text, std::string_view file, int max_depth, JsonEvents& events);

// Every scalar of a JSON object, nested ones under dotted keys ("text_config.hidden_size",
// "architectures.0"). As Python writes it: Infinity, -Infinity and NaN come as texts. `also` (null:
// none) sees each event after the settings have it.
void read_settings_json(std::string_view text, std::string_view file, Settings& settings,
                        JsonEvents* also = nullptr);

}  // namespace moe
