// Matrices as torchao takes its tensors apart for safetensors: `module._weight_qdata` for
// `module.weight`, with `_weight_scale` and what else a tensor has beside it. The header's metadata
// names the class, and is not read: what types and shapes leave open is refused.
//   Float8Tensor                            qdata F8_E4M3, scale F32, F16 or BF16
//   Int8Tensor, IntxUnpackedToInt8Tensor    qdata I8, the same scale, zero_point I8 of zeros
// A scale has the dimensions of the matrix, each divided by that of a block.
#include <algorithm>

#include "libmoe/base/fmt.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {

std::string LayerBuilder::torchao_name(std::string_view name, std::string_view part) {
    const size_t dot = name.rfind('.');
    const size_t begin = dot == name.npos ? 0 : dot + 1;
    return fmt::format("{}_{}_{}", name.substr(0, begin), name.substr(begin), part);
}

// Zeros, which symmetric quantisation writes, say nothing.
void LayerBuilder::check_torchao_zeros(std::string_view name) {
    const TensorEntry* zeros = find(torchao_name(name, "zero_point"));
    if (!zeros) return;
    read_.push_back(zeros);
    if (!is_all_zero(*zeros))
        fail_entry(MOE_ERROR_UNSUPPORTED, *zeros,
                   "zero points of torchao other than zero are not read");
}

void LayerBuilder::add_torchao(const WeightName& of, const TensorEntry& entry,
                               const Wanted& wanted) {
    const moe_type type = entry.element->type;
    if (type != MOE_TYPE_F8_E4M3 && type != MOE_TYPE_I8)
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("torchao's codes of type {} are not read, those of F8_E4M3 and I8 "
                               "are",
                               entry.type_name()));
    const TensorEntry& scales = get(torchao_name(of.name, "scale"));
    const moe_type scale_type = scales.element->type;
    if (scale_type != MOE_TYPE_F32 && scale_type != MOE_TYPE_F16 && scale_type != MOE_TYPE_BF16)
        fail_entry(MOE_ERROR_UNSUPPORTED, scales,
                   fmt::format("torchao's scales of type {} are not read: they may lie in tiles",
                               scales.type_name()));
    check_not_transposed(entry, wanted);
    check_matrix(entry, wanted, wanted.rows, wanted.columns);
    if (const TensorEntry* factors = find(torchao_name(of.name, "act_pre_scale")))
        fail_beside(*factors, "torchao's codes");
    check_torchao_zeros(of.name);
    const auto counts = scales.dims().last(std::min<size_t>(scales.rank, 2));
    if (counts.size() < 2 || counts[0] < 1 || counts[1] < 1 || wanted.rows % counts[0] != 0 ||
        wanted.columns % counts[1] != 0)
        fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
                   fmt::format("has shape {}, which divides {} into no blocks",
                               shape_text(scales.dims()), shape_text(entry.dims())));
    check_matrix(scales, wanted, counts[0], counts[1]);
    const auto extent = [](int64_t size, int64_t count) {
        return count == 1 ? -1 : static_cast<int32_t>(size / count);
    };
    const int32_t group_rows = extent(wanted.rows, counts[0]);
    if (wanted.role == MOE_ROLE_GATE_UP && wanted.rows / 2 % std::max(group_rows, 1) != 0)
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("a block of {} rows has rows of gate and of up", group_rows));
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(type);
    tensor.format.group_rows = group_rows;
    tensor.format.group_columns = extent(wanted.columns, counts[1]);
    if (type == MOE_TYPE_F8_E4M3) {
        tensor.format.scale_type = scale_type;
        return set_scales(tensor, scales);
    }
    const auto n = static_cast<int64_t>(scales.bytes) / element_bytes(scale_type);
    tensor.format.scale_type = MOE_TYPE_F32;
    tensor.tensor.scales = read_floats(scales, n);
    tensor.tensor.scale_bytes = static_cast<uint64_t>(n) * sizeof(float);
}

}  // namespace moe
