// The GGUF container, versions 2 and 3: magic, counts, key-value pairs, tensor infos, data.
#pragma once

#include <memory_resource>

#include "libmoe/checkpoint/file.hpp"
#include "libmoe/checkpoint/settings.hpp"
#include "libmoe/checkpoint/tensor_index.hpp"

namespace moe {

// Adds the scalars of one file to settings (finished) and its tensors to the index. Broken rules
// are MOE_ERROR_CORRUPT_FILE; other versions, byte orders and tensor types are
// MOE_ERROR_UNSUPPORTED.
void read_gguf(std::pmr::memory_resource& memory, const File& source, uint32_t file,
               Settings& settings, TensorIndex& index);

}  // namespace moe
