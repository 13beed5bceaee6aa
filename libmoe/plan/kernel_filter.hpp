// moe_plan_desc.kernel_filter: items separated by commas, each [+|-][stage:]glob, where a glob is a
// kernel's name with * for any characters. "+" or nothing forces what matches, "-" forbids it.
#pragma once

#include <span>

#include "libmoe/plan/candidates.hpp"

namespace moe {

enum class Wish : uint8_t { none, force, forbid };

class KernelFilter {
  public:
    // all: the plan's candidates with their names and obstacles. Fails with
    // MOE_ERROR_INVALID_ARGUMENT for an item that matches none of them and for wishes that
    // contradict each other, with MOE_ERROR_UNSUPPORTED for a forced item of which no match
    // applies.
    KernelFilter(std::span<const Candidate> all, const char* text);

    Wish wish(const Candidate& candidate) const;
    // Is another candidate forced in its place?
    bool forces_another(const Candidate& candidate) const;

  private:
    struct Item {
        std::string_view stage;  // empty: every stage
        std::string_view glob;
        Wish wish;

        bool matches(const Candidate& candidate) const;
        bool is_exact() const { return glob.find('*') == std::string_view::npos; }
    };

    template <class Use>
    void for_each(Use use) const;
    void check_known(const Item& item) const;
    void check_applies(const Item& item) const;
    void check_contradictions(const Candidate& candidate) const;

    std::span<const Candidate> all_;
    std::string_view text_;
};

}  // namespace moe
