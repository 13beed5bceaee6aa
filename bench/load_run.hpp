// How fast packed weights come from a file, next to what the file system and the bus alone do.
#pragma once

#include <string>

namespace moe::bench {

// Saves a layer of the model in the format under `folder`, opens it again some times, and prints
// GB/s, with the file in the page cache and with it dropped from there before each time, and what
// part of the slower of reading and copying opening is.
void measure_load(const std::string& model, const std::string& format, const std::string& folder);

}  // namespace moe::bench
