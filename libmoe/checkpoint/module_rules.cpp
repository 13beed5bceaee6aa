// Reading the rules in the order that their tools give them, and the choice of one.
#include "libmoe/checkpoint/module_rules.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/json.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr size_t most_rules = size_t{1} << 18;
constexpr size_t most_together = size_t{1} << 20;  // of the patterns of a file together

using Match = ModuleRule::Match;

bool is_language_part(std::string_view name) {
    return std::find(std::begin(language_parts), std::end(language_parts), name) !=
           std::end(language_parts);
}

bool is_plain_name(std::string_view text) {
    return text.find_first_of("*+?()[]{}|^$\\") == text.npos;
}

}  // namespace

// Members of quantization_config.dynamic and extra_config, targets of config_groups and of
// transform_config; at the top, or in the part of the language model.
class ModuleRuleEvents final : public JsonEvents {
  public:
    ModuleRuleEvents(ModuleRules& rules, std::string_view file) : rules_(rules), file_(file) {}

    void begin(bool) override { path_.push_back(std::exchange(name_, {})); }
    void end() override {
        if (is_of_transform({""})) add_transform();
        name_ = path_.back();
        path_.pop_back();
    }
    void key(std::string_view name) override {
        name_ = name;
        if (is_in({"dynamic"})) add_dynamic(name);
        if (is_in({"extra_config"})) add_extra(name);
        if (name == "apply") n_applied_ = 0;
    }
    void value(const JsonValue& value) override {
        const size_t depth = path_.size();
        if (value.kind != JsonValue::Kind::Text || depth < 3) return;
        if (path_.back() == "targets" && is_in({"config_groups", path_[depth - 2], "targets"}))
            add_target(path_[depth - 2], value.text);
        if (name_ == "location" && is_of_transform({""})) location_ = value.text;
        if (is_of_transform({"", "targets"})) targets_.emplace_back(value.text);
        if (is_of_transform({"", "ignore"})) ignored_.emplace_back(value.text);
    }

  private:
    // Are the open members these, in quantization_config?
    bool is_in(std::initializer_list<std::string_view> wanted) const {
        return is_in(std::span(wanted.begin(), wanted.size()));
    }
    bool is_in(std::span<const std::string_view> wanted) const {
        const size_t depth = path_.size(), above = depth - std::min(depth, wanted.size());
        if (!std::equal(wanted.begin(), wanted.end(), path_.begin() + static_cast<ptrdiff_t>(above),
                        path_.end()))
            return false;
        const bool is_nested = above == 3 && is_language_part(path_[1]);
        return (above == 2 || is_nested) && path_[above - 1] == "quantization_config";
    }
    // transform_config.config_groups.R4.apply is a list; `inside` begins with its element.
    bool is_of_transform(std::initializer_list<std::string_view> inside) const {
        const size_t depth = path_.size();
        if (depth < inside.size() + 4) return false;
        const std::string_view name = path_[depth - inside.size() - 2];
        std::vector<std::string_view> wanted = {"transform_config", "config_groups", name, "apply"};
        wanted.insert(wanted.end(), inside.begin(), inside.end());
        return is_in(wanted);
    }
    void add(const char* list, std::string_view written, std::string_view text,
             std::string_view stem, Match match, bool is_exception) {
        add(rules_.rules_, list, written, text, stem, match, is_exception);
    }
    void add(std::pmr::vector<ModuleRule>& rules, const char* list, std::string_view written,
             std::string_view text, std::string_view stem, Match match, bool is_exception) {
        if (rules.size() == most_rules)
            fail(MOE_ERROR_CORRUPT_FILE, "{}: '{}' has more than {} entries", file_, list,
                 most_rules);
        ModuleRule& rule = rules.emplace_back(rules_.memory_);
        rule.list = list;
        rule.written = written;
        rule.text = text;
        rule.stem = stem;
        rule.match = match;
        rule.is_exception = is_exception;
        if (match != Match::AtStart && match != Match::Anywhere) return;
        rule.pattern = NamePattern::parse(rules_.memory_, text);
        if (rule.pattern) n_instructions_ += rule.pattern->size();
        if (n_instructions_ > most_together)
            fail(MOE_ERROR_CORRUPT_FILE, "{}: the patterns of '{}' are too long together", file_,
                 list);
    }
    void add_dynamic(std::string_view name) {
        const bool is_exception = name.starts_with("-:");
        const bool has_sign = is_exception || name.starts_with("+:");
        add("dynamic", name, name.substr(has_sign ? 2 : 0), fmt::format("dynamic.{}.", name),
            Match::AtStart, is_exception);
    }
    void add_extra(std::string_view name) {
        const Match match = is_plain_name(name) ? Match::Part : Match::Anywhere;
        add("extra_config", name, name, fmt::format("extra_config.{}.", name), match, false);
    }
    void add_target(std::string_view group, std::string_view target) {
        const std::string stem = fmt::format("config_groups.{}.weights.", group);
        add_module(rules_.rules_, "config_groups", target, stem, false);
    }
    // A module by its name, a pattern or its class.
    void add_module(std::pmr::vector<ModuleRule>& rules, const char* list, std::string_view module,
                    std::string_view stem, bool is_exception) {
        const bool is_pattern = module.starts_with("re:");
        const Match match = is_pattern           ? Match::AtStart
                            : module == "Linear" ? Match::Every
                                                 : Match::Exact;
        add(rules, list, module, module.substr(is_pattern ? 3 : 0), stem, match, is_exception);
    }
    // One entry of a list `apply` ends. The path ends with the transform's name, the list and the
    // entry.
    void add_transform() {
        const std::string stem = fmt::format("transform_config.config_groups.{}.apply.{}",
                                             path_[path_.size() - 3], n_applied_++);
        if (location_ == "input" || location_ == "output") {
            for (const std::string& module : ignored_)
                add_module(rules_.transforms_, "transform_config", module, stem, true);
            for (const std::string& module : targets_)
                add_module(rules_.transforms_, "transform_config", module, stem, false);
        }
        location_.clear();
        targets_.clear();
        ignored_.clear();
    }

