// Files of packed weights, as the library saves them.
#include "libmoe/weights/load.hpp"
#include "libmoe/weights/packed_file_header.hpp"
#include "libmoe/weights/packed_file_writer.hpp"
#include "tests/fuzz/packed_layer.hpp"
#include "tests/fuzz/seeds.hpp"

namespace moe_fuzz {
namespace {

void save_packed(const Seeds& seeds, const char* name, PackedLayer& layer,
                 const std::vector<const moe_tensor*>& tensors) {
    layer.packed.load(tensors);
    std::vector<std::byte> staging(moe::stage_bytes_of(layer.packed.handle.placement.bytes));
    moe::SerialTeam team;
    moe::save_block(layer.packed.handle, layer.packed.block, staging.data(), team,
                    seeds.place("packed", name));
}

}  // namespace

void add_packed(const Seeds& seeds) {
    PackedLayers layers;
    save_packed(seeds, "small", layers.small, layers.small.layer.tensors);

    auto desc = moe_test::sized<moe_weights_desc>();
    desc.tensors = layers.host.layer.tensors.data();
    desc.n_tensors = static_cast<uint32_t>(layers.host.layer.tensors.size());
    moe_weights* weights = nullptr;
    EXPECT_MOE_OK(moe_weights_load(layers.host.plan.get(), &desc, &weights));
    moe::save_weights(*weights, seeds.place("packed", "host"));
    moe_weights_destroy(weights);

    const moe::test::HashTable table(6, 1, {0, 1, 1, 0, 0, 1});
    auto tensors = layers.hash.layer.tensors;
    tensors.push_back(&table.tensor);
    save_packed(seeds, "hash_table", layers.hash, tensors);
}

}  // namespace moe_fuzz
