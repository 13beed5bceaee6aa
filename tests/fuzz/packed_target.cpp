// A file of packed weights: its head, its checksums, and the block that comes of it. It is opened
// for the layer that it says it is of, which is what moe_weights_open does with a plan for a GPU.
// Where it is for the CPU, every row is decoded.
#include <algorithm>
#include <cstring>

#include "libmoe/base/checksum.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/weights/host_block.hpp"
#include "libmoe/weights/packed_file.hpp"
#include "tests/fuzz/memory_file.hpp"
#include "tests/fuzz/packed_layer.hpp"
#include "tests/fuzz/targets.hpp"

namespace moe_fuzz {
namespace {

// The fields of the header: where they are, and how long.
struct Field {
    size_t offset, bytes;
};
constexpr Field fields[] = {{0, 8},  {8, 4},  {12, 4},   {16, 16},  {32, 8},  {40, 8},
                            {48, 8}, {56, 8}, {64, 288}, {352, 16}, {368, 4}, {372, 140}};
constexpr size_t head_bytes = 512, id_offset = 16;
constexpr size_t block_offset = 4096;

uint64_t checksum(const std::string& bytes, size_t begin, size_t count) {
    return moe::checksum_of(reinterpret_cast<const std::byte*>(bytes.data()) + begin, count);
}

void put(std::string& bytes, size_t offset, uint64_t value, size_t n = 8) {
    std::memcpy(bytes.data() + offset, &value, std::min<size_t>(n, 8));
}

// The one chunk, then the head with it.
void mend_checksums(std::string& bytes) {
    if (bytes.size() < block_offset) return;
    put(bytes, head_bytes, checksum(bytes, block_offset, bytes.size() - block_offset));
    put(bytes, 56, 0);
    put(bytes, 56, checksum(bytes, 0, block_offset));
}

void open(const MemoryFile& file, PackedLayer& layer) {
    moe_weights& weights = layer.packed.handle;
    const uint64_t n = weights.placement.bytes;
    static std::vector<std::byte> staging(2 * moe::stage_bytes_of(n));
    const moe::PackedFile opened(weights.runtime->memory, file.path(), weights.layout, n);
    moe::SerialTeam team;
    opened.load(weights, layer.packed.block, staging.data(), team);
}

// Opens a file for the CPU and decodes its weights.
void open_on_host(const MemoryFile& file, const HostLayer& layer) {
    moe_runtime* runtime = &*layer.plan->runtime;
    const moe::NewWeights weights(moe::open_host_weights(runtime, layer.plan->layout, file.path()));
    std::vector<float> values;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i)
        for (const moe::Matrix& matrix : weights->resident.matrices[static_cast<moe_role>(i)]) {
            values.resize(static_cast<size_t>(matrix.columns));
            for (int64_t row = 0; row < matrix.rows; ++row)
                moe::cpu::decode_row(matrix, row, values.data());
        }
}

bool is_of(const moe::WeightsLayout& layout, std::string_view input) {
    const auto& id = layout.id;
    return input.size() >= id_offset + id.size() &&
           std::memcmp(input.data() + id_offset, id.data(), id.size()) == 0;
}
PackedLayer& layer_of(PackedLayers& layers, std::string_view input) {
    return is_of(layers.hash.packed.handle.layout, input) ? layers.hash : layers.small;
}

}  // namespace

void run_packed(std::string_view input) {
    static PackedLayers layers;
    static MemoryFile file;
    PackedLayer& layer = layer_of(layers, input);
    const bool is_of_host = is_of(layers.host.plan->layout, input);
    file.write(input);
    bool is_open = false;
    auto read = [&] {
        try {
            if (is_of_host) return open_on_host(file, layers.host);
            open(file, layer);
            is_open = true;
        } catch (const moe::Error& error) {
            if (error.status() != MOE_ERROR_LAYOUT_MISMATCH) throw;
            promise(std::string_view(error.what()).find(file.name()) != std::string_view::npos,
                    "the sentence does not name the file", error.what());
            refused(error.what());
        }
    };
    survives(read, file.name());
    if (!is_open) return;
    promise(input.size() == block_offset + layer.packed.handle.placement.bytes &&
                std::memcmp(layer.packed.block.base(), input.data() + block_offset,
                            input.size() - block_offset) == 0,
            "the block is not what the file holds");
}

std::string mutate_packed(std::string_view input, Random& random) {
    std::string bytes(input);
    switch (random.below(5)) {
        case 0: {
            const Field& field = random.pick(fields);
            if (bytes.size() < field.offset + field.bytes) break;
            put(bytes, field.offset, random.interesting(), field.bytes);
            break;
        }
        case 1:
            bytes.resize(std::min<uint64_t>(random.interesting(), 65536));
            break;
        case 2:
            bytes.resize(bytes.size() + random.below(65) - std::min<size_t>(bytes.size(), 32));
            break;
        default:
            mutate_bytes(bytes, random);
    }
    if (!random.one_in(4)) mend_checksums(bytes);
    return bytes;
}

}  // namespace moe_fuzz
