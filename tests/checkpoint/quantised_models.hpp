// Matrices in the spellings of the tools that quantise, in small: each takes the place of the
// matrix `stem` + ".weight" of a model.
#pragma once

#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/models.hpp"

namespace moe::test {

// An up matrix: 32 rows, 64 columns.
inline const std::string up = mlp0 + "experts.1.up_proj";

inline void add_ints(Model& model, const std::string& name, const std::vector<int32_t>& values) {
    std::string bytes;
    for (const int32_t value : values) bytes += raw(value);
    model.tensors[name] = {"I32", {static_cast<int64_t>(values.size())}, bytes};
}

inline void add_floats(Model& model, const std::string& name, const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) bytes += raw(value);
    model.tensors[name] = {"F32", {static_cast<int64_t>(values.size())}, bytes};
}

// Columns that share a scale.
constexpr int64_t small_group = 16;

inline std::vector<int32_t> small_groups(int64_t columns, bool is_permuted) {
    std::vector<int32_t> index;
    for (int64_t k = 0; k < columns; ++k)
        index.push_back(static_cast<int32_t>((is_permuted ? columns - 1 - k : k) / small_group));
    return index;
}

struct SpelledMatrix {
    Model& model;
    std::string stem;
    int64_t rows, columns;

    int64_t groups() const { return columns / small_group; }

    void gptq(int64_t bits, bool is_permuted) const {
        model.tensors.erase(stem + ".weight");
        model.add(stem + ".qweight", "I32", {columns * bits / 32, rows});
        model.add(stem + ".qzeros", "I32", {groups(), rows * bits / 32});
        model.add(stem + ".scales", "F16", {groups(), rows});
        add_ints(model, stem + ".g_idx", small_groups(columns, is_permuted));
    }
    void awq() const {
        model.tensors.erase(stem + ".weight");
        model.add(stem + ".qweight", "I32", {columns, rows / 8});
        model.add(stem + ".qzeros", "I32", {groups(), rows / 8});
        model.add(stem + ".scales", "F16", {groups(), rows});
    }
    // compressed-tensors' pack-quantized.
    void packed(int64_t bits, bool has_zeros) const {
        model.tensors.erase(stem + ".weight");
        model.add(stem + ".weight_packed", "I32", {rows, columns * bits / 32});
        model.add(stem + ".weight_scale", "BF16", {rows, groups()});
        model.tensors[stem + ".weight_shape"] = {"I64", {2}, raw(rows) + raw(columns)};
        if (!has_zeros) return;
        model.add(stem + ".weight_zero_point", "I32", {rows * bits / 32, groups()});
        add_ints(model, stem + ".weight_g_idx", small_groups(columns, true));
    }
    void packed_of_one_scale() const {
        packed(8, false);
        model.add(stem + ".weight_scale", "F32", {1});
    }
    // compressed-tensors' nvfp4-pack-quantized.
    void packed_nvfp4() const {
        model.tensors.erase(stem + ".weight");
        model.add(stem + ".weight_packed", "U8", {rows, columns / 2});
        model.add(stem + ".weight_scale", "F8_E4M3", {rows, columns / 16});
        add_floats(model, stem + ".weight_global_scale", {8.0f});
        add_floats(model, stem + ".input_global_scale", {4.0f});
    }
    // ModelOpt's; DeepSeek-V4 calls the scales `scale`.
    void mxfp4(const char* type, const char* scale) const {
        model.add(stem + ".weight", type, {rows, columns / 2});
        model.add(stem + scale, "F8_E8M0", {rows, columns / 32});
    }
    void fp8(const char* scale_type, const Shape& scale_shape) const {
        model.add(stem + ".weight", "F8_E4M3", {rows, columns});
        model.add(stem + ".weight_scale", scale_type, scale_shape);
    }
    // bitsandbytes.
    void int8() const {
        model.add(stem + ".weight", "I8", {rows, columns});
        add_floats(model, stem + ".SCB", std::vector<float>(static_cast<size_t>(rows), 2.0f));
    }
    void four_bits(bool is_nf4, bool is_nested, std::string_view state) const {
        const std::string weight = stem + ".weight";
        const int64_t blocks = rows * columns / 64;
        moe_format format{};
        format.type = MOE_TYPE_CODEBOOK;
        format.codebook = is_nf4 ? MOE_CODEBOOK_BNB_NF4 : MOE_CODEBOOK_BNB_FP4;
        const float* table = builtin_codebook(format);
        model.add(weight, "U8", {rows * columns / 2, 1});
        model.add(weight + ".absmax", is_nested ? "U8" : "F32", {blocks});
        add_floats(model, weight + ".quant_map", {table, table + 16});
        if (is_nested) {
            add_floats(model, weight + ".nested_absmax", {0.5f});
            add_floats(model, weight + ".nested_quant_map", std::vector<float>(256, 0.25f));
        }
        model.tensors[weight + ".quant_state.bitsandbytes__" + (is_nf4 ? "nf4" : "fp4")] = {
            "U8", {static_cast<int64_t>(state.size())}, std::string(state)};
    }
};

inline std::string bnb_state(int64_t rows, int64_t columns, bool is_nf4, bool is_nested) {
    return std::string("{\"quant_type\":\"") + (is_nf4 ? "nf4" : "fp4") +
           "\",\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[" + std::to_string(rows) + "," +
           std::to_string(columns) + "]" +
           (is_nested ? ",\"nested_blocksize\":256,\"nested_dtype\":\"float32\","
                        "\"nested_offset\":0.125}"
                      : "}");
}

}  // namespace moe::test
