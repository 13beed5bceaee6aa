// Puts the tensors of one layer together for a family: looks names up under the layer's prefix,
// decides formats from the tensors that are there, and checks every shape.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/checkpoint/checkpoint_files.hpp"

namespace moe {

struct FileRange {
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

// One tensor of a layer. In a mapped checkpoint the pointers of `tensor` are set; they may be
// unaligned. Otherwise they are null and `data`, `scales` and `zero_points` say where to read. What
// is small (global and input scales, permutations, nested scales) is always there.
struct LayerTensor {
    moe_tensor tensor{};
    moe_format format{};  // tensor.format points to it
    FileRange data;       // no bytes: tensor.data has values that the reader made
    FileRange scales;     // no bytes: none, or tensor.scales is there
    FileRange zero_points;
    std::string_view name;
};

// Codes, scales and zero points become the e-th of n equal parts of them.
void take_part(LayerTensor& one, uint64_t n, uint64_t e);

struct LayerData {
    explicit LayerData(std::pmr::memory_resource& memory) : values(&memory), tensors(&memory) {}

    moe_layer_desc desc{};
    std::pmr::monotonic_buffer_resource values;  // scalars that were read from the files
    std::pmr::vector<LayerTensor> tensors;
};

// What the caller of moe_checkpoint_open says of fused tensors.
struct FusedOverride {
    bool has_orientation = false;
    moe_orientation orientation = MOE_ORIENTATION_OUT_IN;
    moe_gate_up_order gate_up_order = MOE_GATE_UP_NONE;
};

// How a family stores gate and up in one tensor.
struct FusedForm {
    moe_orientation orientation = MOE_ORIENTATION_OUT_IN;
    moe_gate_up_order order = MOE_GATE_UP_GATE_FIRST;
};

class LayerBuilder {
  public:
    LayerBuilder(const CheckpointFiles& files, const FusedOverride& override,
                 std::string_view prefix, int32_t number, LayerData& out);

    const Settings& settings() const { return files_.settings; }
    SettingsPart quantization() const { return files_.quantization(); }
    // With what the configuration says of the matrix `stem` alone.
    SettingsPart quantization_of(std::string_view stem) const {
        return files_.quantization_of(files_.rules.find(full_name(stem)));
    }
    // Of the decoder layer: some configurations have a list with a value for each.
    int32_t number() const { return number_; }
    moe_layer_desc& desc() { return out_.desc; }

    // Names are without the layer's prefix.
    const TensorEntry* find(std::string_view name) const;
    // Absence is MOE_ERROR_NOT_FOUND with the whole name.
    const TensorEntry& get(std::string_view name) const;
    // Size of a dimension (slowest first); fails when the rank is smaller.
    int64_t dimension(std::string_view name, uint32_t index) const {
        return dimension(get(name), index);
    }
    // Is there a matrix of this name ("....weight") in any of its spellings?
    bool has_weight(std::string_view name) const;
    // Is there a tensor whose name begins so?
    bool has_any(std::string_view beginning) const {
        return files_.index.find_prefix(full_name(beginning));
    }
    // Rows of the matrix, as its tensors say; fails when there is none.
    int64_t rows_of(std::string_view name) const;
    [[noreturn]] void fail_missing(std::string_view what) const;
    [[noreturn]] void fail_unsupported(std::string_view name, std::string_view what) const;

    struct Wanted {
        moe_role role = MOE_ROLE_NONE;
        int32_t expert = 0;  // MOE_ALL_EXPERTS: a stack of desc().n_experts
        int64_t rows = 0;
        int64_t columns = 0;
        bool fused = false;  // a merged tensor of experts: form and override apply
        FusedForm form = {};
        int32_t unread_experts = 0;  // at the end of a stack, in floating point alone
        // A stack may have a part of the experts: how many (0: all), and the first of them.
        int32_t n_stacked = 0;
        int32_t first_stacked = 0;
    };
    // A matrix with the scales that lie beside it.
    void weight(std::string_view name, const Wanted& wanted);
    // MXFP4 as blocks [.., columns / 32, 16] and scales [.., columns / 32] in two tensors, stem +
    // "_blocks" or stem + ".blocks".
    void mxfp4_blocks(std::string_view stem, char mark, const Wanted& wanted);
    // A vector [columns], or one per expert; of a floating-point type.
    void vector(std::string_view name, const Wanted& wanted);
    // A vector that is stored less one: 1 + v, rounded to the type that v has in the file.
    void centred_vector(std::string_view name, const Wanted& wanted);
    // All experts one below the other in two dimensions, [n_experts * rows, columns], or in the
    // transposed form [n_experts * columns, rows]; of a floating-point type.
    void flat_stack(std::string_view name, const Wanted& wanted);
    // A vector of columns - n values, n times `last` after them; of a floating-point type.
    void vector_and(std::string_view name, const Wanted& wanted, float last, int32_t n);
    // One value of a floating-point type.
    float scalar(std::string_view name) { return *read_floats(get(name), 1); }
    // Whole numbers [rows, columns].
    void table(std::string_view name, const Wanted& wanted);

