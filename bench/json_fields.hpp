// Reads fields of JSON objects that people or other programs wrote, and checks each one before its
// use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace moe::bench {

using Json = nlohmann::json;

inline std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) throw std::runtime_error(path + ": cannot be read");
    return text.str();
}

// The fields of one object. Every error message begins with the name of the object.
class Fields {
  public:
    Fields(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
        if (!json.is_object()) fail("is no object");
    }

    [[noreturn]] void fail(const std::string& problem) const {
        throw std::runtime_error(what_ + " " + problem);
    }

    void allow(std::initializer_list<const char*> names) const {
        for (const auto& [name, value] : json_.items())
            if (std::find(names.begin(), names.end(), name) == names.end())
                fail("has a field " + name + ", which is not known");
    }

    const Json& list(const char* name) const {
        const Json& value = at(name);
        if (!value.is_array()) fail(std::string(name) + " is no list");
        return value;
    }

    int64_t integer(const char* name, int64_t least, int64_t most) const {
        const Json& value = at(name);
        if (!value.is_number_integer() || value < least || value > most)
            fail(std::string(name) + " is " + value.dump() + ", not an integer in " +
                 std::to_string(least) + " .. " + std::to_string(most));
        return value.get<int64_t>();
    }

    bool flag(const char* name) const {
        if (!json_.contains(name)) return false;
        if (!at(name).is_boolean()) fail(std::string(name) + " is neither true nor false");
        return at(name).get<bool>();
    }

    // Reads a word of lower-case letters, digits and `more`, so that a program can split the name
    // of a case.
    std::string word(const char* name, const std::string& more) const {
        const Json& value = at(name);
        const auto is_good = [&](char c) {
            return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || more.find(c) != more.npos;
        };
        if (!value.is_string()) fail(std::string(name) + " is no string");
        const auto word = value.get<std::string>();
        if (word.empty() || !std::all_of(word.begin(), word.end(), is_good))
            fail(std::string(name) + " is \"" + word + "\"");
        return word;
    }

    double positive(const char* name) const {
        const Json& value = at(name);
        if (!value.is_number() || !(value.get<double>() > 0))
            fail(std::string(name) + " is " + value.dump() + ", not a number above 0");
        return value.get<double>();
    }

    // Reads one line of printable ASCII, for use in a table.
    std::string line(const char* name) const {
        const Json& value = at(name);
        const auto is_good = [](char c) { return c >= ' ' && c <= '~' && c != '|'; };
        if (!value.is_string()) fail(std::string(name) + " is no string");
        const auto line = value.get<std::string>();
        if (line.empty() || !std::all_of(line.begin(), line.end(), is_good))
            fail(std::string(name) + " is " + value.dump());
        return line;
    }

    bool has(const char* name) const { return json_.contains(name); }

    const Json& at(const char* name) const {
        if (!json_.contains(name)) fail(std::string("has no ") + name);
        return json_[name];
    }

  private:
    const Json& json_;
    std::string what_;
};

}  // namespace moe::bench
