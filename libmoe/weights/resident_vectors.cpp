// A vector is decoded whole and its slice copied, because a fused bias interleaves gate and up.
#include "libmoe/weights/resident_vectors.hpp"

#include "libmoe/weights/hash_table.hpp"
#include "libmoe/weights/view.hpp"

namespace moe {
namespace {

// Returns the column of feature i of one half in a fused bias.
int64_t fused_column(moe_gate_up_order order, bool up, int64_t i, int64_t n) {
    if (order == MOE_GATE_UP_INTERLEAVED) return 2 * i + up;
    return up == (order == MOE_GATE_UP_GATE_FIRST) ? n + i : i;
}

}  // namespace

void ResidentVectors::set(const moe_tensor& tensor, const TensorPart& part) {
    if (part.role == MOE_ROLE_HASH_TABLE) return read_hash_table(tensor, resident_.hash_table);
    row_.resize(static_cast<size_t>(tensor.columns));
    part.matrix.traits->decode(part.matrix, 0, 0, tensor.columns, row_.data());
    const WeightsLayout::Part p = layout_.part(part.role);
    auto& vector = resident_.vectors[part.role];
    vector.resize(static_cast<size_t>(layout_.count(part.role) * p.columns));
    float* out = vector.data() + part.index * p.columns;
    const int64_t n = tensor.columns / 2;
    for (int64_t i = 0; i < p.columns; ++i) {
        const int64_t feature = p.column + i;
        const int64_t column =
            is_fused(tensor.role) ? fused_column(tensor.gate_up_order, is_up(part.role), feature, n)
                                  : feature;
        out[i] = row_[static_cast<size_t>(column)];
    }
}

}  // namespace moe
