// moe.h for moe-gpu-test: handles that end themselves, structs with their size set, and failures as
// exceptions that end one case and not the program.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "moe/moe.h"
#include "support/owners.hpp"

namespace moe_gpu {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Skip : std::runtime_error {
    using std::runtime_error::runtime_error;
};

__attribute__((format(printf, 1, 2))) inline std::string text(const char* format, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

inline void must(moe_status status, const char* what) {
    if (status != MOE_OK)
        throw Failure(std::string(what) + ": " + moe_status_name(status) + ": " + moe_last_error());
}

using clients::Loading;
using clients::Plan;
using clients::Runtime;
using clients::Weights;
using clients::Workspace;

template <class Struct>
Struct sized() {
    Struct value{};
    value.struct_size = sizeof value;
    return value;
}

// Applies, and the plan's kernel_filter does not forbid it.
inline bool can_force(const moe_candidate& candidate) {
    return candidate.applicable && std::string(candidate.reason_code) != "forbidden";
}

inline Plan make_plan(moe_runtime* runtime, const moe_plan_desc& desc) {
    moe_plan* plan = nullptr;
    must(moe_plan_create(runtime, &desc, &plan), "moe_plan_create");
    return Plan(plan);
}

inline Weights load_weights(const moe_plan* plan, const moe_weights_desc& desc) {
    moe_weights* weights = nullptr;
    must(moe_weights_load(plan, &desc, &weights), "moe_weights_load");
    return Weights(weights);
}

}  // namespace moe_gpu
