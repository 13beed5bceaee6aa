// Measures the load rate of packed weights from a file, against the file system alone and the bus
// alone.
#pragma once

#include <string>

namespace moe::bench {

// Saves a layer of the model in the format under `folder`, opens it several times, and prints GB/s:
// with the file in the page cache, and after it was dropped from the cache. It also prints the
// ratio to the slower of reading and copying.
void measure_load(const std::string& model, const std::string& format, const std::string& folder);

}  // namespace moe::bench
