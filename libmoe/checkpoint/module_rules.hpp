// Settings of single modules: GPTQModel's `dynamic`, AutoRound's `extra_config` and the
// `config_groups` of compressed-tensors name modules, exactly or by patterns, and give them values
// of their own. The values stay in the settings; a rule says where. The transforms of
// compressed-tensors name modules in the same way.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>

#include "libmoe/checkpoint/name_pattern.hpp"
#include "libmoe/checkpoint/settings.hpp"

namespace moe {

// Models that see or hear keep the language model's values under one of these keys: transformers',
// InternVL's, DeepSeek-VL's.
inline constexpr std::string_view language_parts[] = {"text_config", "llm_config",
                                                      "language_config"};

struct ModuleRule {
    // Exact: the whole name. Part: a piece of it. AtStart and Anywhere: a pattern. Every: all
    // modules that are matrices.
    enum class Match : uint8_t { Exact, Part, AtStart, Anywhere, Every };

    explicit ModuleRule(std::pmr::memory_resource& memory)
        : list(&memory), written(&memory), text(&memory), stem(&memory) {}

    std::pmr::string list;     // "dynamic"
    std::pmr::string written;  // what the file has: "-:.*down_proj"
    std::pmr::string text;     // what is compared: ".*down_proj"
    std::pmr::string stem;     // of its values: "dynamic.-:.*down_proj."
    Match match = Match::Exact;
    bool is_exception = false;           // the module is not quantised, or not transformed
    std::optional<NamePattern> pattern;  // none: of no pattern, or one that is not understood
};

class ModuleRules {
  public:
    explicit ModuleRules(std::pmr::memory_resource& memory)
        : memory_(memory), rules_(&memory), transforms_(&memory) {}

    // text: config.json, parsed once; all its values go into the settings.
    void read(std::string_view text, std::string_view file, Settings& settings);
    // The rule that counts for a module, null: none. Fails where a pattern that comes before it is
    // not understood.
    const ModuleRule* find(std::string_view module) const;
    // The transform of what a module takes or gives when it runs, null: none. Transforms of the
    // weight alone are in the file's values.
    const ModuleRule* find_transform(std::string_view module) const;

  private:
    friend class ModuleRuleEvents;

    bool matches(const ModuleRule& rule, std::string_view module, size_t& steps) const;

    std::pmr::memory_resource& memory_;
    std::pmr::vector<ModuleRule> rules_;
    std::pmr::vector<ModuleRule> transforms_;  // exceptions before what they are exceptions of
    std::string file_;
};

}  // namespace moe
