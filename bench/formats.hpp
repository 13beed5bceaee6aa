// Formats of the benchmark by name: those of moe_format_by_name, and some that have no name there.
// "a+b": a for gate and up, b for down. "a+b+c": gate, up and down.
#pragma once

#include <string>

#include "moe/moe.h"

namespace moe::bench {

// Both throw for an unknown name.
moe_format format_by_name(const std::string& name);
int64_t block_columns(const std::string& name);

struct ExpertFormats {
    std::string gate, up, down;
};
ExpertFormats expert_formats(const std::string& format);

}  // namespace moe::bench
