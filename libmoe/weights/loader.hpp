// One load: takes tensors in any order, puts each where the layout wants it, and at the end names
// what is missing.
#pragma once

#include "libmoe/base/fmt.hpp"
#include "libmoe/weights/load.hpp"
#include "libmoe/weights/view.hpp"

namespace moe {

// The two roles of a fused one; the role itself, and NONE, otherwise.
std::pair<moe_role, moe_role> parts_of(moe_role role);

// "tensor down of expert 3"; without an expert where the role has none, and of a stack.
struct TensorName {
    TensorName(moe_role role, int64_t expert);
    char text[96];
};

// Tells the caller how far a load has come.
class Progress {
  public:
    explicit Progress(const LoadRequest& request) : request_(request) {}
    uint64_t total = 0;
    uint64_t done() const { return done_; }
    // Fails with MOE_ERROR_CANCELLED when the caller wants no more.
    void add(uint64_t bytes);

  private:
    const LoadRequest& request_;
    uint64_t done_ = 0;
};

// Where matrices of packed layouts go, and the way to what lies on a device.
class MatrixTaker {
  public:
    virtual ~MatrixTaker() = default;
    // A view of the part that the layout needs, in memory of `space`.
    virtual void take(const Matrix& part, moe_role role, int64_t place, moe_space space) = 0;
    // The same view in host memory, valid until the next call.
    virtual Matrix to_host(const Matrix& on_device) = 0;
};

class Loader {
  public:
    // replacing: an update of what is there already; a tensor of which nothing is, is not found.
    // taker: of packed layouts.
    Loader(moe_weights& weights, const LoadRequest& request, bool replacing,
           MatrixTaker* taker = nullptr);

    // Takes what the layout needs of one tensor, or fails and takes nothing of it. Its pointers
    // must be valid until the weights die under BORROW, and until the taker is done.
    void add(const moe_tensor& tensor);
    // Fails unless the layer has such a tensor, of this shape and number of experts.
    void check(const moe_tensor& tensor) const;
    // Does the layout need any of this tensor?
    bool wants(const moe_tensor& tensor, int64_t expert) const;
    bool wants(const moe_tensor& one) const {
        return wants(one, is_expert_role(one.role) ? one.expert : 0);
    }
    void check_complete() const;

  private:
    // visit(index, expert) for what the layout needs of a tensor: index counts in its stack.
    // Returns how many there are.
    template <class Visit>
    int64_t visit_wanted(const moe_tensor& tensor, Visit visit) const;
    void check_expert(const moe_tensor& tensor, int64_t index, int64_t expert) const;
    void add_expert(const moe_tensor& tensor, int64_t index, int64_t expert);
    void add_role(const moe_tensor& tensor, int64_t index, moe_role role, int64_t expert,
                  const char* what);
    void set_matrix(const moe_tensor& tensor, Matrix whole, moe_role role, int64_t place,
                    const char* what);
    void set_vector(const moe_tensor& tensor, int64_t index, moe_role role, int64_t place,
                    const char* what);
    void check_hash_table(const moe_tensor& tensor) const;
    void set_hash_table(const moe_tensor& tensor);
    void check_format(const moe_format& format, moe_role role, const char* what) const;
    const float* keep_codebook(const float* codebook, int64_t n);
    void mark(moe_role role, int64_t place, const char* what);

    moe_weights& weights_;
    const LoadRequest& request_;
    MatrixTaker* taker_;
    bool replacing_;
    Progress progress_;
    RoleTable<uint8_t> seen_;
    std::pmr::vector<float> row_;       // a decoded fused bias
    uint64_t offsets_[MOE_ROLE_COUNT];  // of each role's copies
};

}  // namespace moe
