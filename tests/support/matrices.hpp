// Random weight tensors in every format, with strides and stacks as callers have them, and whole
// layers made of them; each knows its decoded values. Buffers have exactly the bytes that
// moe_tensor says, so that a sanitizer sees a read too many.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "libmoe/base/element.hpp"
#include "libmoe/layer/layer.hpp"
#include "tests/formats/matrices.hpp"
#include "tests/support/api.hpp"

namespace moe::test {

// How a stack of matrices lies in memory; paddings are bytes.
struct Placing {
    int64_t row_padding = 0;
    int64_t scale_row_padding = 0;
    int64_t expert_padding = 0;
    bool transposed = false;
    bool by_table = false;          // pointer tables instead of strides
    bool one_global_scale = false;  // instead of one per expert
};

class TensorStack {
  public:
    // n_experts 0: a single tensor of a role without experts.
    TensorStack(const FormatTraits& traits, int64_t n_experts, int64_t rows, int64_t columns,
                const Placing& placing = {}, uint64_t seed = 1, float scale = 1.0f)
        : format_(traits.format), placing_(placing) {
        format_.struct_size = sizeof format_;
        const int64_t n = std::max<int64_t>(n_experts, 1);
        make_codebook(traits);
        std::vector<Stored> experts;
        for (int64_t e = 0; e < n; ++e)
            experts.push_back(make(traits, rows, columns, seed + 977 * e, scale));
        for (Stored& one : experts) {
            if (placing.one_global_scale) one.global_scale = experts[0].global_scale;
            global_scales_.push_back(one.global_scale);
            values_.push_back(decode_all(one));
        }
        place_data(experts);
        place_scales(experts);
        describe(n_experts, rows, columns);
    }
    TensorStack(const TensorStack&) = delete;  // tensor points into it
    TensorStack& operator=(const TensorStack&) = delete;

    moe_tensor tensor = moe_test::sized<moe_tensor>();

    const moe_format& format() const { return format_; }
    const std::vector<float>& values(int64_t expert = 0) const {
        return values_[static_cast<size_t>(expert)];
    }
    float at(int64_t expert, int64_t row, int64_t column) const {
        return values(expert)[static_cast<size_t>(row * tensor.columns + column)];
    }
    // Makes whatever the tensor points to worthless, as a caller may once a copy is taken.
    void scribble() {
        for (auto* bytes : {&data_, &scales_})
            std::fill(bytes->begin(), bytes->end(), std::byte{0x5A});
        for (auto& own : tables_bytes_) std::fill(own.begin(), own.end(), std::byte{0x5A});
        std::fill(codebook_.begin(), codebook_.end(), 1e9f);
        std::fill(global_scales_.begin(), global_scales_.end(), 1e9f);
    }
    // One expert of the stack as a tensor of its own.
    moe_tensor single(int32_t expert) const {
        moe_tensor one = tensor;
        one.expert = expert;
        one.n_experts = 0;
        const auto at = [&](const void* base, const void* const* table, int64_t stride) {
            return table  ? table[expert]
                   : base ? static_cast<const std::byte*>(base) + expert * stride
                          : nullptr;
        };
        one.data = at(tensor.data, tensor.data_per_expert, data_expert_);
        one.scales = at(tensor.scales, tensor.scales_per_expert, scale_expert_);
        one.data_per_expert = one.scales_per_expert = nullptr;
        one.expert_stride = one.scale_expert_stride = 0;
        one.data_bytes = data_extent_;
        one.scale_bytes = scale_extent_;
        if (one.global_scale) {
            one.global_scale = &global_scales_[static_cast<size_t>(expert)];
            one.n_global_scales = 1;
        }
        return one;
    }

  private:
    void make_codebook(const FormatTraits& traits) {
        if (traits.format.codebook != MOE_CODEBOOK_GIVEN) return;
        const int n = 1 << traits.format.bits;
        for (int i = 0; i < n; ++i)
            codebook_.push_back(-0.9f + 1.7f * static_cast<float>(i) / static_cast<float>(n - 1));
    }

    Stored make(const FormatTraits& traits, int64_t rows, int64_t columns, uint64_t seed,
                float scale) {
        Stored stored(traits, rows, columns);
        stored.codebook = codebook_;
        if (!traits.encode && !stored.scales.empty()) {
            fill_grid(stored, seed, scale);
            return stored;
        }
        if (!traits.encode) {
            fill_blocks(stored, seed, scale);
            return stored;
        }
        auto source = gaussian(rows * columns, seed);
        for (float& value : source) value *= scale;
        stored.encode(source.data());
        return stored;
    }

