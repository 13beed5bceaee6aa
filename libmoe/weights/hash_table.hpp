// The table of a layer that routes by token ids: int32 or int64 expert ids, dense, in host memory.
#pragma once

#include <memory_resource>
#include <vector>

#include "libmoe/layer/layer.hpp"

namespace moe {

// Fails unless the tensor is such a table and its ids are of experts of the layer.
void check_hash_table(const moe_tensor& tensor, const Layer& layer);
// Copies a table that has been checked.
void read_hash_table(const moe_tensor& tensor, std::pmr::vector<int32_t>& out);

}  // namespace moe
