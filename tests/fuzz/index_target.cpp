// The reader of model.safetensors.index.json.
#include <nlohmann/json.hpp>

#include "libmoe/checkpoint/safetensors.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/targets.hpp"

namespace moe_fuzz {
namespace {

constexpr std::string_view file_name = "model.safetensors.index.json";
constexpr std::string_view index_words[] = {"weight_map",
                                            "metadata",
                                            "total_size",
                                            "a.safetensors",
                                            "model-00001-of-00002.safetensors",
                                            "../a.safetensors",
                                            "/etc/passwd",
                                            "a/b",
                                            "..",
                                            ".",
                                            "model.layers.0.mlp.gate.weight"};

void check(const moe::ShardIndex& index) {
    promise(!index.places.empty() && !index.shards.empty(), "an index of nothing");
    for (const std::pmr::string& shard : index.shards) {
        promise(shard.find_first_of(std::string_view("/\\\0", 3)) == shard.npos && shard != ".." &&
                    shard != "." && !shard.empty(),
                "a shard elsewhere", shard);
    }
    for (size_t i = 0; i < index.places.size(); ++i) {
        promise(index.places[i].shard < index.shards.size(), "a shard that is not there",
                index.places[i].tensor);
        promise(i == 0 || index.places[i - 1].tensor < index.places[i].tensor, "a tensor twice",
                index.places[i].tensor);
    }
}

}  // namespace

void run_index(std::string_view input) {
    std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
    auto read = [&] {
        const moe::ShardIndex index = moe::read_shard_index(memory, input, file_name);
        check(index);
        // No tensor is where it should be in a checkpoint that has none.
        moe::check_shard_index(index, moe::TensorIndex(memory), file_name);
    };
    promise(!survives(read, file_name), "an index of tensors that are not there was taken");
}

std::string mutate_index(std::string_view input, Random& random) {
    return mutate_json(input, index_words, random);
}

}  // namespace moe_fuzz
