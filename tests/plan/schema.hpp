// A validator of what explain says in JSON, by docs/explain.schema.json.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/plan/pattern.hpp"

namespace moe::test {

// The part of JSON Schema that docs/explain.schema.json uses.
class Validator {
  public:
    explicit Validator(const nlohmann::json& schema) : root_(schema) {}

    void check(const nlohmann::json& value, const nlohmann::json& rules,
               const std::string& where) const {
        for (const auto& [key, rule] : rules.items()) check_rule(value, key, rule, rules, where);
    }
    bool holds(const nlohmann::json& value, const nlohmann::json& rules) const {
        Validator quiet(root_);
        quiet.n_errors_ = 0;
        quiet.is_quiet_ = true;
        quiet.check(value, rules, "");
        return quiet.n_errors_ == 0;
    }

  private:
    void expect(bool holds, const std::string& where, const std::string& key) const {
        if (holds) return;
        ++n_errors_;
        if (!is_quiet_) ADD_FAILURE() << where << " breaks " << key;
    }

    static bool has_type(const nlohmann::json& value, const std::string& type) {
        return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
               (type == "string" && value.is_string()) ||
               (type == "boolean" && value.is_boolean()) ||
               (type == "integer" && value.is_number_integer()) ||
               (type == "number" && value.is_number()) || (type == "null" && value.is_null());
    }

    void check_rule(const nlohmann::json& value, const std::string& key, const nlohmann::json& rule,
                    const nlohmann::json& rules, const std::string& where) const {
        static const std::set<std::string> without_effect{
            "$schema", "$id",  "title",       "description", "$defs",
            "then",    "else", "minContains", "maxContains"};
        if (without_effect.count(key)) return;
        if (key == "$ref") {
            const auto path = nlohmann::json::json_pointer(rule.get<std::string>().substr(1));
            return check(value, root_.at(path), where);
        }
        if (key == "type") {
            const auto types = rule.is_array() ? rule : nlohmann::json::array({rule});
            return expect(std::any_of(types.begin(), types.end(),
                                      [&](const auto& type) { return has_type(value, type); }),
                          where, key);
        }
        if (key == "const") return expect(value == rule, where, key);
        if (key == "enum")
            return expect(std::count(rule.begin(), rule.end(), value) == 1, where, key);
        if (key == "oneOf") {
            const auto n = std::count_if(rule.begin(), rule.end(),
                                         [&](const auto& one) { return holds(value, one); });
            return expect(n == 1, where, key);
        }
        if (key == "not") return expect(!holds(value, rule), where, key);
        if (key == "allOf") return check_all(value, rule, where);
        if (key == "if")
            return check(value, holds(value, rule) ? rules.at("then") : rules.at("else"), where);
        if (value.is_object()) return check_object(value, key, rule, rules, where);
        if (value.is_array()) return check_array(value, key, rule, rules, where);
        if (value.is_string()) return check_string(value, key, rule, where);
        if (value.is_number()) return check_number(value, key, rule, where);
        expect(value.is_null(), where, "unknown rule " + key);
    }

    void check_all(const nlohmann::json& value, const nlohmann::json& all,
                   const std::string& where) const {
        for (const auto& rules : all) check(value, rules, where);
    }
    void check_object(const nlohmann::json& value, const std::string& key,
                      const nlohmann::json& rule, const nlohmann::json& rules,
                      const std::string& where) const {
        if (key == "required")
            for (const auto& name : rule)
                expect(value.contains(name.get<std::string>()), where, "required " + name.dump());
        else if (key == "additionalProperties")
            for (const auto& [name, unused] : value.items())
                expect(rules["properties"].contains(name), where, "names: " + name);
        else if (key == "properties")
            for (const auto& [name, inner] : rule.items()) {
                if (value.contains(name)) check(value[name], inner, where + "." + name);
            }
        else
            expect(false, where, "unknown rule " + key);
    }
    void check_array(const nlohmann::json& value, const std::string& key,
                     const nlohmann::json& rule, const nlohmann::json& rules,
                     const std::string& where) const {
        if (key == "minItems") return expect(value.size() >= rule.get<size_t>(), where, key);
        if (key == "maxItems") return expect(value.size() <= rule.get<size_t>(), where, key);
        if (key == "items")
            for (size_t i = 0; i < value.size(); ++i)
                check(value[i], rule, where + "[" + std::to_string(i) + "]");
        else if (key == "contains") {
            const auto n = std::count_if(value.begin(), value.end(),
                                         [&](const auto& one) { return holds(one, rule); });
            expect(n >= rules.value("minContains", 1) && n <= rules.value("maxContains", INT32_MAX),
                   where, key);
        } else
            expect(false, where, "unknown rule " + key);
    }
    void check_string(const nlohmann::json& value, const std::string& key,
                      const nlohmann::json& rule, const std::string& where) const {
        const auto text = value.get<std::string>();
        if (key == "minLength") return expect(text.size() >= rule.get<size_t>(), where, key);
        expect(key == "pattern" && Pattern(rule.get<std::string>()).is_in(text), where, key);
    }
    void check_number(const nlohmann::json& value, const std::string& key,
                      const nlohmann::json& rule, const std::string& where) const {
        if (key == "minimum") return expect(value >= rule, where, key);
        if (key == "maximum") return expect(value <= rule, where, key);
        expect(key == "multipleOf" && value.get<int64_t>() % rule.get<int64_t>() == 0, where, key);
    }

    const nlohmann::json& root_;
    bool is_quiet_ = false;
    mutable int n_errors_ = 0;
};

inline nlohmann::json explain_schema() {
    std::ifstream file("docs/explain.schema.json");
    return nlohmann::json::parse(file);
}

}  // namespace moe::test