    // Formats that are only read: random codes, under f16 fields that leave values of about scale.
    static void fill_blocks(Stored& stored, uint64_t seed, float scale) {
        stored.data = random_bytes(stored.bytes.data, seed);
        const auto block = static_cast<size_t>(stored.traits->block_bytes);
        for (size_t i = 0; i < stored.data.size(); i += block)
            for (const size_t place : f16_places(stored.traits->format))
                store(stored.data.data() + i + place, float_to_f16(scale * 0.01f));
    }

    // Of int8: random codes under float32 scales.
    static void fill_grid(Stored& stored, uint64_t seed, float scale) {
        stored.data = random_bytes(stored.bytes.data, seed);
        const auto scales = gaussian(static_cast<int64_t>(stored.scales.size() / 4), seed + 1);
        for (size_t i = 0; i < scales.size(); ++i)
            store(stored.scales.data() + 4 * i, scales[i] * scale * 0.01f);
    }

    // Rows of `row_bytes` from dense to strided memory.
    static void spread(const std::byte* from, int64_t rows, int64_t row_bytes, int64_t stride,
                       std::byte* to) {
        for (int64_t r = 0; r < rows; ++r)
            std::memcpy(to + r * stride, from + r * row_bytes, static_cast<size_t>(row_bytes));
    }

    void place_data(std::vector<Stored>& experts) {
        const Stored& first = experts[0];
        int64_t rows = first.rows, row_bytes = static_cast<int64_t>(first.bytes.row_stride);
        if (placing_.transposed) {
            for (Stored& one : experts) one.data = turned(one);
            rows = first.columns;
            row_bytes = first.rows * element_bytes(format_.type);
        }
        tensor.row_stride = placing_.row_padding ? row_bytes + placing_.row_padding : 0;
        const int64_t stride = row_bytes + placing_.row_padding;
        data_extent_ = static_cast<uint64_t>((rows - 1) * stride + row_bytes);
        put(experts, data_, data_table_, data_extent_, data_expert_,
            [&](const Stored& one, std::byte* to) {
                spread(one.data.data(), rows, row_bytes, stride, to);
            });
    }

    void place_scales(std::vector<Stored>& experts) {
        const Stored& first = experts[0];
        if (first.scales.empty()) return;
        const auto row_bytes = static_cast<int64_t>(first.bytes.scale_row_stride);
        const auto rows = static_cast<int64_t>(first.bytes.scales) / row_bytes;
        tensor.scale_row_stride =
            placing_.scale_row_padding ? row_bytes + placing_.scale_row_padding : 0;
        const int64_t stride = row_bytes + placing_.scale_row_padding;
        scale_extent_ = static_cast<uint64_t>((rows - 1) * stride + row_bytes);
        put(experts, scales_, scale_table_, scale_extent_, scale_expert_,
            [&](const Stored& one, std::byte* to) {
                spread(one.scales.data(), rows, row_bytes, stride, to);
            });
    }

    template <class Copy>
    void put(const std::vector<Stored>& experts, std::vector<std::byte>& all,
             std::vector<const void*>& table, uint64_t extent, int64_t& expert_stride, Copy copy) {
        expert_stride = static_cast<int64_t>(extent) + placing_.expert_padding;
        if (placing_.by_table) {
            for (const Stored& one : experts) {
                copy(one, tables_bytes_.emplace_back(extent).data());
                table.push_back(tables_bytes_.back().data());
            }
            return;
        }
        // What lies between rows and experts is no scale and no code of theirs.
        all.resize(extent + (experts.size() - 1) * static_cast<uint64_t>(expert_stride),
                   std::byte{0x5A});
        for (size_t e = 0; e < experts.size(); ++e)
            copy(experts[e], all.data() + static_cast<int64_t>(e) * expert_stride);
    }

    std::vector<std::byte> turned(const Stored& one) const {
        std::vector<std::byte> out(one.data.size());
        const auto size = static_cast<size_t>(element_bytes(format_.type));
        for (size_t r = 0; r < static_cast<size_t>(one.rows); ++r)
            for (size_t k = 0; k < static_cast<size_t>(one.columns); ++k)
                std::memcpy(&out[(k * static_cast<size_t>(one.rows) + r) * size],
                            &one.data[(r * static_cast<size_t>(one.columns) + k) * size], size);
        return out;
    }