    ModuleRules& rules_;
    std::string_view file_;
    std::vector<std::string> path_;  // of the containers that are open
    std::string name_;               // of the last member
    size_t n_instructions_ = 0;
    // The transform that is open has these, the last three its open entry.
    int32_t n_applied_ = 0;
    std::string location_;
    std::vector<std::string> targets_, ignored_;
};

void ModuleRules::read(std::string_view text, std::string_view file, Settings& settings) {
    file_ = file;
    ModuleRuleEvents events(*this, file);
    read_settings_json(text, file, settings, &events);
    // compressed-tensors goes by names, then patterns in the order of their texts, then classes.
    const auto targets =
        std::stable_partition(rules_.begin(), rules_.end(),
                              [](const ModuleRule& rule) { return rule.list != "config_groups"; });
    std::stable_sort(targets, rules_.end(), [](const ModuleRule& a, const ModuleRule& b) {
        return a.match != b.match ? a.match < b.match : a.text < b.text;
    });
}

bool ModuleRules::matches(const ModuleRule& rule, std::string_view module, size_t& steps) const {
    switch (rule.match) {
        case Match::Exact:
            return module == rule.text;
        case Match::Part:
            return module.find(rule.text) != module.npos;
        case Match::Every:
            return true;
        case Match::AtStart:
        case Match::Anywhere:
            break;
    }
    const auto where =
        rule.match == Match::AtStart ? NamePattern::Where::AtStart : NamePattern::Where::Anywhere;
    const auto found = rule.pattern ? rule.pattern->matches(module, where, steps) : std::nullopt;
    if (found) return *found;
    fail(MOE_ERROR_UNSUPPORTED, "{}: the pattern '{}' of '{}' is not understood", file_,
         printable(rule.written).text, rule.list);
}

// AutoRound's entry of the very name counts before its patterns.
const ModuleRule* ModuleRules::find(std::string_view module) const {
    for (const ModuleRule& rule : rules_)
        if (rule.list == "extra_config" && rule.text == module) return &rule;
    size_t steps = 0;
    for (const ModuleRule& rule : rules_)
        if (matches(rule, module, steps)) return &rule;
    return nullptr;
}

// Exceptions are those of the entry that follows them; each has a stem.
const ModuleRule* ModuleRules::find_transform(std::string_view module) const {
    size_t steps = 0;
    std::string_view excepted;
    for (const ModuleRule& rule : transforms_) {
        if (rule.stem == excepted || !matches(rule, module, steps)) continue;
        if (!rule.is_exception) return &rule;
        excepted = rule.stem;
    }
    return nullptr;
}

}  // namespace moe
