// The safetensors container: u64 header length, JSON header, data that the tensors tile without gap
// or overlap. And the index of a sharded checkpoint.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/checkpoint/file.hpp"
#include "libmoe/checkpoint/tensor_index.hpp"

namespace moe {

// Adds every tensor of one file to the index. Anything that breaks a rule of the format is
// MOE_ERROR_CORRUPT_FILE.
void read_safetensors(std::pmr::memory_resource& memory, const File& source, uint32_t file,
                      TensorIndex& index);

// model.safetensors.index.json.
struct ShardIndex {
    struct Place {
        std::pmr::string tensor;
        uint32_t shard;
    };
    std::pmr::vector<std::pmr::string> shards;  // plain file names, each once
    std::pmr::vector<Place> places;             // sorted by tensor
};
ShardIndex read_shard_index(std::pmr::memory_resource& memory, std::string_view text,
                            std::string_view file_name);
// Every tensor of the shard index must lie in the shard that it names; files[i] is shards[i].
void check_shard_index(const ShardIndex& shards, const TensorIndex& index,
                       std::string_view index_name);

}  // namespace moe