    void describe(int64_t n_experts, int64_t rows, int64_t columns) {
        tensor.expert = MOE_ALL_EXPERTS;
        tensor.format = &format_;
        tensor.n_experts = n_experts;
        tensor.rows = rows;
        tensor.columns = columns;
        if (placing_.transposed) tensor.orientation = MOE_ORIENTATION_IN_OUT;
        if (placing_.by_table) {
            tensor.data_per_expert = data_table_.data();
            if (!scale_table_.empty()) tensor.scales_per_expert = scale_table_.data();
            tensor.data_bytes = data_extent_;
            tensor.scale_bytes = scale_extent_;
        } else {
            tensor.data = data_.data();
            tensor.data_bytes = data_.size();
            tensor.scales = scales_.empty() ? nullptr : scales_.data();
            tensor.scale_bytes = scales_.size();
            if (placing_.expert_padding) tensor.expert_stride = data_expert_;
            if (placing_.expert_padding && tensor.scales)
                tensor.scale_expert_stride = scale_expert_;
        }
        if (format_.global_scale != MOE_GLOBAL_SCALE_NONE) {
            tensor.global_scale = global_scales_.data();
            tensor.n_global_scales =
                placing_.one_global_scale ? 1 : static_cast<int64_t>(global_scales_.size());
        }
        tensor.codebook = codebook_.empty() ? nullptr : codebook_.data();
        tensor.codebook_bytes = codebook_.size() * sizeof(float);
    }

    moe_format format_;
    Placing placing_;
    std::vector<std::vector<float>> values_;
    std::vector<std::byte> data_, scales_;
    std::vector<std::vector<std::byte>> tables_bytes_;
    std::vector<const void*> data_table_, scale_table_;
    std::vector<float> codebook_, global_scales_;
    uint64_t data_extent_ = 0, scale_extent_ = 0;
    int64_t data_expert_ = 0, scale_expert_ = 0;
};

// Grids of scales with one row of them: they have no name of their own.
inline std::vector<FormatTraits> make_one_row_grids() {
    const auto grid = [](const char* name, moe_type type, int32_t columns, moe_type scales) {
        moe_format format = format_of(type);
        format.group_rows = -1;
        format.group_columns = columns;
        format.scale_type = scales;
        FormatTraits traits = *find_format(format);
        traits.name = name;
        traits.format = format;
        return traits;
    };
    return {grid("fp8_per_tensor", MOE_TYPE_F8_E4M3, -1, MOE_TYPE_F32),
            grid("fp8_per_32_columns", MOE_TYPE_F8_E4M3, 32, MOE_TYPE_BF16),
            grid("int8_per_tensor", MOE_TYPE_I8, -1, MOE_TYPE_F32),
            grid("int8_per_64_columns", MOE_TYPE_I8, 64, MOE_TYPE_F32)};
}
inline const std::vector<FormatTraits>& one_row_grids() {
    static const std::vector<FormatTraits> grids = make_one_row_grids();
    return grids;
}

inline const FormatTraits& format_named(const char* name) {
    for (const FormatTraits& grid : one_row_grids())
        if (std::strcmp(grid.name, name) == 0) return grid;
    return *find_format(name);
}

// The formats of a layer's tensors and how they lie, before they are made.
struct LayerChoices {
    const char* everywhere = "f32";
    std::map<moe_role, const char*> formats = {};  // of matrices
    std::map<moe_role, Placing> placings = {};
    moe_gate_up_order fused = MOE_GATE_UP_NONE;  // of gate and up, and their biases
    uint64_t seed = 1;
};

// The elements of one role in the tensor that has them, which may be fused.
struct RoleValues {
    struct Places {
        int64_t first = 0, step = 1;
    };
    const TensorStack& stack;
    Places rows{}, columns{};

    float at(int64_t expert, int64_t row, int64_t column) const {
        return stack.at(expert, rows.first + rows.step * row,
                        columns.first + columns.step * column);
    }
};

// Every tensor of a layer, stacked.
class LayerTensors {
  public:
    explicit LayerTensors(const moe_layer_desc& desc, const LayerChoices& choices = {})
        : layer(make_layer(desc)), choices_(choices) {
        for (int i = 1; i < MOE_ROLE_COUNT; ++i) add(static_cast<moe_role>(i));
        for (auto& [role, stack] : stacks_) tensors.push_back(&stack->tensor);
    }

