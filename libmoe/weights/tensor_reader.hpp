// From callers' tensors to the parts that a layout holds. Every tensor is checked against the
// layer, each of its experts is viewed once, and each view is reduced to the slice. Tensors come in
// any order; at the end the reader names what is missing.
#pragma once

#include <span>

#include "libmoe/weights/tensor_roles.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {

// The part of a tensor that belongs to one role and expert of a layout.
struct TensorPart {
    moe_role role;  // that of one half where the tensor is fused
    int64_t index;  // in the role's list
    Matrix matrix;  // matrices: the slice; vectors: the tensor's row; hash tables: nothing
};

class TensorReader {
  public:
    enum class Purpose { load, update };
    enum class Spaces { host, host_and_device };

    // layout must outlive the reader. An update fails on a tensor of which the layout holds
    // nothing.
    TensorReader(const WeightsLayout& layout, std::pmr::memory_resource& memory, Purpose purpose,
                 Spaces spaces);

    // Fails unless the layer has such a tensor, of this shape and number of experts.
    void check(const moe_tensor& tensor) const;
    // Returns true if the layout holds any of this tensor.
    bool wants(const moe_tensor& tensor, int64_t expert) const;
    bool wants(const moe_tensor& one) const {
        return wants(one, is_expert_role(one.role) ? one.expert : 0);
    }
    // Returns what the layout holds of one tensor; the list stays until the next call. All experts
    // are checked before any is returned. The parts point into the tensor's buffers.
    std::span<const TensorPart> read(const moe_tensor& tensor);
    // Fails unless everything has been read that the layout holds.
    void check_complete() const;

  private:
    struct ExpertView {
        int64_t expert;
        Matrix matrix;
    };

    void check_role(const moe_tensor& tensor) const;
    void check_expert_number(const moe_tensor& tensor) const;
    void check_format(const moe_format& format, moe_role role, int64_t expert,
                      const char* what) const;
    void view_experts(const moe_tensor& tensor);
    Matrix view_expert(const moe_tensor& tensor, int64_t index, int64_t expert) const;
    void add_part(const moe_tensor& tensor, const ExpertView& view, moe_role role);
    Matrix slice_of(const moe_tensor& tensor, Matrix whole, moe_role role) const;
    void mark(moe_role role, int64_t index, const char* what);

    const WeightsLayout& layout_;
    Purpose purpose_;
    Spaces spaces_;
    RoleTable<uint8_t> seen_;
    std::pmr::vector<ExpertView> views_;
    std::pmr::vector<TensorPart> parts_;
};

}  // namespace moe
