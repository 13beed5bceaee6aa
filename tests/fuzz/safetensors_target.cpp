// The safetensors reader alone: a file in memory to an index of tensors.
#include "libmoe/checkpoint/safetensors.hpp"

#include "libmoe/checkpoint/layer_places.hpp"
#include "tests/fuzz/memory_file.hpp"
#include "tests/fuzz/safetensors_parts.hpp"
#include "tests/fuzz/targets.hpp"

namespace moe_fuzz {

void run_safetensors(std::string_view input) {
    static MemoryFile file;
    file.write(input);
    std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
    auto read = [&] {
        // Either kind of access, by a bit of the input.
        const moe_io io = input.size() % 2 ? MOE_IO_READ : MOE_IO_MMAP;
        const moe::File opened(memory, file.path(), io);
        moe::TensorIndex index(memory);
        moe::read_safetensors(memory, opened, 0, index);
        index.finish({&opened, 1});
        for (const moe::TensorEntry& entry : index.entries()) {
            promise(entry.bytes <= input.size() && entry.offset <= input.size() - entry.bytes,
                    "a tensor outside of the file", entry.name);
            promise(index.find(entry.name) == &entry, "a tensor that is not found", entry.name);
        }
        (void)moe::shape_text(index.entries().empty() ? std::span<const int64_t>()
                                                      : index.entries().front().dims());
    };
    survives(read, file.name());
}

std::string mutate_safetensors(std::string_view input, Random& random) {
    return mutate_safetensors_file(input, random);
}

}  // namespace moe_fuzz
