// Checks every entry of a hash table before it is kept.
#include "libmoe/weights/hash_table.hpp"

#include <cstring>

#include "libmoe/base/error.hpp"
#include "libmoe/weights/view.hpp"

namespace moe {
namespace {

uint64_t entries_of(const moe_tensor& hash_table) {
    return static_cast<uint64_t>(hash_table.rows) * static_cast<uint64_t>(hash_table.columns);
}

// Entry i of a dense table of int32 or int64.
int64_t hash_entry(const moe_tensor& hash_table, uint64_t i) {
    const auto* bytes = static_cast<const std::byte*>(hash_table.data);
    if (hash_table.format->type == MOE_TYPE_I64) {
        int64_t id;
        std::memcpy(&id, bytes + i * sizeof id, sizeof id);
        return id;
    }
    int32_t id;
    std::memcpy(&id, bytes + i * sizeof id, sizeof id);
    return id;
}

void check_description(const moe_tensor& tensor) {
    const moe_type type = tensor.format->type;
    require(type == MOE_TYPE_I32 || type == MOE_TYPE_I64,
            "tensor hash_table: type is {}, not i32 or i64", type_name(type));
    require(same_format(*tensor.format, format_of(type)),
            "tensor hash_table: the format is {}, it must have a type alone",
            format_name(*tensor.format).text);
    require(tensor.orientation == MOE_ORIENTATION_OUT_IN,
            "tensor hash_table: orientation is {}, must be OUT_IN",
            static_cast<int32_t>(tensor.orientation));
    check_nothing_unused(tensor, "tensor hash_table");
    if (tensor.space == MOE_SPACE_DEVICE)
        fail(MOE_ERROR_UNSUPPORTED, "tensor hash_table: space is DEVICE, must be HOST or PINNED");
}

void check_data(const moe_tensor& tensor) {
    const int64_t size = tensor.format->type == MOE_TYPE_I64 ? 8 : 4;
    const uint64_t bytes = entries_of(tensor) * static_cast<uint64_t>(size);
    require(tensor.data != nullptr, "tensor hash_table: data is NULL");
    require(tensor.row_stride == 0 || tensor.row_stride == tensor.columns * size,
            "tensor hash_table: row_stride is {}, it must be dense", tensor.row_stride);
    require(tensor.data_bytes >= bytes, "tensor hash_table: data has {} bytes, needs {}",
            tensor.data_bytes, bytes);
}

}  // namespace

void check_hash_table(const moe_tensor& tensor, const Layer& layer) {
    check_description(tensor);
    check_data(tensor);
    const int64_t n_experts = layer.n_experts_all();
    const uint64_t n = entries_of(tensor);
    for (uint64_t i = 0; i < n; ++i) {
        const int64_t id = hash_entry(tensor, i);
        require(id >= 0 && id < n_experts,
                "tensor hash_table: entry {} is {}, there are {} experts", i, id, n_experts);
    }
}

void read_hash_table(const moe_tensor& tensor, std::pmr::vector<int32_t>& out) {
    out.resize(entries_of(tensor));
    for (uint64_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(hash_entry(tensor, i));
}

}  // namespace moe
