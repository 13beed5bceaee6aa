// Cases from a file, for studies. Input: {"models": [...], "cases": [...]}, with the field names of
// the results (bench/README.md). Output: a CaseList.
#pragma once

#include <vector>

#include "bench/cases.hpp"

namespace moe::bench {

// The cases point into models, so a list may be moved and not copied. They may also point to models
// that moe-bench knows.
struct CaseList {
    std::vector<Model> models;
    std::vector<Case> cases;
};

// Throws std::runtime_error that names the model or case, the field and the value.
CaseList parse_cases(const std::string& text);
CaseList read_cases(const std::string& path);

}  // namespace moe::bench