    FusedForm resolve(const FusedForm& form) const;
    // Call last: gives every tensor the address of its format, and refuses what lies in the block,
    // was not read and would change the result.
    void finish();

  private:
    // "experts.0.up_proj.weight" and "experts.0.up_proj"; equal for merged tensors of experts.
    struct WeightName {
        explicit WeightName(std::string_view given);
        std::string name;
        std::string stem;
    };

    std::string_view full_name(std::string_view name) const;
    LayerTensor& append(const TensorEntry& entry, const Wanted& wanted);
    float* new_floats(int64_t n);  // they live as long as the layer
    void append_made(const TensorEntry& entry, const Wanted& wanted, const float* values);
    // Experts of a matrix: 1, or those of the stack.
    int64_t count_of(const Wanted& wanted) const;
    void split_stack(size_t index, const Wanted& wanted);
    void set_scales(LayerTensor& tensor, const TensorEntry& entry);
    const std::byte* pointer(const TensorEntry& entry) const;
    // `why` ends the sentence.
    void check_shape(const TensorEntry& entry, std::initializer_list<int64_t> wanted,
                     bool ignore_leading_ones, std::string_view why = {}) const;
    void check_matrix(const TensorEntry& entry, const Wanted& wanted, int64_t rows,
                      int64_t columns) const;
    int64_t dimension(const TensorEntry& entry, uint32_t index) const;
    // Of any floating-point type; kept as float32.
    const float* read_floats(const TensorEntry& entry, int64_t count);
    void set_range(const TensorEntry& entry, FileRange& range, const void*& data, uint64_t& bytes);
    void check_separate(const TensorEntry& entry, const Wanted& wanted) const;
    void require_type(const TensorEntry& entry, std::initializer_list<moe_type> types) const;
    void read_global_scale(LayerTensor& tensor, const TensorEntry& entry, const Wanted& wanted);
    void read_input_scale(LayerTensor& tensor, std::string_view stem, const Wanted& wanted);
    void read_companions(LayerTensor& tensor, std::string_view stem, const Wanted& wanted);
    // unread.cpp
    bool is_zero_bias_of_codes(const TensorEntry& entry) const;
    void refuse_unread(const TensorEntry& entry) const;
    void refuse_all_unread();
    // transforms.cpp
    void refuse_transform(std::string_view stem, moe_role role) const;
    // act_order that changes nothing, in the whole layer: its matrices then need no table.
    void drop_needless_orders();
    void complete_pre_quant_scales();
    void add_weight(const WeightName& of, const Wanted& wanted);
    bool add_quantised(const WeightName& of, const Wanted& wanted);
    bool has_float_scales(const WeightName& of) const;
    bool is_all_zero(const TensorEntry& entry) const;
    void add_plain(const TensorEntry& entry, const Wanted& wanted);
    void add_gguf(const WeightName& of, const TensorEntry& entry, const Wanted& wanted);
    bool leaves_scale(const Wanted& wanted) const;
    bool add_output_scale(const std::string& name, const Wanted& wanted);
    // weight_grid.cpp: scales beside a matrix, codes under a grid of them.
    struct ScaleGroup {
        int32_t rows, columns;
    };
    const TensorEntry* find_scales(const WeightName& of) const;
    const TensorEntry& get_scales(const WeightName& of) const;
    bool is_transposed(const Wanted& wanted) const;
    int64_t half_rows(const Wanted& wanted) const;
    ScaleGroup block_of(const SettingsPart& part, bool& is_named) const;
    ScaleGroup scale_group_of(const WeightName& of, const TensorEntry& entry,
                              const TensorEntry& scales, const Wanted& wanted) const;
    LayerTensor& add_grid(const WeightName& of, moe_type type, moe_type scale_type,
                          const TensorEntry& entry, const TensorEntry& scales,
                          const Wanted& wanted);
    void set_grid_scales(LayerTensor& tensor, const TensorEntry& scales, const ScaleGroup& in_file,
                         const Wanted& wanted);
    const std::byte* pointer_to_values(const TensorEntry& entry, int64_t count, bool as_they_are);
    // weight_fp.cpp: E4M3, E5M2 and E2M1 codes.
    void add_fp8(const WeightName& of, const TensorEntry& entry, const Wanted& wanted);
    static bool is_wide_group(int64_t groups, const Wanted& wanted);
    bool says_fp4(const WeightName& of, const TensorEntry& entry) const;
    void add_fp4_grid(const WeightName& of, const TensorEntry& entry, const TensorEntry& scales,
                      const Wanted& wanted);
    static int64_t fp4_columns(const TensorEntry& entry, const Wanted& wanted);
    void add_fp4(const WeightName& of, const TensorEntry& entry, const Wanted& wanted);
    void add_nvfp4(const WeightName& of, const TensorEntry& entry, const TensorEntry& scales,
                   const Wanted& wanted);
    void add_mxfp4(const TensorEntry& entry, const TensorEntry& scales, const Wanted& wanted);
    // weight_int.cpp: integers and the codes of bitsandbytes.
    LayerTensor& add_transposed_int(const std::string& stem, const SettingsPart& part,
                                    const Wanted& wanted, const moe_format& start);
    void add_qweight(const std::string& stem, const TensorEntry& entry, const Wanted& wanted);
    // GPTQ stores zero points as they are (V2), or one less (V1).
    enum class IntCodes { GptqV1, GptqV2, Awq };
    IntCodes int_codes(const TensorEntry& entry, const SettingsPart& part) const;
    IntCodes autoround_codes(const TensorEntry& entry, const SettingsPart& part) const;
    void add_gptq(const std::string& stem, const SettingsPart& part, bool is_v2,
                  const Wanted& wanted);
    void check_symmetric_zeros(const TensorEntry& zeros, int32_t bits, bool is_v2) const;
    void add_awq(const std::string& stem, const SettingsPart& part, const Wanted& wanted);
    void check_weight_shape(const std::string& stem, const Wanted& wanted) const;
    void add_pack_quantized(const std::string& stem, const Wanted& wanted);
    void add_int8_grid(const WeightName& of, const TensorEntry& entry, const Wanted& wanted);
    void add_int4(const WeightName& of, const TensorEntry& entry, const Wanted& wanted);
    void add_int8(const std::string& stem, const TensorEntry& entry, const Wanted& wanted);
    void add_kbit(const std::string& stem, const Wanted& wanted);
    void add_bnb_4bit(const std::string& stem, const TensorEntry& entry, const Wanted& wanted);
    static bool every_group_says(const SettingsPart& part, const char* key, std::string_view text);
    int64_t packed_bits(const TensorEntry& entry, const SettingsPart& part, int64_t columns) const;
    int32_t group_size(const TensorEntry& scales, const SettingsPart& part, int64_t groups,
                       int64_t columns) const;
    bool read_group_index(const TensorEntry& entry, int64_t groups, int32_t group,
                          const Wanted& wanted, moe_tensor& tensor);
    const TensorEntry* bnb_state(const std::string& stem) const;
    int64_t bnb_rows(const TensorEntry& state) const;
    // weight_mlx.cpp
    void check_mlx_entry(const TensorEntry& entry, std::string_view module, std::string_view mode,
                         int64_t bits, int64_t group) const;
    void add_mlx(const std::string& stem, const TensorEntry& entry, const Wanted& wanted);
    void add_mlx_affine(const std::string& stem, const TensorEntry& entry,
                        const TensorEntry& scales, const Wanted& wanted);
    void add_mlx_bytes(const std::string& stem, const TensorEntry& entry, const TensorEntry& scales,
                       const Wanted& wanted, std::string_view mode);
    // weight_torchao.cpp
    // "stem._weight_part" of "stem.weight".
    static std::string torchao_name(std::string_view name, std::string_view part);
    void check_torchao_zeros(std::string_view name);
    void add_torchao(const WeightName& of, const TensorEntry& entry, const Wanted& wanted);
    void check_not_transposed(const TensorEntry& entry, const Wanted& wanted) const;
    [[noreturn]] void fail_entry(moe_status status, const TensorEntry& entry,
                                 std::string_view what) const;
    [[noreturn]] void fail_beside(const TensorEntry& entry, std::string_view format) const;

    const CheckpointFiles& files_;
    const FusedOverride& override_;
    std::string_view prefix_;
    int32_t number_;
    LayerData& out_;
    std::vector<const TensorEntry*> read_;
    mutable std::string name_;  // of the last lookup
};

}  // namespace moe
