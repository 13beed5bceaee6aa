// Cases from a file, for studies: {"models": [...], "cases": [...]}, in the words of the results
// (bench/README.md).
#pragma once

#include "bench/cases.hpp"

namespace moe::bench {

// The cases point into models, so that a list may be moved and not copied, or to those that
// moe-bench knows.
struct CaseList {
    std::vector<Model> models;
    std::vector<Case> cases;
};

// Throws std::runtime_error with a sentence that names the model or case, the field and the value.
CaseList parse_cases(const std::string& text);
CaseList read_cases(const std::string& path);

}  // namespace moe::bench
