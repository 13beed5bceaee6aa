// The tensors of one layer as CPU kernels read them: a Matrix per weight matrix (of every local
// expert) and float32 vectors for all that is small. WeightsLayout lists the tensors; a plan and
// the weights made with it have equal layouts.
#pragma once

#include <array>
#include <memory_resource>
#include <utility>
#include <vector>

#include "libmoe/formats/matrix.hpp"
#include "libmoe/layer/layer.hpp"
#include "libmoe/layer/slice.hpp"
#include "libmoe/packed/traits.hpp"

namespace moe {

class Hash128;

// Returns true for roles that may lie in one tensor with another one, gate with up.
bool may_be_fused(moe_role role);

struct WeightsLayout {
    explicit WeightsLayout(std::pmr::memory_resource& memory)
        : slice(memory), other_formats(&memory), expert_formats(&memory) {}
    WeightsLayout(std::pmr::memory_resource& memory, const WeightsLayout& other)
        : WeightsLayout(memory) {
        *this = other;  // the lists keep their memory
    }

    Layer layer;
    Slice slice;
    uint32_t stages = 0;  // moe_stage bits
    moe_residency residency = MOE_RESIDENCY_SOURCE;
    moe_device_kind device = MOE_DEVICE_CPU;
    int32_t device_index = 0;  // not part of the id
    // Packed gate and up with tables of columns are not fused, so that the tables may differ, and
    // their rows do not lie in down's order (folds_order).
    bool keeps_tables_apart = false;
    // Packed codes of one to three bits beside biases stay as they are, and so do the biases. Else
    // the codes are moved to where kernels of 16-bit operands lose least of them
    // (lower_scales.cpp).
    bool keeps_biases = false;
    // Is the role one of a gate and up of which that is true?
    bool has_half_apart(moe_role role) const;
    // Is the order of columns of a packed down matrix that of the rows of gate and up, so that
    // kernels need no table? Not with keeps_tables_apart, nor where a scale serves several rows.
    bool folds_order(moe_role down) const;
    // The down matrix that orders the rows of this gate or up, or of its bias, so; NONE: they have
    // the source's order.
    moe_role orders_rows(moe_role role) const;
    std::array<moe_format, MOE_ROLE_COUNT> formats{};  // type NONE: any dense type
    // Of single experts that have another format than their role, each once. expert_formats has 1
    // and its index at role * n_experts + expert, 0 for the role's, and is empty where none has.
    std::pmr::vector<moe_format> other_formats;
    std::pmr::vector<uint16_t> expert_formats;
    bool has_mixed_experts() const { return !expert_formats.empty(); }
    // Of a global expert's matrix; the expert of other roles does not matter.
    const moe_format& format_of(moe_role role, int64_t expert) const;
    // How many experts have it, by its index in other_formats.
    int64_t experts_with(moe_role role, size_t other) const;
    // see(format) of the role's format, and of those that its experts have in its place.
    template <class See>
    void for_each_format(moe_role role, See see) const {
        see(formats[role]);
        for (size_t i = 0; i < other_formats.size(); ++i)
            if (experts_with(role, i)) see(other_formats[i]);
    }
    std::array<uint8_t, 16> id{};

    // In tiles of device memory (packed/layout.hpp) instead of the format and layout of the
    // tensors.
    bool is_packed() const { return residency == MOE_RESIDENCY_PACKED && device != MOE_DEVICE_CPU; }
    // In host memory with interleaved rows, where a format has them (formats/interleaved.hpp).
    bool is_interleaved() const {
        return residency == MOE_RESIDENCY_PACKED && device == MOE_DEVICE_CPU;
    }
    // How the role's matrices are interleaved; null: they keep their rows, as the router does.
    const Interleaving* interleaving(moe_role role) const;
    // Returns true if the role lies in tiles of a packed type. The router stays dense.
    bool is_packed_role(moe_role role) const;
    // Returns true if weights hold this role. GATE_UP roles are not among the arguments.
    bool needs(moe_role role) const;
    // The down bias is added by the experts stage, or once by finish when the intermediate is
    // sliced.
    bool down_bias_in_finish() const { return layer.has_down_bias && !slice.whole_intermediate; }
    // Returns how many tensors of a role the weights hold: one, or one per expert.
    int64_t count(moe_role role) const;
    // Returns the index of a global expert's tensor, -1 if the weights do not hold it.
    int64_t index_of_expert(moe_role role, int64_t expert) const;

    struct Part {
        int64_t row, rows, column, columns;
    };
    // Returns the part of the role's tensor (of one expert) that the slice needs.
    Part part(moe_role role) const;
    // Bytes of a copy of one matrix of the role, codes and scales, aligned; in a packed layout the
    // bytes of its tiles. Of experts in several formats the largest: each has as much memory.
    uint64_t matrix_copy_bytes(moe_role role) const;
    // Bytes of all copies; in a packed layout vectors are among them.
    uint64_t copy_bytes() const;

    // revision: of a packed type, as the traits table has it.
    std::array<uint8_t, 16> make_id(int32_t (*revision)(PackedType) = packed_revision) const;

  private:
    uint64_t source_copy_bytes(const moe_format& format, moe_role role) const;
    void add_expert_formats(Hash128& hash) const;
};

// An array indexed by moe_role whose lists all take their memory from one resource.
template <class T>
class RoleTable {
  public:
    explicit RoleTable(std::pmr::memory_resource* memory)
        : lists_(make(memory, std::make_index_sequence<MOE_ROLE_COUNT>{})) {}
    std::pmr::vector<T>& operator[](moe_role role) { return lists_[role]; }
    const std::pmr::vector<T>& operator[](moe_role role) const { return lists_[role]; }

  private:
    using Lists = std::array<std::pmr::vector<T>, MOE_ROLE_COUNT>;
    template <size_t... I>
    static Lists make(std::pmr::memory_resource* memory, std::index_sequence<I...>) {
        return {((void)I, std::pmr::vector<T>(memory))...};
    }
    Lists lists_;
};

struct ResidentWeights {
    explicit ResidentWeights(std::pmr::memory_resource* memory)
        : matrices(memory), vectors(memory), hash_table(memory) {}

    // By role: one Matrix, or one per local expert; empty when the layout does not need the role.
    RoleTable<Matrix> matrices;
    // Expert vectors lie one after the other by local expert (the down bias of finish: by global
    // expert).
    RoleTable<float> vectors;
    std::pmr::vector<int32_t> hash_table;

    const Matrix& matrix(moe_role role, int64_t expert = 0) const { return matrices[role][expert]; }
    // null when the layer has none.
    const float* vector(moe_role role) const {
        return vectors[role].empty() ? nullptr : vectors[role].data();
    }
};

}  // namespace moe
