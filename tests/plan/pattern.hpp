// Extended regular expressions by the system's <regex.h>: what gcc 12 makes of std::regex does not
// compile without warnings under sanitizers.
#pragma once

#include <gtest/gtest.h>
#include <regex.h>

#include <array>
#include <string>

namespace moe::test {

class Pattern {
  public:
    explicit Pattern(const std::string& text) {
        EXPECT_EQ(regcomp(&compiled_, text.c_str(), REG_EXTENDED), 0) << text;
    }
    Pattern(const Pattern&) = delete;
    Pattern& operator=(const Pattern&) = delete;
    ~Pattern() { regfree(&compiled_); }

    // Somewhere in text; ^ and $ bind it.
    bool is_in(const std::string& text) const {
        return regexec(&compiled_, text.c_str(), 0, nullptr, 0) == 0;
    }
    // The first match becomes `with`, in which $1 is the first group.
    std::string replaced(const std::string& text, std::string with) const {
        std::array<regmatch_t, 4> found;
        if (regexec(&compiled_, text.c_str(), found.size(), found.data(), 0) != 0) return text;
        const auto part = [&](const regmatch_t& match) {
            return text.substr(static_cast<size_t>(match.rm_so),
                               static_cast<size_t>(match.rm_eo - match.rm_so));
        };
        if (const size_t group = with.find("$1"); group != std::string::npos)
            with.replace(group, 2, part(found[1]));
        return text.substr(0, static_cast<size_t>(found[0].rm_so)) + with +
               text.substr(static_cast<size_t>(found[0].rm_eo));
    }

  private:
    regex_t compiled_;
};

}  // namespace moe::test
