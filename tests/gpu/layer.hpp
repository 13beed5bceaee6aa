// The tensors of one random layer: encoded in a format for the plan under test, and the same values
// decoded to float32 for the reference.
#pragma once

#include <array>
#include <deque>
#include <map>

#include "formats.hpp"
#include "support/layer_weights.hpp"

namespace moe_gpu {

using clients::plain_layer;

enum class Form { stacked, table, tensor_per_expert };
// Whose is an order of columns, or their factors. Gate and up of an expert share one but with
// of_matrix.
enum class Tables { of_all, of_expert, of_matrix };

struct LayerSpec {
    moe_layer_desc desc;
    const char* format = "bf16";        // of the routed experts' matrices
    const char* dense_format = "bf16";  // of shared expert and latent projections
    const char* router_format = "f32";
    Form form = Form::stacked;
    moe_gate_up_order fused = MOE_GATE_UP_NONE;
    bool transposed = false;       // matrices of experts lie [in, out]; plain formats only
    int32_t distinct_experts = 0;  // expert e has the tensors of e % n; 0: all differ
    uint64_t seed = 1;
    const char* down_format = nullptr;         // null: format
    const char* gate_format = nullptr;         // likewise
    const char* shared_gate_format = nullptr;  // null: dense_format
    bool own_codebooks = false;                // every matrix its own, where the format wants one
    Tables tables = Tables::of_all;            // others than that want Form::tensor_per_expert
    // The last experts, by selection biases beyond any score: Inkling's shared ones.
    int32_t always_chosen = 0;
};

// Can the format hold gate, up [I, L] and down [L, I] of this layer?
bool can_hold(const char* format, const moe_layer_desc& desc);

class LayerData {
  public:
    explicit LayerData(const LayerSpec& spec);
    LayerData(const LayerData&) = delete;

    const LayerSpec spec;
    const moe_layer_desc& desc() const { return spec.desc; }
    int64_t width() const { return clients::expert_width(spec.desc); }

    // formats stay valid as long as this.
    moe_plan_desc plan_desc() const;
    moe_plan_desc reference_plan_desc() const;
    moe_weights_desc weights_desc() const;
    moe_weights_desc reference_weights_desc() const;

    // The values of a matrix or vector of an expert.
    const float* decoded(moe_role role, int64_t expert) const {
        const Floats& all = reference_values_.at(role);
        const int64_t size = reference_sizes_.at(role);
        return all.data() + expert * size % static_cast<int64_t>(all.size());
    }

    // One matrix of another seed, in place of that of an expert, for moe_weights_update. The
    // decoded values of the reference change too. So does a codebook.
    moe_tensor replace(moe_role role, int32_t expert, uint64_t seed);

  private:
    struct Matrix {
        FormatBuffers buffers;
        Floats decoded;
    };
    struct Stack {
        moe_format format;
        int64_t n = 0, rows = 0, columns = 0;
        std::vector<Matrix> matrices;
        FormatBuffers buffers;
        Floats globals;
        std::vector<const void*> data_table, scale_table;
    };

    Matrix encode(const moe_format& format, int64_t rows, int64_t columns, uint64_t seed,
                  float spread, float middle, uint64_t codebook, uint64_t table) const;
    uint64_t table_of(int role, int64_t expert) const;
    void decode(const moe_format& format, Matrix& matrix, int64_t rows, int64_t columns) const;
    void choose_always(Stack& bias) const;
    void make_role(int role);
    void make_hash_table();
    const char* format_of(int role) const;
    bool is_fused_away(int role) const;
    Stack& make_stack(int role, int64_t n, int64_t rows, int64_t columns, float spread,
                      float middle);
    void give(Stack& stack, int role);
    void give_stacked(Stack& stack, moe_tensor tensor);
    void give_table(Stack& stack, moe_tensor tensor, int64_t n_experts);
    void give_each(Stack& stack, moe_tensor tensor);
    void give_reference(int role, const clients::RoleShape& shape, const Stack& stack, int part);
    moe_tensor describe(const Stack& stack, int role) const;
    moe_tensor of_matrix(const Stack& stack, const Matrix& matrix, moe_tensor tensor) const;

    moe_format f32_;
    std::array<moe_format, MOE_ROLE_COUNT> role_formats_{};
    std::array<const moe_format*, MOE_ROLE_COUNT> formats_{}, reference_formats_{};
    std::map<int, Stack> stacks_;
    std::map<int, Floats> reference_values_;
    std::map<int, int64_t> reference_sizes_;  // of one matrix
    std::deque<std::vector<const void*>> reference_tables_;
    std::deque<moe_tensor> tensors_, reference_tensors_;
    std::vector<const moe_tensor*> list_, reference_list_;
    std::vector<int32_t> hash_table_;
    moe_format hash_format_{};
};

}  // namespace moe_gpu