    const Layer layer;
    std::vector<const moe_tensor*> tensors;
    const moe_format* formats[MOE_ROLE_COUNT] = {};

    bool has(moe_role role) const { return stacks_.count(role) != 0; }
    TensorStack& stack(moe_role role) { return *stacks_.at(role); }
    const TensorStack& stack(moe_role role) const { return *stacks_.at(role); }
    // The elements of an unfused role, wherever its tensor has them.
    RoleValues values(moe_role role) const {
        const moe_role fused = fused_of(role);
        if (fused == role || !has(fused)) return {stack(role)};
        const bool up =
            role == MOE_ROLE_UP || role == MOE_ROLE_UP_BIAS || role == MOE_ROLE_SHARED_UP;
        const bool bias = fused == MOE_ROLE_GATE_UP_BIAS;
        const auto shape = layer.role_shape(role);
        RoleValues values{stack(fused)};
        (bias ? values.columns : values.rows) =
            choices_.fused == MOE_GATE_UP_INTERLEAVED
                ? RoleValues::Places{up, 2}
                : RoleValues::Places{up == (choices_.fused == MOE_GATE_UP_GATE_FIRST)
                                         ? bias ? shape.columns : shape.rows
                                         : 0,
                                     1};
        return values;
    }

  private:
    static moe_role fused_of(moe_role role) {
        if (role == MOE_ROLE_GATE || role == MOE_ROLE_UP) return MOE_ROLE_GATE_UP;
        if (role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_UP_BIAS) return MOE_ROLE_GATE_UP_BIAS;
        if (role == MOE_ROLE_SHARED_GATE || role == MOE_ROLE_SHARED_UP)
            return MOE_ROLE_SHARED_GATE_UP;
        return role;
    }
    const char* format_of(moe_role role) const {
        const auto own = choices_.formats.find(role);
        return own != choices_.formats.end() ? own->second
               : is_matrix_role(role)        ? choices_.everywhere
                                             : "f32";
    }

    void add(moe_role role) {
        if (role == MOE_ROLE_HASH_TABLE || role == MOE_ROLE_GATE_UP ||
            role == MOE_ROLE_GATE_UP_BIAS || role == MOE_ROLE_SHARED_GATE_UP ||
            !layer.has_role(role))
            return;
        const FormatTraits& traits = format_named(format_of(role));
        const moe_role stored = choices_.fused ? fused_of(role) : role;
        if (!has(stored)) {
            const auto shape = layer.role_shape(role);
            const bool fused = stored != role, bias = stored == MOE_ROLE_GATE_UP_BIAS;
            const auto placing = choices_.placings.find(stored);
            // Matrices keep the size of what goes through them; vectors are small beside it.
            const float scale =
                is_matrix_role(role) ? 1.0f / std::sqrt(static_cast<float>(shape.columns)) : 0.3f;
            auto stack = std::make_unique<TensorStack>(
                traits, is_expert_role(role) ? layer.n_experts : 0,
                shape.rows * (fused && !bias ? 2 : 1), shape.columns * (fused && bias ? 2 : 1),
                placing == choices_.placings.end() ? Placing{} : placing->second,
                choices_.seed * 7919 + static_cast<uint64_t>(stored) * 131, scale);
            stack->tensor.role = stored;
            if (fused) stack->tensor.gate_up_order = choices_.fused;
            stacks_[stored] = std::move(stack);
        }
        if (is_matrix_role(role)) formats[role] = &stacks_[stored]->format();
    }

    LayerChoices choices_;
    std::map<moe_role, std::unique_ptr<TensorStack>> stacks_;
};

// A plain layer to change: gated SiLU experts behind a softmax router.
inline moe_layer_desc plain_layer(int32_t hidden, int32_t intermediate, int32_t n_experts,
                                  int32_t top_k) {
    auto desc = moe_test::sized<moe_layer_desc>();
    desc.hidden = hidden;
    desc.intermediate = intermediate;
    desc.n_experts = n_experts;
    desc.top_k = top_k;
    desc.has_router = 1;
    desc.score = MOE_SCORE_SOFTMAX;
    desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    desc.activation = MOE_ACTIVATION_SILU;
    desc.is_gated = 1;
    return desc;
}

}  // namespace moe::test
