// One load: takes tensors in any order, puts each where the layout wants it, and at the end names
// what is missing.
#pragma once

#include "libmoe/base/fmt.hpp"
#include "libmoe/weights/load.hpp"
#include "libmoe/weights/view.hpp"

namespace moe {

class Loader {
  public:
    // replacing: tensors may come again, as in an update.
    Loader(moe_weights& weights, const LoadRequest& request, bool replacing);

    // Takes what the layout needs of one tensor. Its pointers must be valid until the weights die
    // under BORROW.
    void add(const moe_tensor& tensor);
    // Fails unless the layer has such a tensor, of this shape and number of experts.
    void check(const moe_tensor& tensor) const;
    // Does the layout need any of this tensor?
    bool wants(const moe_tensor& tensor, int64_t expert) const;
    void check_complete() const;

  private:
    struct Name {
        char text[96];
    };
    Name name_of(const moe_tensor& tensor, int64_t expert) const;
    void add_expert(const moe_tensor& tensor, int64_t index, int64_t expert);
    void add_role(const moe_tensor& tensor, int64_t index, moe_role role, int64_t expert,
                  const char* what);
    void set_matrix(Matrix whole, moe_role role, int64_t place, const char* what);
    void set_vector(const moe_tensor& tensor, int64_t index, moe_role role, int64_t place,
                    const char* what);
    void set_hash_table(const moe_tensor& tensor);
    void check_format(const moe_format& format, moe_role role, const char* what) const;
    const float* keep_codebook(const Matrix& matrix);
    void mark(moe_role role, int64_t place, const char* what);
    void report(uint64_t bytes);

    moe_weights& weights_;
    const LoadRequest& request_;
    bool replacing_;
    RoleTable<uint8_t> seen_;
    std::pmr::vector<float> row_;       // a decoded fused bias
    uint64_t offsets_[MOE_ROLE_COUNT];  // of each role's copies
    uint64_t done_ = 0;
    uint64_t total_ = 0;
};

}  // namespace moe
