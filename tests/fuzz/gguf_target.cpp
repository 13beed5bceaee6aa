// GGUF files through moe.h, from memory.
#include "tests/fuzz/gguf_parts.hpp"
#include "tests/fuzz/memory_file.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/fuzz/use_checkpoint.hpp"

namespace moe_fuzz {

void run_gguf(std::string_view input) {
    // Without the magic it would be read as safetensors, for which there is another target.
    if (!input.starts_with("GGUF")) return;
    static MemoryFile file;
    file.write(input);
    use_checkpoint(file.path(), input.size() % 2 ? MOE_IO_READ : MOE_IO_MMAP, file.name());
}

std::string mutate_gguf(std::string_view input, Random& random) {
    return mutate_gguf_file(input, random);
}

}  // namespace moe_fuzz
